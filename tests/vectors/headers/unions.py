# SPDX-License-Identifier: Apache-2.0
"""Packets that put every header of the unions in every place."""

import random
from collections.abc import Iterator

from vectors.packets import edges, numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(160)))


def packet(rng: random.Random) -> bytes:
    kinds = rng.randrange(16)
    data = bytes([rng.randrange(10), kinds])
    same = edges(rng, 4)
    first, second = (1, 2, 6, 0)[kinds & 3], (1, 2, 4, 0)[kinds >> 2]
    data += (same + same[:2])[:first] + (same if rng.random() < 0.5 else edges(rng, 4))[:second]
    for _ in range(rng.randrange(5)):
        size = rng.choice((1, 2, 4))
        piece = bytearray(edges(rng, size))
        piece[0] = piece[0] & 0x3F | {1: 0, 2: 0x40, 4: 0x80}[size]
        data += piece
    data += bytes([0xFF])
    return data[: rng.randrange(2, len(data) + 1)] if rng.random() < 0.1 else data
