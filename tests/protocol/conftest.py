# SPDX-License-Identifier: Apache-2.0
"""What tests of in-network rails on real sockets share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from protocol.jobs import StaticJob
from protocol.loopback_switch import ADDRESS, PLACE, LoopbackSwitch

RANKS = 3


@pytest.fixture
def switch() -> Iterator[LoopbackSwitch]:
    served = LoopbackSwitch(ADDRESS, RANKS)
    yield served
    served.close()


@pytest.fixture
def job(switch: LoopbackSwitch) -> StaticJob:
    """Ranks that meet before they leave: what the switch has for one of them, it may still have to resend."""
    del switch
    return StaticJob(RANKS, ina=[PLACE])
