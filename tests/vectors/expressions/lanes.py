# SPDX-License-Identifier: Apache-2.0
"""Every reduction that the lowering fuses, on values near each other and at the edges."""

import random
import struct
from collections.abc import Iterator

from vectors.packets import edges
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    for _ in range(150):
        slot = rng.choice((0, 1, 63, 64, 0xFFFF)) if rng.random() < 0.3 else rng.randrange(3)
        yield Packet(1, (struct.pack(">BH", rng.randrange(9), slot) + edges(rng, 4 * 16) + b"end").hex())
