# SPDX-License-Identifier: Apache-2.0
"""Packet bytes that expose errors."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from vectors.steps import Packet


def edges(rng: random.Random, count: int) -> bytes:
    """Return random bytes. A fifth of all results has only edge values such as 0x00 and 0xff."""
    if rng.random() < 0.2:
        return bytes(rng.choice((0, 0xFF, 0x80, 0x7F, 1)) for _ in range(count))
    return rng.randbytes(count)


def numbered(port: int, packets: Iterable[bytes]) -> Iterator[Packet]:
    """Yield packets into a port, each with a number of four bytes at its end."""
    for number, packet in enumerate(packets):
        yield Packet(port, (packet + number.to_bytes(4, "big")).hex())
