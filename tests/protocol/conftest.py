# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of in-network rails on real sockets."""

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
    """Return a job that needs the switch, which may have to resend results until the ranks leave."""
    del switch
    return StaticJob(RANKS, ina=[PLACE])
