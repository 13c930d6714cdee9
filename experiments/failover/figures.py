# SPDX-License-Identifier: Apache-2.0
"""The effect of a fault on a series of calls, computed from the ranks' messages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from railweave.experiments.failover.trace import Call, RankTrace

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
    start = window.injected - BASELINE_S
    reroute = _last([_without(trace.calls, rail, window.injected) for trace in traces])
    readmit = _last([trace.first_use(rail, window.repaired) for trace in traces])
    return Figures(
        pause_s=longest_gap(traces, window.injected, window.end),
        return_pause_s=longest_gap(traces, window.repair_begin, window.end),
        usual_s=longest_gap([_before(trace, window.injected) for trace in traces], start, window.injected),
        reroute_s=None if reroute is None else reroute - window.injected,
        readmit_s=None if readmit is None else readmit - window.repaired,
        used=any(rail == piece.rail for t in traces for c in _within(t, start, window) for piece in c.slices),
        before_bps=throughput(traces, start, window.injected),
        during_bps=None
        if reroute is None or reroute >= window.repair_begin
        else throughput(traces, reroute, window.repair_begin),
        after_bps=None if readmit is None else throughput(traces, readmit + SETTLE_S, window.end),
    )


def longest_gap(traces: Sequence[RankTrace], begin: float, end: float) -> float:
    """Return the longest time between two ends of calls, on any rank, that lies in [begin, end] in part."""
    return max((gap for trace in traces for gap in _gaps(trace.calls, begin, end)), default=0.0)


def _gaps(calls: Sequence[Call], begin: float, end: float) -> Iterator[float]:
    last = None
    for call in calls:
        if last is not None and call.end > begin and last < end:
            yield call.end - last
        last = call.end
    if last is not None and last < end:
        yield end - last  # no call has ended since


def throughput(traces: Sequence[RankTrace], begin: float, end: float, rail: str = "") -> float:
    """Return the mean rate of the ranks in bit/s of tensor, of all rails or one.

    A slice counts in proportion to the part of its time in [begin, end].
    """
    if end <= begin:
        return 0.0
    total = sum(
        piece.bytes * _overlap(piece.start, piece.end, begin, end)
        for trace in traces
        for call in trace.calls
        for piece in call.slices
        if rail in ("", piece.rail)
    )
    return 8 * total / (end - begin) / len(traces)


def curve(traces: Sequence[RankTrace], window: Window) -> Curve:
    """Return the throughput of every rail from the start before the fault to the end."""
    begin = window.injected - BASELINE_S
    bins = math.floor((window.end - begin) / BIN_S)  # whole ones: a part of one would look like a slump
    bps = {rail: [0.0] * bins for trace in traces for rail in trace.rails}
    for trace in traces:
        for piece in (piece for call in trace.calls for piece in call.slices):
            first = max(0, math.floor((piece.start - begin) / BIN_S))
            last = min(bins - 1, math.floor((piece.end - begin) / BIN_S))
            for place in range(first, last + 1):
                left = begin + place * BIN_S
                part = _overlap(piece.start, piece.end, left, left + BIN_S)
                bps[piece.rail][place] += 8 * piece.bytes * part / BIN_S / len(traces)
    return Curve(-BASELINE_S, BIN_S, window.repaired - window.injected, bps)


def _overlap(start: float, stop: float, begin: float, end: float) -> float:
    """Return the fraction of [start, stop] that lies in [begin, end]."""
    if stop <= start:
        return float(begin <= start < end)
    return max(0.0, min(stop, end) - max(start, begin)) / (stop - start)


def _without(calls: Sequence[Call], rail: str, since: float) -> float | None:
    ends = (
        call.end for call in calls if call.end > since and all(piece.rail != rail for piece in call.slices)
    )
    return next(ends, None)


def _before(trace: RankTrace, instant: float) -> RankTrace:
    return RankTrace(calls=[call for call in trace.calls if call.end <= instant])


def _within(trace: RankTrace, start: float, window: Window) -> Iterator[Call]:
    return (call for call in trace.calls if start < call.end <= window.injected)


def _last(instants: Sequence[float | None]) -> float | None:
    """Return the last of all; None if one is missing."""
    found = [instant for instant in instants if instant is not None]
    return max(found) if len(found) == len(instants) else None
