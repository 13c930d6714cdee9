# SPDX-License-Identifier: Apache-2.0
"""Members out of order, weights that make copies of members, and flows that spread over them."""

import random
import struct
from collections.abc import Iterator

from vectors.packets import numbered
from vectors.steps import Delete, Group, Insert, Member, Packet, Step

OUT = 7


def steps(rng: random.Random) -> Iterator[Step]:
    for member, value in ((5, 50), (2, 20), (9, 90)):
        yield Member("profile", member, "plain", {"x": value})
    yield Member("profile", 7, "drop")
    for key, member in ((1, 5), (2, 2), (3, 9), (4, 7), (5, 5)):
        yield Insert("plains", {"h.k.plain": key}, member=member)
    for member in (8, 3, 12, 1, 6):
        yield Member("selector", member, "choose", {"x": 100 + member})
    yield Member("selector", 20, "twice", {"x": 3})
    yield Member("selector", 21, "drop")
    yield Group("selector", 1, [(3, 1), (8, 1), (12, 1)])
    yield Group("selector", 2, [(12, 2), (1, 3), (20, 1)], 8)
    yield Group("selector", 3, [(6, 1)])
    yield Group("selector", 4, [(8, 4), (6, 1), (21, 1), (20, 2)], 10)
    for key in (1, 2, 3, 4):
        yield Insert("choices", {"h.k.chosen": key}, group=key)
    yield Insert("choices", {"h.k.chosen": 9}, member=6)
    yield Insert("shared", {"h.k.shared": "0x10/&0xf0"}, group=2, priority=10)
    yield Insert("shared", {"h.k.shared": "0x11/&0xff"}, group=4, priority=20)
    yield Insert("shared", {"h.k.shared": "0x12/&0xff"}, member=20, priority=30)
    once = [("once", {"x": 1}, 1), ("once", {"x": 2}, 3), ("drop", {}, 1), ("again", {"x": 4, "y": 40}, 2)]
    yield Insert("sets", {"h.k.once": "0x80/1"}, one_shot=once)
    yield Insert("sets", {"h.k.once": "0xC0/2"}, one_shot=[("once", {"x": 77}, 1)])
    yield from packets(rng, 120)
    # BMv2 uses free handles again, lowest first. So new entries lie between old entries.
    yield Delete("sets", {"h.k.once": "0x80/1"})
    yield Insert("sets", {"h.k.once": "0x40/2"}, one_shot=[("once", {"x": 9}, 2), ("once", {"x": 8}, 1)])
    yield Insert("sets", {"h.k.once": "0x80/1"}, one_shot=[("once", {"x": 5}, 4), ("once", {"x": 6}, 4)])
    yield Group("selector", 5, [(1, 1), (3, 2), (6, 2)], 6)
    yield Insert("choices", {"h.k.chosen": 5}, group=5)
    yield from packets(rng, 80)


def packets(rng: random.Random, count: int) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(count)))


def packet(rng: random.Random) -> bytes:
    plain, chosen = rng.choice((1, 2, 3, 5, 1, 2, 4, 8)), rng.choice((1, 2, 3, 4, 5, 9, 7))
    shared = rng.choice((0x10, 0x11, 0x12, 0x13, 0x20))
    once = rng.choice((0x80, 0xC1, 0x41, 0xBF, 0x01))
    flow, odd = rng.randrange(1 << 16), rng.randrange(256)
    return struct.pack(">BBBBHB", plain, chosen, shared, once, flow, odd) + bytes(OUT)
