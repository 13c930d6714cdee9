# SPDX-License-Identifier: Apache-2.0
"""The time limit of the soak for a call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from railweave.experiments import random_calls
from railweave.experiments.random_calls import RandomCall
from railweave.experiments.soak.bound import FACTOR, PER_FAULT_S, Timeline, limit_s
from railweave.experiments.soak.run import SoakOptions, judge
from railweave.experiments.soak.tally import Tally
from railweave.experiments.trace import Call, RankTrace, Slice
from railweave.hosts.limits import limit_bps
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

RANKS = 4
RATE = 100_000_000
TOPOLOGY = planes(RANKS, ("ina", "tcp"), RATE)
SIZE = 1_000_000  # elements


def alone_s(kind: str, size: int = 4 * SIZE) -> float:
    return size * 8 / limit_bps(kind, RATE, RANKS)


def limit(timeline: Timeline, since: float = 10.0, dtype: str = "float32", op: str = "sum") -> float:
    call = RandomCall(0, "all_reduce", SIZE, dtype, op, 0, async_op=False, in_place=False)
    return limit_s(call, RANKS, TOPOLOGY.planes, timeline, since)


BOTH = 1 / (1 / alone_s("ina") + 1 / alone_s("tcp"))


def test_rails_that_are_up_share_the_call() -> None:
    assert limit(Timeline()) == pytest.approx(FACTOR * BOTH)


def test_a_rail_counts_neither_during_a_fault_nor_while_excluded() -> None:
    timeline = Timeline()
    timeline.fault("ina", 9.0)
    timeline.rail_state("ina", up=False, at=9.1)
    timeline.repaired("ina", 9.5)  # the ranks do not use the rail yet
    assert limit(timeline, since=9.2) == pytest.approx(FACTOR * alone_s("tcp") + PER_FAULT_S)
    timeline.rail_state("ina", up=True, at=10.0)
    assert limit(timeline, since=10.1) == pytest.approx(FACTOR * BOTH)


def test_while_no_rail_is_up_a_call_waits() -> None:
    timeline = Timeline()
    for rail in ("ina", "tcp"):
        timeline.fault(rail, 9.0)
    assert limit(timeline) == math.inf
    timeline.repaired("tcp", 12.0)
    assert limit(timeline) == pytest.approx(2.0 + FACTOR * alone_s("tcp") + 2 * PER_FAULT_S)


def test_a_fault_that_begins_in_mid_call_takes_its_rail_from_then_on() -> None:
    timeline = Timeline()
    timeline.fault("tcp", 10.0 + FACTOR * BOTH / 2)
    assert limit(timeline) == pytest.approx(FACTOR * (BOTH / 2 + alone_s("ina") / 2) + PER_FAULT_S)


def test_the_time_that_a_fault_is_given_may_meet_the_next_one() -> None:
    timeline = Timeline()
    for begin in (9.5, 10 + FACTOR * BOTH + PER_FAULT_S / 2, 10 + FACTOR * BOTH + 5 * PER_FAULT_S):
        timeline.fault("", begin)
        timeline.repaired("", begin + 0.6)
    assert limit(timeline) == pytest.approx(FACTOR * BOTH + 2 * PER_FAULT_S)


def test_a_fault_that_is_on_no_rail_gives_time_only() -> None:
    timeline = Timeline()
    timeline.fault("", 10.1)
    assert limit(timeline) == pytest.approx(FACTOR * BOTH + PER_FAULT_S)


def test_rails_that_cannot_carry_the_call_do_not_count() -> None:
    assert limit(Timeline(), op="prod") == pytest.approx(FACTOR * alone_s("tcp"))
    half = 1 / (1 / alone_s("ina") + 1 / alone_s("tcp", 2 * SIZE))  # a switch adds words of 32 bits
    assert limit(Timeline(), dtype="float16") == pytest.approx(FACTOR * half)


@dataclass(frozen=True)
class Case:
    took_s: float
    judged: int
    late: int = 0
    waited_s: float = 0.0  # the sum over all ranks
    reported: int = RANKS
    rate: int = RATE


@pytest.mark.parametrize(
    "case",
    [
        Case(FACTOR * BOTH * 0.99, judged=1),
        Case(FACTOR * BOTH * 1.01, judged=1, late=1),
        Case(FACTOR * BOTH + 0.99, judged=1, waited_s=1.0),
        Case(FACTOR * BOTH + 1.01, judged=1, late=1, waited_s=1.0),
        Case(100.0, judged=0, reported=RANKS - 1),
        Case(100.0, judged=0, rate=0),  # links without a rate give no bound
    ],
)
def test_calls_are_judged_by_the_ranks_reports(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    call = RandomCall(7, "all_reduce", SIZE, "float32", "sum", 0, async_op=False, in_place=False)
    monkeypatch.setattr(random_calls, "draw", lambda *_: call)
    end = 10.0 + case.took_s
    traces = [RankTrace() for _ in range(RANKS)]
    for rank, trace in enumerate(traces[: case.reported]):  # the last rank that makes the call counts
        piece = Slice("tcp", 10.0, end, SIZE)
        trace.calls = [Call(10.0 - rank, end, (piece,), (1, 7), case.waited_s / RANKS)]
    tally, written = Tally(ranks=traces), []
    options = SoakOptions(planes(RANKS, ("ina", "tcp"), case.rate), LabOptions(Path()), 1.0)
    judge(options, Timeline(), tally, lambda _, **values: written.append(values))
    assert (tally.judged, len(tally.late)) == (case.judged, case.late)
    assert [line["slices"] for line in written] == [
        [["tcp", 0.0, round(case.took_s, 3), SIZE, False]]
    ] * case.judged
