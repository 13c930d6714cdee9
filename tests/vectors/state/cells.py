# SPDX-License-Identifier: Apache-2.0
"""Indexes within and beyond the arrays, and meters before and after their configuration."""

import random
from collections.abc import Iterator

from vectors.packets import edges, numbered
from vectors.steps import Counter, DirectCounter, DirectMeter, Insert, Meter, Step

OUT = 63  # bytes


def steps(rng: random.Random) -> Iterator[Step]:
    for key in range(4):
        yield Insert("counted", {"h.i.key": key}, "hit", {"x": key + 1})
    yield from numbered(1, (packet(rng) for _ in range(60)))
    yield Meter("police", 1, 1_000_000_000, 1_000_000, 2_000_000_000, 2_000_000)
    yield Meter("police", 2, 0, 0, 1_000_000_000, 1_000_000)
    yield Meter("police", 3, 0, 0, 0, 0)
    yield DirectMeter("counted", {"h.i.key": 1}, 0, 0, 1_000_000_000, 1_000_000)
    yield DirectMeter("counted", {"h.i.key": 2}, 0, 50, 0, 110)
    yield from numbered(1, (packet(rng) for _ in range(60)))
    for index in range(4):
        yield Counter("packets", index)
        yield Counter("bytes", index)
        yield Counter("both", index)
        yield DirectCounter("counted", {"h.i.key": index})


def packet(rng: random.Random) -> bytes:
    index, key = rng.choice((0, 1, 2, 3, 3, 4, 5, 6, 255)), rng.randrange(6)
    return bytes([index, key]) + edges(rng, 9) + bytes(OUT) + bytes(rng.choice((0, 3, 40)))
