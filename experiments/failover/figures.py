# SPDX-License-Identifier: Apache-2.0
"""The effect of a fault on a series of calls, computed from the ranks' reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from railweave.experiments.trace import Call, RankTrace, longest_gap, rates, throughput

BASELINE_S = 0.6  # time before a fault; its calls are compared with the calls after the fault
BIN_S = 0.04
SETTLE_S = 0.5  # time from the readmission of a rail until the rail's split is measured


@dataclass(frozen=True)
class Figures:
    """One fault and its repair. Times are in s, rates in bit/s of tensors reduced."""

    pause_s: float  # longest time between two completed calls, on any rank, from the fault to the end
    return_pause_s: float  # the same from the repair on
    usual_s: float  # the same before the fault
    reroute_s: float | None  # from the fault until every rank had completed a call without the rail
    readmit_s: float | None  # from the repair until every rank had completed a slice that began on the rail
    used: bool  # whether the rail carried something before the fault
    before_bps: float
    during_bps: float | None  # from the rerouting to the repair
    after_bps: float | None


@dataclass(frozen=True)
class Curve:
    """Throughput of every rail around a fault, in bins. Times are in s after the fault."""

    begin_s: float
    bin_s: float
    repaired_s: float
    bps: Mapping[str, Sequence[float]]  # by rail


@dataclass(frozen=True)
class Window:
    """The instants of one trial."""

    injected: float  # just before the fault could have an effect
    repair_begin: float  # when the repair began
    repaired: float  # when the repair was complete
    end: float


def figures(traces: Sequence[RankTrace], rail: str, window: Window) -> Figures:
    """Judge the calls around a fault of a rail."""
    calls = [trace.calls for trace in traces]
    start = window.injected - BASELINE_S
    before = [[call for call in of_rank if call.end <= window.injected] for of_rank in calls]
    reroute = _last([_without(of_rank, rail, window.injected) for of_rank in calls])
    readmit = _last([trace.first_use(rail, window.repaired) for trace in traces])
    rerouted_in_time = reroute is not None and reroute < window.repair_begin
    return Figures(
        pause_s=longest_gap(calls, window.injected, window.end),
        return_pause_s=longest_gap(calls, window.repair_begin, window.end),
        usual_s=longest_gap(before, start, window.injected),
        reroute_s=None if reroute is None else reroute - window.injected,
        readmit_s=None if readmit is None else readmit - window.repaired,
        used=any(call.end > start and _uses(call, rail) for of_rank in before for call in of_rank),
        before_bps=throughput(traces, start, window.injected),
        during_bps=throughput(traces, reroute, window.repair_begin) if reroute and rerouted_in_time else None,
        after_bps=None if readmit is None else throughput(traces, readmit + SETTLE_S, window.end),
    )


def curve(traces: Sequence[RankTrace], window: Window) -> Curve:
    """Return the throughput of every rail from the start before the fault to the end."""
    begin = window.injected - BASELINE_S
    bins = int((window.end - begin) / BIN_S)  # whole ones: a part of one would look like a slump
    edges = begin + BIN_S * np.arange(bins + 1)
    rails = dict.fromkeys(rail for trace in traces for rail in trace.rails)
    bps = {rail: rates(traces, edges, rail).tolist() for rail in rails}
    return Curve(-BASELINE_S, BIN_S, window.repaired - window.injected, bps)


def _uses(call: Call, rail: str) -> bool:
    return any(piece.rail == rail for piece in call.slices)


def _without(calls: Sequence[Call], rail: str, since: float) -> float | None:
    return next((call.end for call in calls if call.end > since and not _uses(call, rail)), None)


def _last(instants: Sequence[float | None]) -> float | None:
    """Return the last of all; None if one is missing."""
    found = [instant for instant in instants if instant is not None]
    return max(found) if len(found) == len(instants) else None
