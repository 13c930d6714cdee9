# SPDX-License-Identifier: Apache-2.0
"""IPv4 headers, half of them with a correct checksum."""

import random
import struct
from collections.abc import Iterator

from vectors.packets import numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(120)))


def packet(rng: random.Random) -> bytes:
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
