# SPDX-License-Identifier: Apache-2.0
"""The time limit of the soak for a call."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest

from railweave.experiments.soak.bound import FACTOR, PER_FAULT_S, Timeline, limit_s
from railweave.experiments.soak.problem import Problem
from railweave.experiments.soak.run import Recorder
from railweave.experiments.soak.tally import Tally
from railweave.hosts.limits import limit_bps
from railweave.topologies.planes import planes

RANKS = 4
RATE = 100_000_000
TOPOLOGY = planes(RANKS, ("ina", "tcp"), RATE)
SIZE = 1_000_000  # elements


def alone_s(kind: str, size: int = 4 * SIZE) -> float:
    return size * 8 / limit_bps(kind, RATE, RANKS)


def limit(timeline: Timeline, since: float = 10.0, dtype: str = "float32", op: str = "sum") -> float:
    problem = Problem(0, "all_reduce", SIZE, dtype, op, 0, async_op=False, in_place=False)
    return limit_s(problem, RANKS, TOPOLOGY.planes, timeline, since)


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


@pytest.mark.parametrize(
    ("rate", "ranks", "took_s", "waited_s", "judged", "late"),
    [
        (RATE, RANKS, FACTOR * BOTH * 0.99, 0.0, 1, 0),
        (RATE, RANKS, FACTOR * BOTH * 1.01, 0.0, 1, 1),
        (RATE, RANKS, FACTOR * BOTH + 0.99, 1.0, 1, 0),  # `waited_s` is the sum over all ranks
        (RATE, RANKS, FACTOR * BOTH + 1.01, 1.0, 1, 1),
        (RATE, RANKS - 1, 100.0, 0.0, 0, 0),  # one rank's message is missing
        (0, RANKS, 100.0, 0.0, 0, 0),  # links without a rate give no bound
    ],
)
def test_calls_are_judged_by_the_ranks_messages(
    rate: int, ranks: int, took_s: float, waited_s: float, judged: int, late: int
) -> None:
    tally = Tally()
    written: list[dict[str, Any]] = []
    recorder = Recorder(
        planes(RANKS, ("ina", "tcp"), rate), tally, lambda _, **values: written.append(values)
    )
    problem = Problem(7, "all_reduce", SIZE, "float32", "sum", 0, async_op=False, in_place=False)
    for rank in range(ranks):
        since = 10.0 - rank  # the last rank that makes the call counts
        slices = [["tcp", 0.0, took_s, SIZE, False]] if rank == 0 else []
        message = {
            "since": since,
            "at": 10.0 + took_s,
            "seed": 1,
            "problem": asdict(problem),
            "slices": slices,
            "waited_s": waited_s / RANKS,
        }
        recorder.take(rank, {"event": "long", "rank": rank, **message})
    recorder.judge()
    assert (tally.judged, len(tally.late)) == (judged, late)
    assert [line["slices"] for line in written] == [[["tcp", 0.0, took_s, SIZE, False]]] * judged
