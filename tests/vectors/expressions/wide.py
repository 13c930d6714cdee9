# SPDX-License-Identifier: Apache-2.0
"""Operands with edge values: equal, all ones, signs, and shifts beyond the width."""

import random
from collections.abc import Iterator

from vectors.packets import edges, numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(30)))


def packet(rng: random.Random) -> bytes:
    first, second = rng.choice((pair(rng, 512), pair(rng, 512), (0, 1), (1 << 511, (1 << 512) - 1)))
    shift = rng.choice((0, 1, 63, 64, 65, 127, 128, 255, rng.randrange(256)))
    narrow = rng.choice((edges(rng, 17), b"\xff" * 17, bytes(17), b"\x80" + bytes(7) + b"\x40" + bytes(8)))
    data = narrow + edges(rng, 1) + first.to_bytes(64, "big") + second.to_bytes(64, "big")
    return data + bytes([shift]) + edges(rng, 256) + edges(rng, 256) + bytes(899)


def pair(rng: random.Random, bits: int) -> tuple[int, int]:
    value = int.from_bytes(edges(rng, bits // 8), "big")
    return value, rng.choice((value, value ^ 1, int.from_bytes(edges(rng, bits // 8), "big")))
