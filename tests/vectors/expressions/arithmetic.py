# SPDX-License-Identifier: Apache-2.0
"""Packets with operands and space for results."""

import random
from collections.abc import Iterator

from vectors.packets import edges, numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(120)))


def packet(rng: random.Random) -> bytes:
    operands = b"".join(edges(rng, size) for size in (2, 8, 16, 32, 10))
    if rng.random() < 0.2:
        operands = operands[:10] + operands[10:18] * 2 + operands[26:42] * 2 + operands[58:]
    return operands + bytes(6 + 32 + 48 + 112 + 4 + 16 + 2)
