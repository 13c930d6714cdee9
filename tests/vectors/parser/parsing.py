# SPDX-License-Identifier: Apache-2.0
"""Headers of the kinds that the parser distinguishes, sometimes cut short."""

import random
from collections.abc import Iterator

from vectors.packets import edges, numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(120)))


def packet(rng: random.Random) -> bytes:
    kind = rng.choice((1, 1, 2, 3, 5, 0x10, 0x11, 0x12, 0x14, 0x80, 0x81, 0x82, rng.randrange(256)))
    magic = rng.choice((0xAA, 0xAA, 0xA0, 0xA1, 0, rng.randrange(256)))
    data = bytes([kind, magic, 0, 0, rng.randrange(6), 0, 0, 0])
    for number in range(rng.randrange(7)):
        bottom = rng.random() < 0.3 or number == 5
        data += ((rng.randrange(1 << 23) << 9) | (bottom << 8) | rng.randrange(256)).to_bytes(4, "big")
        if bottom:
            break
    data += bytes([rng.choice((0x70, 0x60, 0x00)) | rng.randrange(16)]) + edges(rng, 1)
    data += bytes(range(1, 13)) if rng.random() < 0.3 else edges(rng, 12)
    data += edges(rng, rng.randrange(12))
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data
