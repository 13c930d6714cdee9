# SPDX-License-Identifier: Apache-2.0
"""Calls of a StripedJob, for tests of its learning."""

from __future__ import annotations

import pytest

from railweave.experiments.striping.virtual import StripedJob, Taken, VirtualRail, ideal_shares

LARGE = 1 << 20  # elements: 4 MiB
SMALL_BYTES = 64 << 10  # up to this size, latency is most of a call's time
SMALL = 256
COMPARING = 1200  # calls in which a job finds out whether to alternate between rails
WITHIN = 20  # calls in which a job must find a split, also after a change


def tcp(rate: float = 8e6, a_s: float = 0.0006) -> VirtualRail:
    return VirtualRail(a_s, rate)


def calls(job: StripedJob, times: int, count: int = LARGE) -> list[Taken]:
    return [job.call(count) for _ in range(times)]


def assert_split(taken: Taken, rails: list[VirtualRail], count: int = LARGE, within: float = 0.05) -> None:
    ideal = ideal_shares(rails, count * 4)
    shares = taken.shares()
    for rail in range(len(rails)):
        assert shares.get(rail, 0.0) == pytest.approx(ideal.get(rail, 0.0), abs=within * max(ideal.values()))
