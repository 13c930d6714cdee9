# SPDX-License-Identifier: Apache-2.0
"""Keys near those of the program's own entries."""

import random
import struct
from collections.abc import Iterator

from vectors.packets import numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(120)))


def packet(rng: random.Random) -> bytes:
    exact1 = rng.choice((1, 1, 1, 2, 3, 7, 8, 9))
    exact2 = rng.choice((1, 2, 3, 0xFFFF))
    prefix = rng.choice((0x0A0B0C0D, 0x0A0B0C0E, 0x0A0B0000, 0x0A000001, 0x0B000000))
    pattern = rng.choice((0x1234, 0x1200, 0x5534, 0xFFFF, 0))
    number = rng.choice((0, 9, 10, 49, 50, 99, 100, 1000, 1001, 0xFFEF, 0xFFF0, 0xFFFF))
    maybe = rng.choice((7, 8, 9))
    wide = rng.choice((bytes(range(1, 13)), bytes(12), bytes(range(1, 12)) + b"\x0d"))
    key = struct.pack(">BHIHHB", exact1, exact2, prefix, pattern, number, maybe) + wide
    return key + (bytes(8) if rng.random() < 0.8 else b"") + bytes(rng.randrange(3))
