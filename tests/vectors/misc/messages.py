# SPDX-License-Identifier: Apache-2.0
"""Packets for which all assertions hold, because BMv2 ends at a failed assertion."""

import random
from collections.abc import Iterator

from vectors.packets import edges, numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (bytes([rng.randrange(100)]) + edges(rng, 11) for _ in range(20)))
