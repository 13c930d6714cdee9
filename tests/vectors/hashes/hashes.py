# SPDX-License-Identifier: Apache-2.0
"""Random and extreme inputs with payloads of even and odd length; half of the checksums are right."""

import random
import struct
from collections.abc import Iterator

from vectors.packets import edges
from vectors.steps import Packet

IN, MORE, OUT = 34, 6, 46


def steps(rng: random.Random) -> Iterator[Packet]:
    for _ in range(120):
        yield Packet(1, packet(rng).hex())


def packet(rng: random.Random) -> bytes:
    kind = rng.randrange(32)
    given = edges(rng, IN - 1) + bytes([kind])
    more = edges(rng, MORE) if kind & 1 else b""
    payload = edges(rng, rng.choice((0, 1, 2, 7, 30)))
    words = given[2:8] + given[9:17] + payload
    words += bytes(len(words) % 2)
    total = sum(struct.unpack(f">{len(words) // 2}H", words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    one = 0xFFFF ^ total ^ (rng.random() < 0.5)
    first, second = given[:2], more[:2] if more else bytes(2)
    two = int.from_bytes(first) ^ int.from_bytes(second) ^ (rng.random() < 0.5)
    return given + more + bytes(OUT) + struct.pack(">HHIH", one, two, 0, 0) + payload
