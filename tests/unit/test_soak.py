# SPDX-License-Identifier: Apache-2.0
"""Random calls, and the tally of a soak."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest

from railweave.experiments.cpu import waited_s
from railweave.experiments.random_calls import COLLECTIVES, DTYPES, OPS, draw
from railweave.experiments.soak.tally import Tally, growth
from railweave.experiments.trace import RankTrace

RANKS = 3


def test_calls_follow_from_the_seed_and_are_of_all_sorts() -> None:
    calls = [draw(7, number, RANKS) for number in range(500)]
    assert calls == [draw(7, number, RANKS) for number in range(500)]
    assert calls != [draw(8, number, RANKS) for number in range(500)]
    assert {call.collective for call in calls} == set(COLLECTIVES)
    assert {call.dtype for call in calls} == set(DTYPES)
    assert {call.op for call in calls} == set(OPS)
    assert {call.async_op for call in calls} == {call.in_place for call in calls} == {False, True}
    counts = [call.count for call in calls]
    assert min(counts) == 1
    assert 1 << 20 < max(counts) <= 4 << 20
    assert all(draw(7, number, RANKS, largest=10).count <= 10 for number in range(100))


def test_memory_that_grows_is_told_from_memory_that_has_grown() -> None:
    warm = [(float(at), min(50.0 + at, 100.0)) for at in range(0, 3600, 10)]
    assert growth(warm) == 0
    leak = [(float(at), 50 + at / 36) for at in range(0, 3600, 10)]
    assert growth(leak) == pytest.approx(100)
    assert growth(warm[:5]) is None
    assert growth([]) is None


def test_every_call_of_a_seed_has_other_numbers() -> None:
    tasks = [draw(7, number, RANKS).problem(7, 0, RANKS) for number in range(40)]
    for one, other in pairwise(
        task for task in tasks if task.base.dtype == np.int64 and task.result.size > 9
    ):
        both = min(one.result.size, other.result.size)
        assert (one.result[:both] != other.result[:both]).any()


def test_sums_of_int32_wrap() -> None:
    calls = [draw(7, number, RANKS) for number in range(200)]
    wrapping = next(each for each in calls if (each.dtype, each.op) == ("int32", "sum") and each.count > 99)
    assert np.abs(wrapping.problem(7, 0, RANKS).base.astype(np.int64)).max() > 2**31 // RANKS


def test_the_tally_counts_what_every_rank_has_done() -> None:
    tally = Tally(ranks=[RankTrace(), RankTrace()])
    assert not tally.begun
    for rank, calls in ((0, 5), (1, 3), (0, 5)):
        message = {"calls": [], "done": calls, "bytes": 8 * calls, "longest_s": 0.5, "rss_bytes": 1 << 20}
        tally.ranks[rank].take({"event": "calls", **message, "rails": {"tcp": {"failures": calls}}})
        tally.memory(f"rank {rank}", 90.0)
    tally.ranks[1].take({"event": "wrong", "elements": 1})
    found = tally.summary()
    assert (found["calls"], found["bytes"], found["wrong"], found["errors"]) == (3, 24, 1, 0)
    assert found["rss_mib"] == {"rank 0": 90.0, "rank 1": 90.0}
    assert found["failovers"] == {"tcp": 5}
    assert "3 calls" in tally.line()
    assert (tally.begun, tally.failed()) == (True, "0 errors, 1 wrong elements, 0 late calls")


def test_each_threads_wait_for_a_core_is_counted() -> None:
    before = waited_s()
    assert before[threading.get_native_id()] >= 0
    assert all(after >= before.get(thread, 0) for thread, after in waited_s().items())
