# SPDX-License-Identifier: Apache-2.0
"""Calls of a StripedJob, for tests of its learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from railweave._native.collectives import Collective
from railweave.experiments.striping.virtual import StripedJob, Taken, VirtualRail
from railweave.hosts.limits import limit_bps

LARGE = 1 << 20  # elements: 4 MiB
SMALL_BYTES = 64 << 10  # up to this size, latency is most of a call's time
SMALL = 256
COMPARING = 1200  # calls in which a job finds out whether to alternate between rails
WITHIN = 20  # calls in which a job must find a split, also after a change


def tcp(rate: float = 8e6, a_s: float = 0.0006) -> VirtualRail:
    return VirtualRail(a_s, rate)


def link_rails(
    rate_bps: int, hosts: int, collective: Collective = Collective.ALL_REDUCE
) -> list[VirtualRail]:
    """Return rails of three kinds that carry most of what their links allow."""
    latencies = {"ina": 0.0004, "tcp": 0.0012, "rdma": 0.0016}
    used = {"ina": 0.97, "tcp": 0.93, "rdma": 0.85}
    return [
        VirtualRail(a_s, used[kind] * limit_bps(kind, rate_bps, hosts, collective=collective) / 8, kind)
        for kind, a_s in latencies.items()
    ]


def ideal_shares(rails: Sequence[VirtualRail], size: int) -> Mapping[int, float]:
    """Return the fastest split, found by bisection. The striper uses a different method."""
    low, high = 0.0, max(rail.time_s(size, len(rails) > 1) for rail in rails)
    carried: list[float] = []
    for _ in range(200):
        middle = (low + high) / 2
        carried = [max(0.0, (middle / rail.crowded - rail.a_s) * rail.rate) for rail in rails]
        low, high = (middle, high) if sum(carried) < size else (low, middle)
    return {place: part / size for place, part in enumerate(carried) if part > 0}


def calls(job: StripedJob, times: int, count: int = LARGE) -> list[Taken]:
    return [job.call(count) for _ in range(times)]


def assert_split(taken: Taken, rails: list[VirtualRail], count: int = LARGE, within: float = 0.05) -> None:
    ideal = ideal_shares(rails, count * 4)
    shares = taken.shares()
    for rail in range(len(rails)):
        assert shares.get(rail, 0.0) == pytest.approx(ideal.get(rail, 0.0), abs=within * max(ideal.values()))
