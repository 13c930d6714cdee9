# SPDX-License-Identifier: Apache-2.0
"""Every branch, with entries that lead to each action."""

import random
from collections.abc import Iterator

from vectors.packets import numbered
from vectors.steps import Insert, Step


def steps(rng: random.Random) -> Iterator[Step]:
    for table in ("first", "second", "third", "fourth"):
        yield from entries(rng, table)
    yield from numbered(1, (packet(rng) for _ in range(150)))


def entries(rng: random.Random, table: str) -> Iterator[Insert]:
    for key in range(8):
        match = {"h.op.key": key}
        if key < 3:
            yield Insert(table, match, "red", {"value": 0xAAA0 + key})
        elif key < 6:
            yield Insert(table, match, "green", {"wide": rng.getrandbits(72), "stop": int(key == 4)})
        else:
            yield Insert(table, match, "blue" if key == 6 else "NoAction")


def packet(rng: random.Random) -> bytes:
    what = rng.choice((*range(1, 11), 0x11, 0x12, 0x33))
    key = rng.choice((*range(10), 19, 20, 21, 200, 255))
    return bytes([what, key]) + rng.randbytes(2) + bytes(4) + bytes([rng.choice((0, 3, 4))])
