# SPDX-License-Identifier: Apache-2.0
"""Each path through the parser, also with short packets."""

import random
from collections.abc import Iterator

from vectors.packets import edges, numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(200)))


def packet(rng: random.Random) -> bytes:
    what = rng.choice(
        (0x10, 0x10, 0x11, 0x1F, 0x20, 0x20, 0x30, 0x31, 0x40, 0x40, 0x50, 0xEE, 0xFF, rng.randrange(256))
    )
    a, b = rng.randrange(16), rng.choice((0, 99, 100, 0x101, 0x1FF, 0xFFF, rng.randrange(4096)))
    skip = rng.choice((0, 8, 16, 24, 7, 1 << 31, 0xFFFFFFF8, 1000))
    data = bytes([what]) + (a << 12 | b).to_bytes(2, "big") + skip.to_bytes(4, "big")
    if what == 0x40:
        for _ in range(rng.randrange(8)):
            size = rng.randrange(5)
            data += bytes([rng.choice((1, 1, 1, 2, 13)), size]) + bytes(size)
        data += bytes([0, rng.randrange(3)])
    data += edges(rng, rng.choice((4, 8, 14, 20)))
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.15 else data
