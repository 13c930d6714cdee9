# SPDX-License-Identifier: Apache-2.0
"""The benchmark's check: right results pass, and the check finds every kind of wrong result."""

from __future__ import annotations

import numpy as np
import pytest

from railweave.algorithms.atp.endpoint import SCALE
from railweave.experiments.bounds import average_error_bound, sum_error_bound
from railweave.experiments.problem import EPSILON, OPS, SCALES, Array, Problem, problem, shard_elements
from railweave.experiments.random_calls import DTYPES

REDUCE = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
}


def given(task: Problem, call: int) -> Array:
    array = np.empty_like(task.base)
    task.fill(call, array)
    return array


def inputs(count: int, dtype: str, op: str, ranks: int, call: int) -> list[Array]:
    return [given(problem(count, dtype, op, rank, ranks), call) for rank in range(ranks)]


def result(parts: list[Array], op: str) -> Array:
    kind, ranks = parts[0].dtype, len(parts)
    if op != "avg":
        return np.asarray(REDUCE[op](np.stack(parts), axis=0, dtype=kind), kind)
    total = np.add.reduce(np.stack(parts), axis=0, dtype=kind)
    if kind.name in EPSILON:
        return np.asarray(total / kind.type(ranks), kind)
    return np.array([int(abs(int(x)) // ranks) * (1 if x >= 0 else -1) for x in total], kind)


def one_off(right: Array) -> Array:
    """Return the array with one wrong element."""
    changed = right.copy()
    changed[7] = changed[7] * 2 + 1 if right.dtype.name in EPSILON else changed[7] ^ 1
    return changed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ranks", [2, 3, 31])
def test_right_results_pass(dtype: str, op: str, ranks: int) -> None:
    task = problem(1000, dtype, op, 0, ranks)
    for run in range(SCALES + 1):
        assert task.wrong(run, result(inputs(1000, dtype, op, ranks, run), op)) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_the_first_call_are_exact(dtype: str) -> None:
    right = result(inputs(1000, dtype, "prod", 4, call=0), "prod")
    task = problem(1000, dtype, "prod", 0, 4)
    assert task.wrong(0, right) == 0
    assert task.wrong(0, one_off(right)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_wrong_results_are_counted(dtype: str, op: str) -> None:
    task = problem(1000, dtype, op, 0, 4)
    right = result(inputs(1000, dtype, op, 4, call=1), op)
    stale = result(inputs(1000, dtype, op, 4, call=0), op)
    assert task.wrong(1, stale) > 900
    assert task.wrong(1, inputs(1000, dtype, op, 4, call=1)[0]) > 500  # nothing reduced
    assert task.wrong(1, one_off(right)) == 1


def test_sums_of_integers_wrap_only_where_they_are_asked_to() -> None:
    timed = given(problem(3000, "int32", "sum", 0, 1), SCALES - 1)
    assert np.abs(timed.astype(np.int64)).max() * 1023 < 2**31
    assert np.abs(problem(3000, "int32", "sum", 0, 1, wraps=True).base.astype(np.int64)).max() > 2**30


def test_the_density_is_the_share_of_blocks_that_are_not_zero() -> None:
    tasks = [problem(256 * 1000 + 1, "int32", "sum", rank, 2, density=0.1) for rank in range(2)]
    blocks = [task.base[:-1].reshape(1000, 256).any(axis=1) for task in tasks]
    assert [70 < of.sum() < 130 for of in blocks] == [True, True]
    assert (blocks[0] != blocks[1]).any()
    assert np.array_equal(tasks[0].result, tasks[0].base + tasks[1].base)


def test_nan_is_wrong() -> None:
    task = problem(10, "float32", "sum", 0, 2)
    assert task.wrong(0, np.full(10, np.nan, np.float32)) == 10


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_a_rank_wants_its_own_shard(dtype: str, op: str) -> None:
    ranks, count = 3, 700
    tasks = [problem(count, dtype, op, rank, ranks, collective="reduce_scatter") for rank in range(ranks)]
    for run in range(SCALES + 1):
        whole = result([given(task, run) for task in tasks], op)
        shards = np.split(whole, ranks)
        for rank, task in enumerate(tasks):
            assert task.wrong(run, shards[rank]) == 0
            assert task.wrong(run, shards[rank - 1]) > count / 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_moved_must_be_exact(dtype: str) -> None:
    gathers = [problem(300, dtype, "sum", rank, 3, collective="all_gather") for rank in range(3)]
    roots = [problem(300, dtype, "sum", rank, 3, collective="broadcast", root=2) for rank in range(3)]
    for run in range(SCALES):
        whole: Array = np.concatenate([given(task, run) for task in gathers])
        for task, right in ((gathers[0], whole), (roots[0], given(roots[2], run))):
            assert task.wrong(run, right) == 0
            assert task.wrong(run + 1, right) > 0.9 * right.size
            assert task.wrong(run, one_off(right)) == 1


def test_counts_are_those_of_nccl_tests() -> None:
    counts = {name: shard_elements(name, 1000, 4) for name in ("all_reduce", "reduce_scatter", "all_gather")}
    assert counts == {"all_reduce": 250, "reduce_scatter": 62, "all_gather": 62}


def test_floats_may_differ_by_the_contenders_error() -> None:
    task = problem(100, "float32", "sum", 0, 2)
    result = task.result + np.float32(0.001)
    assert task.wrong(0, result) == 100
    assert task.wrong(0, result, error_bound=0.002) == 0
    assert task.wrong(0, result, error_bound=0.0005) == 100


@pytest.mark.parametrize("ranks", [2, 31, 1023])
def test_sums_of_floats_are_exact_on_every_rail(ranks: int) -> None:
    # A rank's input does not depend on the number of ranks.
    parts = np.stack([given(problem(300, "float32", "sum", rank, 1), SCALES - 1) for rank in range(ranks)])
    exact = parts.astype(np.float64).sum(axis=0)
    assert (np.add.reduce(parts) == exact).all()
    assert (np.add.reduce(parts[::-1]) == exact).all()
    assert (fixed_point_sum(parts, 256) == exact).all()
    assert (np.rint(parts.astype(np.float64) * SCALE) == parts.astype(np.float64) * SCALE).all()


def fixed_point_sum(given: np.ndarray, lanes: int) -> np.ndarray:
    """Sum like the ina rail: one exponent per packet, lanes rounded half to even, exact integer sums."""
    ranks, count = given.shape
    headroom = int(np.ceil(np.log2(ranks)))
    total = np.empty(count)
    for first in range(0, count, lanes):
        chunk = given[:, first : first + lanes].astype(np.float64)
        exponent = np.frexp(np.abs(chunk).max())[1] - 1
        unit = 2.0 ** (exponent + headroom - 30)
        total[first : first + lanes] = np.rint(chunk / unit).sum(axis=0) * unit
    return total.astype(np.float32)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_bounds_hold_and_are_not_idle(ranks: int) -> None:
    random = np.random.default_rng(ranks)
    given = (random.standard_normal((ranks, 4096)) * 10.0 ** random.integers(-4, 4, 4096)).astype(np.float32)
    exact = given.astype(np.float64).sum(axis=0)
    magnitude = np.abs(given).max(axis=0)
    bound = sum_error_bound(magnitude, ranks, 256)
    fixed = np.abs(fixed_point_sum(given, 256) - exact)
    floating = np.abs(np.add.reduce(given).astype(np.float64) - exact)
    assert (fixed <= bound).all()
    assert (floating <= bound).all()
    assert (fixed / bound).max() > 0.2  # a bound a thousand times too wide would find nothing
    average = np.abs((fixed_point_sum(given, 256) / np.float32(ranks)).astype(np.float64) - exact / ranks)
    assert (average <= average_error_bound(magnitude, ranks, 256)).all()
