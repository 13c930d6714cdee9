# SPDX-License-Identifier: Apache-2.0
"""Bytes that show what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from vectors.steps import Packet


def edges(rng: random.Random, count: int) -> bytes:
    """Random bytes; in a fifth of all cases only 0x00, 0xff and the like, where arithmetic has its edges."""
    if rng.random() < 0.2:
        return bytes(rng.choice((0, 0xFF, 0x80, 0x7F, 1)) for _ in range(count))
    return rng.randbytes(count)


def numbered(port: int, packets: Iterable[bytes]) -> Iterator[Packet]:
    """Packets into a port, each with a number of four bytes at its end."""
    for number, packet in enumerate(packets):
        yield Packet(port, (packet + number.to_bytes(4, "big")).hex())
