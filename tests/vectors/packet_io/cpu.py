# SPDX-License-Identifier: Apache-2.0
"""Packets to port 510 come out, because it is an ordinary port to BMv2's gRPC data plane."""

import random
from collections.abc import Iterator

from vectors.packets import numbered
from vectors.steps import Insert, Step

LOW, MIDDLE, HIGH = 0x1_0000_0000_0000_0005, 0x1234_0000_0000_0000_0001, 0xFFFF_FFFF_FFFF_FFFF_FFFF


def steps(rng: random.Random) -> Iterator[Step]:
    for key in range(3):
        yield Insert("hosts", {"h.d.key": key}, "forward", {"port": key + 1})
    yield Insert("wide", {}, "mark", {"x": 100}, 1)
    for number, (low, high, priority) in enumerate(
        ((LOW, MIDDLE, 5), (LOW + 1, LOW + 1, 9), (MIDDLE, HIGH, 3), (LOW - 1, LOW, 7))
    ):
        yield Insert("wide", {"h.d.wide": f"{low}...{high}"}, "mark", {"x": 101 + number}, priority)
    wides = [bound + step for bound in (LOW, MIDDLE) for step in (-1, 0, 1, 2)] + [0, HIGH]
    for _ in range(20):
        yield from numbered(2, (packet(rng, wide) for wide in rng.sample(wides, 4)))
        yield from numbered(510, [rng.randrange(1 << 16).to_bytes(2, "big") + packet(rng, 0)])


def packet(rng: random.Random, wide: int) -> bytes:
    return bytes([rng.randrange(5), rng.choice((0, 0, 0, 8, 255, 1, 7))]) + wide.to_bytes(10, "big")
