# SPDX-License-Identifier: Apache-2.0
"""Frames that no honest host sends, at the highest rate."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence

MTU = 9000
ETHERNET = 14


def malformed(rng: random.Random, honest: Sequence[bytes], count: int) -> list[bytes]:
    """Return random, truncated, oversized and damaged frames. The program accepts `honest` frames."""
    return [_one(rng, rng.choice(honest)) for _ in range(count)]


def _one(rng: random.Random, honest: bytes) -> bytes:
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randbytes(rng.randint(ETHERNET, 200))
    if kind == 1:
        return honest[: rng.randint(ETHERNET, len(honest))]
    if kind == 2:
        return honest + rng.randbytes(rng.randint(1, MTU + ETHERNET - len(honest)))
    damaged = bytearray(honest)
    for _ in range(rng.randint(1, 6)):
        damaged[rng.randrange(12 if kind == 3 else 0, len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def flood(sockets: Sequence[socket.socket], frames: Sequence[bytes], seconds: float) -> int:
    """Send the frames repeatedly into all ports. Return how many frames the links accepted."""
    sent = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for number, frame in enumerate(frames):
            raw = sockets[number % len(sockets)]
            try:
                raw.send(frame)
                sent += 1
            except (BlockingIOError, OSError):
                _discard(sockets)  # the link is full
        _discard(sockets)
    return sent


def _discard(sockets: Sequence[socket.socket]) -> None:
    for raw in sockets:
        try:
            while raw.recv(1 << 16):
                pass
        except BlockingIOError:
            pass
