# SPDX-License-Identifier: Apache-2.0
"""Every path alone, then random combinations. Session 4 and group 9 do not exist."""

import random
import struct
from collections.abc import Iterator

from vectors.packets import numbered
from vectors.steps import CloneSession, Multicast, Step

DO = 0x8000
TRACE = 25


def steps(rng: random.Random) -> Iterator[Step]:
    yield CloneSession(1, [(3, 0)])
    yield CloneSession(2, [(3, 5), (4, 5), (4, 6), (3, 7)])
    yield CloneSession(3, [(1, 0), (511, 1)])
    yield Multicast(5, [(1, 0), (2, 0), (5, 0)])
    yield Multicast(6, [(2, 11), (2, 12), (1, 300), (7, 11)])
    alone = [
        {"clone_ingress": DO | 1}, {"clone_ingress": DO | 0x102}, {"clone_ingress": DO | 0x202},
        {"clone_ingress": DO | 3}, {"clone_ingress": DO | 4}, {"clone_egress": DO | 1},
        {"clone_egress": DO | 0x102}, {"clone_egress": DO | 0x203}, {"clone_egress": DO | 4},
        {"resubmit": 0x23}, {"resubmit": 0x32}, {"recirculate": 0x13}, {"recirculate": 0x32},
        {"cut_ingress": 20}, {"cut_egress": 45}, {"cut_ingress": 50, "cut_egress": 44}, {"cut_egress": 9000},
        {"group": 5}, {"group": 6}, {"group": 9}, {"group": 5, "flags": 1}, {"group": 6, "flags": 2},
        {"group": 5, "flags": 0x40}, {"group": 5, "cut_ingress": 20}, {"group": 6, "cut_egress": 20},
        {"flags": 1}, {"flags": 2}, {"flags": 4}, {"flags": 8}, {"flags": 0x10}, {"flags": 0x20},
        {"flags": 1, "clone_ingress": DO | 1}, {"flags": 8, "clone_egress": DO | 1},
        {"flags": 1, "resubmit": 0x21}, {"flags": 8, "recirculate": 0x11},
        {"recirculate": 0x11, "cut_egress": 41}, {"recirculate": 0x11, "cut_ingress": 41},
        {"recirculate": 0x11, "clone_egress": DO | 0x102}, {"recirculate": 0x12, "group": 6},
        {"resubmit": 0x22, "clone_ingress": DO | 0x202}, {"resubmit": 0x21, "group": 6},
        {"group": 6, "clone_ingress": DO | 2}, {"group": 5, "clone_egress": DO | 1},
        {"cut_ingress": 20, "clone_ingress": DO | 1}, {"cut_egress": 20, "clone_egress": DO | 1},
        {"port": 511 & 0xFF}, {"flags": 0x14, "clone_ingress": DO | 1, "recirculate": 0x31},
    ]  # fmt: skip
    yield from numbered(2, (packet(rng, **way) for way in alone))
    yield from numbered(7, (packet(rng, **way) for way in alone))
    yield from numbered(2, (packet(rng, **some(rng)) for _ in range(80)))


def packet(rng: random.Random, **way: int) -> bytes:
    names = ("clone_ingress", "clone_egress", "resubmit", "recirculate")
    first = struct.pack(">HHBB", *(way.get(name, 0) for name in names))
    names = ("cut_ingress", "cut_egress", "group", "port", "flags")
    values = {"port": 1} | way
    second = struct.pack(">HHHBB", *(values.get(name, 0) for name in names))
    return first + second + bytes(TRACE) + rng.randbytes(rng.choice((3, 8, 20)))


def some(rng: random.Random) -> dict[str, int]:
    choices = {
        "clone_ingress": (DO | 1, DO | 0x102, DO | 0x203),
        "clone_egress": (DO | 1, DO | 0x202),
        "resubmit": (0x21, 0x33),
        "recirculate": (0x11, 0x32),
        "cut_ingress": (30, 45),
        "cut_egress": (40, 60),
        "group": (5, 6),
        "port": (2, 3),
        "flags": (0x01, 0x04, 0x08, 0x10, 0x20, 0x40),
    }
    chosen = {name: rng.choice(values) for name, values in choices.items() if rng.random() < 0.3}
    if "clone_egress" in chosen:  # its order with other packets at its port is undefined
        for other in ("group", "clone_ingress", "recirculate"):
            chosen.pop(other, None)
    return chosen
