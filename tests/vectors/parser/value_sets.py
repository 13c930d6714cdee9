# SPDX-License-Identifier: Apache-2.0
"""Empty value sets, because BMv2's P4Runtime cannot fill them. Unit tests fill value sets."""

import random
from collections.abc import Iterator

from vectors.packets import numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(20)))


def packet(rng: random.Random) -> bytes:
    return bytes([rng.choice((0, 1, 0x10, 0xFF))]) + rng.randbytes(13)
