# SPDX-License-Identifier: Apache-2.0
"""The soak's calls, their expected results, and the tally."""

from __future__ import annotations

import threading
from itertools import product
from typing import Any

import numpy as np
import pytest

from railweave.experiments.cpu import waited_s
from railweave.experiments.soak.problem import (
    COLLECTIVES,
    DTYPES,
    EPSILON,
    OPS,
    Array,
    Problem,
    draw,
    dtype_of,
    tensor,
    wrong,
)
from railweave.experiments.soak.tally import Tally, growth
from railweave.experiments.soak.worker import Series

RANKS = 3
NUMPY = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "avg": np.add}


def problem_of(collective: str, count: int, dtype: str, op: str, number: int = 17) -> Problem:
    return Problem(number, collective, count, dtype, op, root=1, async_op=False, in_place=False)


def reduced(problem: Problem) -> Array:
    """Reduce with numpy, element by element, in the type itself if the type is exact."""
    wide = np.float64 if problem.dtype in EPSILON else dtype_of(problem.dtype)
    parts = [tensor(problem, RANKS, rank).astype(wide) for rank in range(RANKS)]
    result = NUMPY[problem.op].reduce(np.stack(parts), axis=0, dtype=wide)
    if problem.op == "avg" and problem.dtype in EPSILON:
        result = result / RANKS
    elif problem.op == "avg":
        result = np.array([int(abs(int(x)) // RANKS) * (1 if x >= 0 else -1) for x in result], wide)
    return np.asarray(result.astype(dtype_of(problem.dtype)))


@pytest.mark.parametrize(("dtype", "op"), list(product(DTYPES, OPS)))
def test_what_is_expected_is_what_numpy_reduces(dtype: str, op: str) -> None:
    for count in (1, 3, 70_000):
        problem = problem_of("all_reduce", count, dtype, op)
        result = reduced(problem)
        assert wrong(problem, RANKS, 0, result) == 0
        at = count // 2
        result[at] = 3 if result[at] != 3 else 5
        assert wrong(problem, RANKS, 2, result) == 1


@pytest.mark.parametrize("count", [1, 40_000])
def test_shards_are_expected_where_they_belong(count: int) -> None:
    scattered = problem_of("reduce_scatter", count, "int32", "sum")
    shards = reduced(scattered).reshape(RANKS, count)
    gathered = problem_of("all_gather", count, "int64", "sum")
    whole = np.concatenate([tensor(gathered, RANKS, rank) for rank in range(RANKS)])
    sent = problem_of("broadcast", count, "bfloat16", "sum")
    for rank in range(RANKS):
        assert wrong(scattered, RANKS, rank, shards[rank]) == 0
        assert wrong(scattered, RANKS, rank, shards[rank - 1]) > 0
        assert wrong(gathered, RANKS, rank, whole) == 0
        assert wrong(gathered, RANKS, rank, np.roll(whole, count)) > 0
        assert wrong(sent, RANKS, rank, tensor(sent, RANKS, sent.root)) == 0
        assert wrong(sent, RANKS, rank, np.zeros_like(tensor(sent, RANKS, 0))) > 0


def test_another_calls_result_and_a_missing_rank_are_wrong() -> None:
    problem = problem_of("all_reduce", 5000, "float32", "sum")
    other = problem_of("all_reduce", 5000, "float32", "sum", number=18)
    assert wrong(problem, RANKS, 0, reduced(other)) > 4900
    assert wrong(problem, RANKS + 1, 0, reduced(problem)) > 4900


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


def test_the_tally_counts_what_every_rank_has_done() -> None:
    tally = Tally()
    for rank, calls in ((0, 5), (1, 3), (0, 5)):
        message = {"calls": calls, "bytes": 8 * calls, "wrong": rank, "longest_s": 0.5, "rss_mib": 90.0}
        tally.tick(rank, {**message, "rails": {"tcp": {"failures": calls}}})
    found = tally.summary()
    assert (found["calls"], found["bytes"], found["wrong"], found["errors"]) == (3, 24, 1, 0)
    assert found["rss_mib"] == {"rank 0": 90.0, "rank 1": 90.0}
    assert found["failovers"] == {"tcp": 5}
    assert "3 calls" in tally.line()


class Watched:
    """The communicator of a job of one rank. It records the calls that the series waits for."""

    rank, world_size = 0, 1

    def __init__(self) -> None:
        self.series: Series | None = None
        self.seen: list[list[str]] = []

    def look(self) -> None:
        assert self.series is not None
        self.seen.append(self.series.waiting())

    def all_reduce(self, x: Array, op: str = "sum", out: Array | None = None, async_op: bool = False) -> Any:
        del op
        if async_op:
            return Later(self, x if out is None else out)
        self.look()
        return x if out is None else out

    reduce_scatter = all_reduce

    def all_gather(self, x: Array, out: Array, async_op: bool = False) -> Any:
        np.copyto(out, x)
        return self.all_reduce(out, async_op=async_op)

    def broadcast(self, x: Array, root: int, async_op: bool = False) -> Any:
        del root
        return self.all_reduce(x, async_op=async_op)


class Later:
    """A Work that returns its result as soon as a caller waits."""

    def __init__(self, comm: Watched, result: Array) -> None:
        self._comm = comm
        self._result = result

    def wait(self) -> Array:
        self._comm.look()
        return self._result


def test_each_threads_wait_for_a_core_is_counted() -> None:
    before = waited_s()
    assert before[threading.get_native_id()] >= 0
    assert all(after >= before.get(thread, 0) for thread, after in waited_s().items())


def test_the_call_that_a_rank_waits_for_is_named_first() -> None:
    comm = Watched()
    series = comm.series = Series(comm, seed=3, largest=100)  # type: ignore[arg-type]
    calls = [draw(3, number, 1, 100) for number in range(20)]
    for call in calls:
        series._begin(call)
    while series.waiting():
        series._end()
    assert [seen[0] for seen in comm.seen if seen] == [str(call) for call in calls]
