# SPDX-License-Identifier: Apache-2.0
"""The time limit of a soak's call: 3 times its time on the rails that are up, plus 200 ms for each fault.

A rail is up while it has no fault and the ranks use it. If no rail is up, a call waits. The judge adds the
time that ranks have waited for a processor.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from railweave._native.collectives import Collective, DType
from railweave.experiments.problem import dtype_of
from railweave.experiments.random_calls import RandomCall
from railweave.hosts import capabilities
from railweave.hosts.limits import LANE_BYTES, limit_bps
from railweave.topologies.model import ALGORITHM, P4_KINDS, Plane

FACTOR = 3.0
PER_FAULT_S = 0.2
LEAST_S = 0.25  # shorter calls are not judged: on a busy machine, a process may wait this long for a CPU
NOTICED_S = 0.6  # an exclusion that begins within this time after a fault was caused by the fault


@dataclass
class Timeline:
    """The times at which rails were not up, in seconds of CLOCK_MONOTONIC."""

    faults: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))  # begin, end
    excluded: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))

    def fault(self, rail: str, at: float) -> None:
        """Add the begin of a fault. `rail` is empty if the fault hits no rail."""
        self.faults[rail].append([at, math.inf])

    def repaired(self, rail: str, at: float) -> None:
        """Add the end of the rail's last fault."""
        self.faults[rail][-1][1] = at

    def rail_state(self, rail: str, up: bool, at: float) -> None:
        """Add whether the ranks use a rail from `at` on."""
        spans = self.excluded[rail]
        down = bool(spans) and spans[-1][1] == math.inf
        if up and down:
            spans[-1][1] = at
        elif not up and not down:
            spans.append([at, math.inf])

    def up(self, rail: str, at: float) -> bool:
        """Whether a rail is up."""
        return not any(begin <= at < end for begin, end in self.faults[rail] + self.excluded[rail])

    def edges(self, since: float) -> list[float]:
        """Return the times after `since` at which a rail goes up or down, in order."""
        spans = [span for rails in (self.faults, self.excluded) for each in rails.values() for span in each]
        return sorted({at for span in spans for at in span if since < at < math.inf})

    def faults_within(self, since: float, until: float) -> int:
        """Return the number of faults that overlap this time. A fault lasts until its rail is readmitted."""
        return sum(
            begin <= until and self._readmitted(rail, begin, end) >= since
            for rail, spans in self.faults.items()
            for begin, end in spans
        )

    def _readmitted(self, rail: str, begin: float, end: float) -> float:
        after = (up for down, up in self.excluded[rail] if begin <= down < end + NOTICED_S)
        return max([end, *after])


def limit_s(call: RandomCall, ranks: int, planes: Sequence[Plane], timeline: Timeline, since: float) -> float:
    """Return the time limit of a call that all ranks have made at `since`; inf if no rail ever comes up."""
    rates = {plane.name: 1 / _alone_s(call, ranks, plane) for plane in planes}
    left = FACTOR  # in units of the call's time
    at = since
    for edge in [*timeline.edges(since), math.inf]:
        rate = sum(rate for rail, rate in rates.items() if timeline.up(rail, at))
        if rate * (edge - at) >= left > 0:
            return _with_faults(timeline, since, at + left / rate) - since
        left -= rate * (edge - at) if rate else 0
        at = edge
    return math.inf


def _with_faults(timeline: Timeline, since: float, end: float) -> float:
    """Return the time by which a call must end, if its limit without faults is `end`.

    The extra time for one fault may extend the call into the next fault.
    """
    latest = end
    while latest < (later := end + PER_FAULT_S * timeline.faults_within(since, latest)):
        latest = later
    return latest


def _alone_s(call: RandomCall, ranks: int, plane: Plane) -> float:
    """Return the time of a call on one rail alone, in seconds; inf if the rail cannot carry the call.

    Algorithms have no bound: inf.
    """
    collective = Collective[call.collective.upper()]
    dtype, op = DType[call.dtype.upper()], capabilities.OPS[call.op]
    if plane.kind == ALGORITHM or capabilities.obstacle(plane.kind, dtype, op, collective):
        return math.inf
    item = dtype_of(call.dtype).itemsize
    size = capabilities.size_bytes(collective, call.count, item, ranks)
    kind = plane.kind
    if kind == "netreduce" and not capabilities.added(dtype, op):
        kind = "rdma"
    if kind in P4_KINDS and collective in capabilities.REDUCING:
        size *= max(1, LANE_BYTES // item)
    return size * 8 / limit_bps(kind, plane.rate_bps, ranks, collective=collective)
