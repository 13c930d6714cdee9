# SPDX-License-Identifier: Apache-2.0
"""Keys near the entries. Between packets, some entries are deleted and others take their places."""

import random
from collections.abc import Iterator

from vectors.packets import numbered
from vectors.steps import Delete, DirectCounter, Insert, Modify, Packet, Step

PATTERNS = [
    ("0x1200/&0xff00", "1/&1", 10), ("0x1234/&0xffff", "0/&0", 20), ("0x0034/&0x00ff", "0/&0", 20),
    ("0x1000/&0xf000", "2/&2", 20), ("0x0000/&0x0000", "8/&8", 5), ("0x1234/&0xffff", "5/&15", 100),
]  # fmt: skip


def steps(rng: random.Random) -> Iterator[Step]:
    for number, (pattern, nibble, priority) in enumerate(PATTERNS):
        yield Insert("patterns", patterned(pattern, nibble), "t", {"x": number + 1}, priority)
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
        yield Insert("prefixes", match, "l", {"x": number + 1})
    for number, route in enumerate(
        ("0x0a000000/8", "0x0a0b0000/16", "0x0a0b0c0d/32", "0x0a0b0c00/23", "0x80000000/1")
    ):
        yield Insert("routes", {"h.k.route": route}, "g", {"x": number + 1})
    yield Insert("ranges", ranged("0x100...0x1ff", 1), "r", {"x": 1}, 10)
    yield Insert("ranges", ranged("0x180...0x2ff", 1) | {"h.k.pattern": "0x1200/&0xff00"}, "r", {"x": 2}, 30)
    yield Insert("ranges", ranged("0x0...0xfffff", 1) | {"h.k.route": "0x0a000000/8"}, "r", {"x": 3}, 20)
    yield Insert("ranges", ranged("0x1ff...0x1ff", 2), "r", {"x": 4}, 1)
    yield Insert("ranges", ranged("0x0...0x7ff", 2), "r", {"x": 5}, 1)
    yield Insert("ranges", ranged("0x10000...0xfffff", 2), "r", {"x": 6}, 2)
    for number, (value, valid) in enumerate(((0, 0), (0, 1), (7, 1), (0x1234, 1), (7, 0))):
        yield Insert("more", {"h.m.value": value, "valid": valid}, "m2", {"x": number + 1})
    yield Insert("gone", {"h.m.kind": 0, "valid": "0/&1"}, "v", {"x": 1}, 1)
    yield Insert("gone", {"h.m.kind": 0, "h.m.value": "0/&0xffff"}, "v", {"x": 2}, 2)
    yield Insert("gone", {"h.m.kind": 9, "valid": "1/&1"}, "v", {"x": 3}, 3)
    yield Insert("gone", {"h.m.kind": 9, "h.m.value": "7/&0xff"}, "v", {"x": 4}, 4)
    for number, match in enumerate(
        ({"h.k.exact1": 1}, {"h.k.nibble": 5}, {"h.k.exact1": 2, "h.k.nibble": 5}, {})
    ):
        yield Insert("maybe", match, "o", {"x": number + 1}, 10 + number if match else 1)
    low, high = "0x112233445566778899", "0xff"
    yield Insert(
        "wide", {"h.k.wide": "0x110000000000000099/&0xff00000000000000ff", "h.k.exact1": 1}, "w", {"x": 1}, 5
    )
    yield Insert("wide", {"h.k.wide": f"{low}/&{'0x' + 'f' * 18}", "h.k.exact1": 1}, "w", {"x": 2}, 9)
    yield Insert("wide", {"h.k.wide": f"{high}/&{high}", "h.k.exact1": 1}, "w", {"x": 3}, 7)
    yield from packets(rng, 100)
    # In BMv2, the lowest handle wins among equal priorities. A new entry gets the lowest free handle.
    yield Delete("patterns", patterned(*PATTERNS[1][:2]), 20)
    yield Insert("patterns", patterned("0x1230/&0xfff0", "0/&0"), "t", {"x": 30}, 20)
    yield Delete("patterns", patterned(*PATTERNS[2][:2]), 20)
    yield Delete("patterns", patterned(*PATTERNS[0][:2]), 10)
    yield Insert("patterns", patterned("0x0034/&0x00ff", "1/&1"), "t", {"x": 31}, 20)
    yield Modify("patterns", patterned(*PATTERNS[3][:2]), "t", {"x": 32}, 20)
    yield Delete("routes", {"h.k.route": "0x0a0b0000/16"})
    yield Delete("prefixes", {"h.k.exact1": 1, "h.k.prefix": "0xabc0/12"})
    yield from packets(rng, 60)
    yield DirectCounter("patterns", patterned(*PATTERNS[3][:2]), 20)
    yield DirectCounter("patterns", patterned(*PATTERNS[5][:2]), 100)
    yield DirectCounter("patterns", patterned("0x1230/&0xfff0", "0/&0"), 20)


def patterned(pattern: str, nibble: str) -> dict[str, str]:
    match = {"h.k.pattern": pattern, "h.k.nibble": nibble}
    return {name: value for name, value in match.items() if not value.endswith(("&0", "&0x0000"))}


def ranged(numbers: str, exact: int) -> dict[str, int | str]:
    return {"h.k.range1": numbers, "h.k.exact1": exact}


def packets(rng: random.Random, count: int) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(count)))


def packet(rng: random.Random) -> bytes:
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
