# SPDX-License-Identifier: Apache-2.0
"""Tables of every kind filled at run time, multicast, clones, a meter whose bucket runs dry."""

import random
import struct
from collections.abc import Iterator

from vectors.steps import (
    CloneSession,
    Counter,
    Default,
    Delete,
    DirectCounter,
    Insert,
    Meter,
    Modify,
    Multicast,
    Packet,
    Step,
)

ADDRESSES = (0x0A0B0C0D, 0x0A0B0C0E, 0x0A0B0D00, 0x0A990000, 0x0B000000)
DROPS = True  # a miss drops the packet


def steps(rng: random.Random) -> Iterator[Step]:
    for value, length in ((0x0A000000, 8), (0x0A0B0000, 16), (0x0A0B0C0D, 32), (0x0A0B0C00, 24)):
        yield Insert("routes", {"h.h.address": f"{value}/{length}"}, "forward", {"port": length + 1})
    rules = (
        (10, 1, {"h.h.address": "0x0A000000/&0xFF000000", "h.h.number": "0...100"}),
        (20, 2, {"h.h.number": "50...60"}),
        (5, 3, {"h.h.group": 7}),
    )
    for priority, port, match in rules:
        yield Insert("rules", match, "forward", {"port": port}, priority)
    for number, address in enumerate(ADDRESSES[:4]):
        yield Insert("hosts", {"h.h.address": address}, "forward", {"port": number + 4})
    yield Multicast(5, [(1, 1), (2, 7), (2, 8), (3, 0)])
    yield CloneSession(100, [(6, 0)])
    yield CloneSession(200, [(7, 0)])
    yield Meter("police", 1, 1, 3, 1, 6)
    yield from packets(rng, 100)
    yield Modify("hosts", {"h.h.address": ADDRESSES[0]}, "forward", {"port": 9})
    yield Delete("routes", {"h.h.address": "0x0A0B0C00/24"})
    yield Delete("rules", {"h.h.number": "50...60"}, 20)
    yield Default("hosts", "forward", {"port": 2})
    yield from packets(rng, 60)
    for index in range(4):
        yield Counter("seen", index)
    for address in ADDRESSES[:4]:
        yield DirectCounter("hosts", {"h.h.address": address})


def packets(rng: random.Random, count: int) -> Iterator[Packet]:
    for number in range(count):
        kind = rng.choice((0, 0, 1, 1, 2, 2, 3, 4, 5, 8))
        few = rng.choice((1, 3)) if kind == 8 else rng.choice((0, 1, 50, 55, 100, 101)) if kind == 1 else 1
        header = struct.pack(">BIHB", kind, rng.choice(ADDRESSES), few, rng.choice((5, 7, 6)))
        yield Packet(rng.choice((1, 2)), (header + bytes(number % 20) + bytes([number])).hex())
