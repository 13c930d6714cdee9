# SPDX-License-Identifier: Apache-2.0
"""What a fault did to a series of calls, from what the ranks have told: no clock, no network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from railweave.experiments.failover.trace import Call, RankTrace

CALM_S = 0.6  # of calls before a fault, by which the others are judged
BIN_S = 0.04
SETTLE_S = 0.5  # from the return of a rail until the split is judged


@dataclass(frozen=True)
class Figures:
    """One fault and its repair; times in s, rates in bit/s of tensors reduced."""

    pause_s: float  # the longest time without the end of a call, on any rank, from the fault to the end
    return_pause_s: float  # the same from the repair on
    usual_s: float  # the longest before the fault
    reroute_s: float | None  # from the fault until every rank had completed a call without the rail
    readmit_s: float | None  # from the repair until every rank had completed a slice that began on the rail
    used: bool  # whether the rail carried something before the fault
    before_bps: float
    during_bps: float | None  # from the detour to the repair
    after_bps: float | None


@dataclass(frozen=True)
class Curve:
    """Throughput of every rail around a fault, in bins; times in s after the fault."""

    begin_s: float
    bin_s: float
    mended_s: float
    bps: Mapping[str, Sequence[float]]  # by rail


@dataclass(frozen=True)
class Window:
    """When what happened."""

    struck: float  # before it could have an effect
    mending: float  # when the repair began
    repaired: float  # when all was whole again
    end: float


def figures(traces: Sequence[RankTrace], rail: str, window: Window) -> Figures:
    """Judge the calls around a fault of a rail."""
    calm = window.struck - CALM_S
    reroute = _last([_without(trace.calls, rail, window.struck) for trace in traces])
    readmit = _last([trace.first_use(rail, window.repaired) for trace in traces])
    return Figures(
        pause_s=longest_gap(traces, window.struck, window.end),
        return_pause_s=longest_gap(traces, window.mending, window.end),
        usual_s=longest_gap([_before(trace, window.struck) for trace in traces], calm, window.struck),
        reroute_s=None if reroute is None else reroute - window.struck,
        readmit_s=None if readmit is None else readmit - window.repaired,
        used=any(rail == piece.rail for t in traces for c in _within(t, calm, window) for piece in c.slices),
        before_bps=throughput(traces, calm, window.struck),
        during_bps=None
        if reroute is None or reroute >= window.mending
        else throughput(traces, reroute, window.mending),
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
        yield end - last  # nothing has come since


def throughput(traces: Sequence[RankTrace], begin: float, end: float) -> float:
    """Return the mean rate of the ranks in bit/s of tensor; a slice counts by its part of the time."""
    if end <= begin:
        return 0.0
    total = sum(
        piece.bytes * _overlap(piece.start, piece.end, begin, end)
        for trace in traces
        for call in trace.calls
        for piece in call.slices
    )
    return 8 * total / (end - begin) / len(traces)


def curve(traces: Sequence[RankTrace], window: Window) -> Curve:
    """Return the throughput of every rail from the calm before the fault to the end."""
    begin = window.struck - CALM_S
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
    return Curve(-CALM_S, BIN_S, window.repaired - window.struck, bps)


def _overlap(start: float, stop: float, begin: float, end: float) -> float:
    """Return which part of [start, stop] lies in [begin, end]."""
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


def _within(trace: RankTrace, calm: float, window: Window) -> Iterator[Call]:
    return (call for call in trace.calls if calm < call.end <= window.struck)


def _last(instants: Sequence[float | None]) -> float | None:
    """Return the last of all; None if one is missing."""
    found = [instant for instant in instants if instant is not None]
    return max(found) if len(found) == len(instants) else None
