# SPDX-License-Identifier: Apache-2.0
"""Signed operands with edge values."""

import random
from collections.abc import Iterator

from vectors.packets import edges, numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(150)))


def packet(rng: random.Random) -> bytes:
    numbers = b"".join(edges(rng, size) for size in (2, 2, 4, 4, 8, 8))
    if rng.random() < 0.2:
        numbers = (
            bytes([0x80, 0xFF]) + numbers[2:4] + b"\x80\0\0\0\xff\xff\xff\xff\x80" + bytes(7) + b"\xff" * 8
        )
    kinds = rng.choice((3, 9, 12, rng.randrange(16))) << 4 | rng.randrange(16)
    return numbers + bytes([kinds, rng.choice((0, 1, 7, 8, 31, 32, 63, 64, 255))]) + edges(rng, 1)
