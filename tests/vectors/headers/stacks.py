# SPDX-License-Identifier: Apache-2.0
"""One operation per packet, on stacks of one to five labels."""

import random
from collections.abc import Iterator

from vectors.packets import numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(160)))


def packet(rng: random.Random) -> bytes:
    what = rng.choice((*range(1, 7), *range(1, 7), *range(10, 19), 0xFF))
    data = bytes([what, rng.randrange(4), rng.randrange(4), rng.choice((0, 1, 5, 255))])
    count = rng.choice((4, 4, 4, 1, 2, 3, 5))
    repeated = rng.randrange(1 << 15)
    for number in range(count if what != 0xFF else 0):
        tag = rng.choice((repeated, number, rng.randrange(1 << 15)))
        data += (tag << 1 | (number == count - 1)).to_bytes(2, "big")
    data += rng.randbytes(6)
    return data[: rng.randrange(3, len(data) + 1)] if rng.random() < 0.15 else data
