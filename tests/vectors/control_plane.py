# SPDX-License-Identifier: Apache-2.0
"""Steps for the programs that the control plane fills: tables, profiles, state, replication, CPU packets."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from vectors import steps as do
from vectors.packets import edges, numbered
from vectors.steps import Packet, Step

CPU_LOW, CPU_MIDDLE, CPU_HIGH = (
    0x1_0000_0000_0000_0005,
    0x1234_0000_0000_0000_0001,
    0xFFFF_FFFF_FFFF_FFFF_FFFF,
)


def cpu(rng: random.Random) -> Iterator[Step]:
    """Packets to port 510 come out, because it is an ordinary port to BMv2's gRPC data plane."""
    for key in range(3):
        yield do.insert("hosts", {"h.d.key": key}, "forward", {"port": key + 1})
    yield do.insert("wide", {}, "mark", {"x": 100}, 1)
    for number, (low, high, priority) in enumerate(
        (
            (CPU_LOW, CPU_MIDDLE, 5),
            (CPU_LOW + 1, CPU_LOW + 1, 9),
            (CPU_MIDDLE, CPU_HIGH, 3),
            (CPU_LOW - 1, CPU_LOW, 7),
        )
    ):
        yield do.insert("wide", {"h.d.wide": f"{low}...{high}"}, "mark", {"x": 101 + number}, priority)
    wides = [bound + step for bound in (CPU_LOW, CPU_MIDDLE) for step in (-1, 0, 1, 2)] + [0, CPU_HIGH]
    for _ in range(20):
        yield from numbered(2, (cpu_packet(rng, wide) for wide in rng.sample(wides, 4)))
        yield from numbered(510, [rng.randrange(1 << 16).to_bytes(2, "big") + cpu_packet(rng, 0)])


def cpu_packet(rng: random.Random, wide: int) -> bytes:
    return bytes([rng.randrange(5), rng.choice((0, 0, 0, 8, 255, 1, 7))]) + wide.to_bytes(10, "big")


SELECTORS_OUT = 7


def selectors(rng: random.Random) -> Iterator[Step]:
    """Members out of order, weights that make copies of members, and flows that spread over them."""
    for member, value in ((5, 50), (2, 20), (9, 90)):
        yield do.member("profile", member, "plain", {"x": value})
    yield do.member("profile", 7, "drop")
    for key, member in ((1, 5), (2, 2), (3, 9), (4, 7), (5, 5)):
        yield do.insert("plains", {"h.k.plain": key}, member=member)
    for member in (8, 3, 12, 1, 6):
        yield do.member("selector", member, "choose", {"x": 100 + member})
    yield do.member("selector", 20, "twice", {"x": 3})
    yield do.member("selector", 21, "drop")
    yield do.group("selector", 1, [(3, 1), (8, 1), (12, 1)])
    yield do.group("selector", 2, [(12, 2), (1, 3), (20, 1)], 8)
    yield do.group("selector", 3, [(6, 1)])
    yield do.group("selector", 4, [(8, 4), (6, 1), (21, 1), (20, 2)], 10)
    for key in (1, 2, 3, 4):
        yield do.insert("choices", {"h.k.chosen": key}, group=key)
    yield do.insert("choices", {"h.k.chosen": 9}, member=6)
    yield do.insert("shared", {"h.k.shared": "0x10/&0xf0"}, group=2, priority=10)
    yield do.insert("shared", {"h.k.shared": "0x11/&0xff"}, group=4, priority=20)
    yield do.insert("shared", {"h.k.shared": "0x12/&0xff"}, member=20, priority=30)
    once = [("once", {"x": 1}, 1), ("once", {"x": 2}, 3), ("drop", {}, 1), ("again", {"x": 4, "y": 40}, 2)]
    yield do.insert("sets", {"h.k.once": "0x80/1"}, one_shot=once)
    yield do.insert("sets", {"h.k.once": "0xC0/2"}, one_shot=[("once", {"x": 77}, 1)])
    yield from selectors_packets(rng, 120)
    # BMv2 uses free handles again, lowest first. So new entries lie between old entries.
    yield do.delete("sets", {"h.k.once": "0x80/1"})
    yield do.insert("sets", {"h.k.once": "0x40/2"}, one_shot=[("once", {"x": 9}, 2), ("once", {"x": 8}, 1)])
    yield do.insert("sets", {"h.k.once": "0x80/1"}, one_shot=[("once", {"x": 5}, 4), ("once", {"x": 6}, 4)])
    yield do.group("selector", 5, [(1, 1), (3, 2), (6, 2)], 6)
    yield do.insert("choices", {"h.k.chosen": 5}, group=5)
    yield from selectors_packets(rng, 80)


def selectors_packets(rng: random.Random, count: int) -> Iterator[Packet]:
    return numbered(1, (selectors_packet(rng) for _ in range(count)))


def selectors_packet(rng: random.Random) -> bytes:
    plain, chosen = rng.choice((1, 2, 3, 5, 1, 2, 4, 8)), rng.choice((1, 2, 3, 4, 5, 9, 7))
    shared = rng.choice((0x10, 0x11, 0x12, 0x13, 0x20))
    once = rng.choice((0x80, 0xC1, 0x41, 0xBF, 0x01))
    flow, odd = rng.randrange(1 << 16), rng.randrange(256)
    return struct.pack(">BBBBHB", plain, chosen, shared, once, flow, odd) + bytes(SELECTORS_OUT)


CELLS_OUT = 63  # bytes


def cells(rng: random.Random) -> Iterator[Step]:
    """Indexes within and beyond the arrays, and meters before and after their configuration."""
    for key in range(4):
        yield do.insert("counted", {"h.i.key": key}, "hit", {"x": key + 1})
    yield from numbered(1, (cells_packet(rng) for _ in range(60)))
    yield do.meter("police", 1, 1_000_000_000, 1_000_000, 2_000_000_000, 2_000_000)
    yield do.meter("police", 2, 0, 0, 1_000_000_000, 1_000_000)
    yield do.meter("police", 3, 0, 0, 0, 0)
    yield do.direct_meter("counted", {"h.i.key": 1}, 0, 0, 1_000_000_000, 1_000_000)
    yield do.direct_meter("counted", {"h.i.key": 2}, 0, 50, 0, 110)
    yield from numbered(1, (cells_packet(rng) for _ in range(60)))
    for index in range(4):
        yield do.counter("packets", index)
        yield do.counter("bytes", index)
        yield do.counter("both", index)
        yield do.direct_counter("counted", {"h.i.key": index})


def cells_packet(rng: random.Random) -> bytes:
    index, key = rng.choice((0, 1, 2, 3, 3, 4, 5, 6, 255)), rng.randrange(6)
    return bytes([index, key]) + edges(rng, 9) + bytes(CELLS_OUT) + bytes(rng.choice((0, 3, 40)))


def state(rng: random.Random) -> Iterator[Packet]:
    """IPv4 headers, half of them with a correct checksum."""
    return numbered(1, (state_packet(rng) for _ in range(120)))


def state_packet(rng: random.Random) -> bytes:
    ttl, protocol = rng.choice((3, 64, 1, 0)), rng.choice((17, 6, 200, 201))
    header = struct.pack(
        ">BBHHHBBHII", 0x45, rng.randrange(256), rng.randrange(1 << 16), rng.randrange(1 << 16),
        rng.randrange(1 << 16), ttl, protocol, 0, rng.randrange(1 << 32), rng.randrange(4),
    )  # fmt: skip
    total = sum(struct.unpack(">10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    checksum = 0xFFFF ^ total ^ (rng.random() < 0.5)
    header = header[:10] + checksum.to_bytes(2, "big") + header[12:]
    out = bytes(49 - 1) + bytes([rng.choice((0, 1, 7, 8, 255))])
    return header + (out if rng.random() < 0.95 else out[:9]) + rng.randbytes(rng.randrange(9))


ADDRESSES = (0x0A0B0C0D, 0x0A0B0C0E, 0x0A0B0D00, 0x0A990000, 0x0B000000)


def control(rng: random.Random) -> Iterator[Step]:
    """Tables of every kind filled at run time, multicast, clones, a meter whose bucket runs dry."""
    for value, length in ((0x0A000000, 8), (0x0A0B0000, 16), (0x0A0B0C0D, 32), (0x0A0B0C00, 24)):
        yield do.insert("routes", {"h.h.address": f"{value}/{length}"}, "forward", {"port": length + 1})
    rules = (
        (10, 1, {"h.h.address": "0x0A000000/&0xFF000000", "h.h.number": "0...100"}),
        (20, 2, {"h.h.number": "50...60"}),
        (5, 3, {"h.h.group": 7}),
    )
    for priority, port, match in rules:
        yield do.insert("rules", match, "forward", {"port": port}, priority)
    for number, address in enumerate(ADDRESSES[:4]):
        yield do.insert("hosts", {"h.h.address": address}, "forward", {"port": number + 4})
    yield do.multicast(5, [(1, 1), (2, 7), (2, 8), (3, 0)])
    yield do.clone_session(100, [(6, 0)])
    yield do.clone_session(200, [(7, 0)])
    yield do.meter("police", 1, 1, 3, 1, 6)
    yield from control_packets(rng, 100)
    yield do.modify("hosts", {"h.h.address": ADDRESSES[0]}, "forward", {"port": 9})
    yield do.delete("routes", {"h.h.address": "0x0A0B0C00/24"})
    yield do.delete("rules", {"h.h.number": "50...60"}, 20)
    yield do.default("hosts", "forward", {"port": 2})
    yield from control_packets(rng, 60)
    for index in range(4):
        yield do.counter("seen", index)
    for address in ADDRESSES[:4]:
        yield do.direct_counter("hosts", {"h.h.address": address})


def control_packets(rng: random.Random, count: int) -> Iterator[Packet]:
    for number in range(count):
        kind = rng.choice((0, 0, 1, 1, 2, 2, 3, 4, 5, 8))
        few = rng.choice((1, 3)) if kind == 8 else rng.choice((0, 1, 50, 55, 100, 101)) if kind == 1 else 1
        header = struct.pack(">BIHB", kind, rng.choice(ADDRESSES), few, rng.choice((5, 7, 6)))
        yield Packet(rng.choice((1, 2)), (header + bytes(number % 20) + bytes([number])).hex())


def flow(rng: random.Random) -> Iterator[Step]:
    """Every branch, with entries that lead to each action."""
    for table in ("first", "second", "third", "fourth"):
        yield from flow_entries(rng, table)
    yield from numbered(1, (flow_packet(rng) for _ in range(150)))


def flow_entries(rng: random.Random, table: str) -> Iterator[Step]:
    for key in range(8):
        match = {"h.op.key": key}
        if key < 3:
            yield do.insert(table, match, "red", {"value": 0xAAA0 + key})
        elif key < 6:
            yield do.insert(table, match, "green", {"wide": rng.getrandbits(72), "stop": int(key == 4)})
        else:
            yield do.insert(table, match, "blue" if key == 6 else "NoAction")


def flow_packet(rng: random.Random) -> bytes:
    what = rng.choice((*range(1, 11), 0x11, 0x12, 0x33))
    key = rng.choice((*range(10), 19, 20, 21, 200, 255))
    return bytes([what, key]) + rng.randbytes(2) + bytes(4) + bytes([rng.choice((0, 3, 4))])


LOOKUP_PATTERNS = [
    ("0x1200/&0xff00", "1/&1", 10), ("0x1234/&0xffff", "0/&0", 20), ("0x0034/&0x00ff", "0/&0", 20),
    ("0x1000/&0xf000", "2/&2", 20), ("0x0000/&0x0000", "8/&8", 5), ("0x1234/&0xffff", "5/&15", 100),
]  # fmt: skip


def lookup(rng: random.Random) -> Iterator[Step]:
    """Keys near the entries. Between packets, some entries are deleted and others take their places."""
    for number, (pattern, nibble, priority) in enumerate(LOOKUP_PATTERNS):
        yield do.insert("patterns", lookup_patterned(pattern, nibble), "t", {"x": number + 1}, priority)
    for number, (exact, prefix) in enumerate(
        (
            (1, "0xabcd/16"),
            (1, "0xabc0/12"),
            (1, "0xa800/5"),
            (1, "0xa000/3"),
            (2, "0xab00/8"),
            (1, "0x8000/1"),
            (3, "0x0/0"),
        )
    ):
        match = {"h.k.exact1": exact} | ({} if prefix == "0x0/0" else {"h.k.prefix": prefix})
        yield do.insert("prefixes", match, "l", {"x": number + 1})
    for number, route in enumerate(
        ("0x0a000000/8", "0x0a0b0000/16", "0x0a0b0c0d/32", "0x0a0b0c00/23", "0x80000000/1")
    ):
        yield do.insert("routes", {"h.k.route": route}, "g", {"x": number + 1})
    yield do.insert("ranges", lookup_ranged("0x100...0x1ff", 1), "r", {"x": 1}, 10)
    yield do.insert(
        "ranges", lookup_ranged("0x180...0x2ff", 1) | {"h.k.pattern": "0x1200/&0xff00"}, "r", {"x": 2}, 30
    )
    yield do.insert(
        "ranges", lookup_ranged("0x0...0xfffff", 1) | {"h.k.route": "0x0a000000/8"}, "r", {"x": 3}, 20
    )
    yield do.insert("ranges", lookup_ranged("0x1ff...0x1ff", 2), "r", {"x": 4}, 1)
    yield do.insert("ranges", lookup_ranged("0x0...0x7ff", 2), "r", {"x": 5}, 1)
    yield do.insert("ranges", lookup_ranged("0x10000...0xfffff", 2), "r", {"x": 6}, 2)
    for number, (value, valid) in enumerate(((0, 0), (0, 1), (7, 1), (0x1234, 1), (7, 0))):
        yield do.insert("more", {"h.m.value": value, "valid": valid}, "m2", {"x": number + 1})
    yield do.insert("gone", {"h.m.kind": 0, "valid": "0/&1"}, "v", {"x": 1}, 1)
    yield do.insert("gone", {"h.m.kind": 0, "h.m.value": "0/&0xffff"}, "v", {"x": 2}, 2)
    yield do.insert("gone", {"h.m.kind": 9, "valid": "1/&1"}, "v", {"x": 3}, 3)
    yield do.insert("gone", {"h.m.kind": 9, "h.m.value": "7/&0xff"}, "v", {"x": 4}, 4)
    for number, match in enumerate(
        ({"h.k.exact1": 1}, {"h.k.nibble": 5}, {"h.k.exact1": 2, "h.k.nibble": 5}, {})
    ):
        yield do.insert("maybe", match, "o", {"x": number + 1}, 10 + number if match else 1)
    low, high = "0x112233445566778899", "0xff"
    yield do.insert(
        "wide", {"h.k.wide": "0x110000000000000099/&0xff00000000000000ff", "h.k.exact1": 1}, "w", {"x": 1}, 5
    )
    yield do.insert("wide", {"h.k.wide": f"{low}/&{'0x' + 'f' * 18}", "h.k.exact1": 1}, "w", {"x": 2}, 9)
    yield do.insert("wide", {"h.k.wide": f"{high}/&{high}", "h.k.exact1": 1}, "w", {"x": 3}, 7)
    yield from lookup_packets(rng, 100)
    # In BMv2, the lowest handle wins among equal priorities. A new entry gets the lowest free handle.
    yield do.delete("patterns", lookup_patterned(*LOOKUP_PATTERNS[1][:2]), 20)
    yield do.insert("patterns", lookup_patterned("0x1230/&0xfff0", "0/&0"), "t", {"x": 30}, 20)
    yield do.delete("patterns", lookup_patterned(*LOOKUP_PATTERNS[2][:2]), 20)
    yield do.delete("patterns", lookup_patterned(*LOOKUP_PATTERNS[0][:2]), 10)
    yield do.insert("patterns", lookup_patterned("0x0034/&0x00ff", "1/&1"), "t", {"x": 31}, 20)
    yield do.modify("patterns", lookup_patterned(*LOOKUP_PATTERNS[3][:2]), "t", {"x": 32}, 20)
    yield do.delete("routes", {"h.k.route": "0x0a0b0000/16"})
    yield do.delete("prefixes", {"h.k.exact1": 1, "h.k.prefix": "0xabc0/12"})
    yield from lookup_packets(rng, 60)
    yield do.direct_counter("patterns", lookup_patterned(*LOOKUP_PATTERNS[3][:2]), 20)
    yield do.direct_counter("patterns", lookup_patterned(*LOOKUP_PATTERNS[5][:2]), 100)
    yield do.direct_counter("patterns", lookup_patterned("0x1230/&0xfff0", "0/&0"), 20)


def lookup_patterned(pattern: str, nibble: str) -> dict[str, str]:
    match = {"h.k.pattern": pattern, "h.k.nibble": nibble}
    return {name: value for name, value in match.items() if not value.endswith(("&0", "&0x0000"))}


def lookup_ranged(numbers: str, exact: int) -> dict[str, int | str]:
    return {"h.k.range1": numbers, "h.k.exact1": exact}


def lookup_packets(rng: random.Random, count: int) -> Iterator[Packet]:
    return numbered(1, (lookup_packet(rng) for _ in range(count)))


def lookup_packet(rng: random.Random) -> bytes:
    pad = rng.randrange(4)
    key = rng.choice((0x1234, 0x1234, 0x1200, 0x5534, 0x1FFF, 0x1235, 0))
    key = key << 16 | rng.choice((0xABCD, 0xABCE, 0xABD0, 0xA810, 0xA000, 0xBFFF, 0x7FFF))
    key = key << 4 | rng.choice((5, 1, 2, 10, 15, 0))
    key = key << 4 | pad
    key = key << 32 | rng.choice((0x0A0B0C0D, 0x0A0B0D0D, 0x0A0B0E01, 0x0AFFFFFF, 0x80000000, 0x7F000000))
    key = key << 24 | rng.choice((0x100, 0x17F, 0x180, 0x1FF, 0x200, 0x2FF, 0x300, 0xFFFFF, 0x10000, 0x7FF))
    key = key << 8 | rng.choice((1, 1, 1, 2, 2, 3))
    wide = (0x112233445566778899, 0x112233445566778800, 0x110000000000000099, 0x1122334455667788FF, 0x11FF)
    key = key << 72 | rng.choice(wide)
    more = b"" if pad & 1 else bytes([rng.choice((0, 9))]) + rng.choice((0, 7, 0x1234)).to_bytes(2, "big")
    return key.to_bytes(22, "big") + more + bytes(9)


def tables(rng: random.Random) -> Iterator[Packet]:
    """Keys near those of the program's own entries."""
    return numbered(1, (tables_packet(rng) for _ in range(120)))


def tables_packet(rng: random.Random) -> bytes:
    exact1 = rng.choice((1, 1, 1, 2, 3, 7, 8, 9))
    exact2 = rng.choice((1, 2, 3, 0xFFFF))
    prefix = rng.choice((0x0A0B0C0D, 0x0A0B0C0E, 0x0A0B0000, 0x0A000001, 0x0B000000))
    pattern = rng.choice((0x1234, 0x1200, 0x5534, 0xFFFF, 0))
    number = rng.choice((0, 9, 10, 49, 50, 99, 100, 1000, 1001, 0xFFEF, 0xFFF0, 0xFFFF))
    maybe = rng.choice((7, 8, 9))
    wide = rng.choice((bytes(range(1, 13)), bytes(12), bytes(range(1, 12)) + b"\x0d"))
    key = struct.pack(">BHIHHB", exact1, exact2, prefix, pattern, number, maybe) + wide
    return key + (bytes(8) if rng.random() < 0.8 else b"") + bytes(rng.randrange(3))


DO = 0x8000
TRACE = 25


def paths(rng: random.Random) -> Iterator[Step]:
    """Every path alone, then random combinations. Session 4 and group 9 do not exist."""
    yield do.clone_session(1, [(3, 0)])
    yield do.clone_session(2, [(3, 5), (4, 5), (4, 6), (3, 7)])
    yield do.clone_session(3, [(1, 0), (511, 1)])
    yield do.multicast(5, [(1, 0), (2, 0), (5, 0)])
    yield do.multicast(6, [(2, 11), (2, 12), (1, 300), (7, 11)])
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
    yield from numbered(2, (paths_packet(rng, **way) for way in alone))
    yield from numbered(7, (paths_packet(rng, **way) for way in alone))
    yield from numbered(2, (paths_packet(rng, **paths_some(rng)) for _ in range(80)))


def paths_packet(rng: random.Random, **way: int) -> bytes:
    names = ("clone_ingress", "clone_egress", "resubmit", "recirculate")
    first = struct.pack(">HHBB", *(way.get(name, 0) for name in names))
    names = ("cut_ingress", "cut_egress", "group", "port", "flags")
    values = {"port": 1} | way
    second = struct.pack(">HHHBB", *(values.get(name, 0) for name in names))
    return first + second + bytes(TRACE) + rng.randbytes(rng.choice((3, 8, 20)))


def paths_some(rng: random.Random) -> dict[str, int]:
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
