# SPDX-License-Identifier: Apache-2.0
"""All digests differ, because BMv2 holds back equal digests that were not acknowledged."""

import random
import struct
from collections.abc import Iterator

from vectors.packets import edges
from vectors.steps import Digests, Packet, Step

DROPS = True


def steps(rng: random.Random) -> Iterator[Step]:
    for number in range(48):
        kind = rng.randrange(128)
        head = edges(rng, 6) + struct.pack(">H", rng.randrange(512) << 7 | kind)
        yield Packet(rng.choice((1, 2, 400)), (head + edges(rng, 16) + struct.pack(">H", number)).hex())
        if number % 24 == 23:  # digests of the other list are discarded
            yield Digests("learn_t" if number < 24 else "other_t")
