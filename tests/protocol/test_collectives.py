# SPDX-License-Identifier: Apache-2.0
"""Ring and recursive doubling over a simulated network, against numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave._native import collectives
from railweave._native.collectives import Call, DType, ReduceOp

Array = npt.NDArray[Any]

DTYPES = {DType.FLOAT32: np.float32, DType.INT32: np.int32}
SPECIAL_FLOATS = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-42]


def random_array(rng: np.random.Generator, dtype: DType, count: int, special: bool) -> Array:
    if dtype == DType.INT32:
        return rng.integers(-(2**31), 2**31, count, dtype=np.int32)
    values = rng.normal(size=count).astype(np.float32)
    if special:
        where = rng.random(count) < 0.3
        values[where] = rng.choice(np.array(SPECIAL_FLOATS, np.float32), where.sum())
    return values


def expected(op: ReduceOp, inputs: list[Array]) -> tuple[Array, Array]:
    """Return the result in the inputs' precision and the error that the order of additions may cause."""
    stacked = np.stack(inputs)
    if op == ReduceOp.MAX:
        return np.maximum.reduce(stacked), np.zeros(stacked.shape[1])
    if op == ReduceOp.MIN:
        return np.minimum.reduce(stacked), np.zeros(stacked.shape[1])
    if stacked.dtype == np.int32:
        total = np.add.reduce(stacked, dtype=np.int32)
        average = np.trunc(total / len(inputs)).astype(np.int32)
        return (average if op == ReduceOp.AVG else total), np.zeros(stacked.shape[1])
    n = len(inputs)
    bound = n * 2.0**-23 * np.abs(stacked.astype(np.float64)).sum(axis=0) + 2.0**-149 * n
    total = stacked.astype(np.float64).sum(axis=0)
    return (total / n if op == ReduceOp.AVG else total), bound


def check(op: ReduceOp, inputs: list[Array], outputs: list[Array]) -> None:
    with np.errstate(all="ignore"):
        want, bound = expected(op, inputs)
        for output in outputs[1:]:
            np.testing.assert_array_equal(output.view(np.uint32), outputs[0].view(np.uint32))
        got = outputs[0].astype(np.float64)
        exact = want.astype(np.float64)
        both_nan = np.isnan(got) & np.isnan(exact)
        close = (got == exact) | (np.abs(got - exact) <= bound) | both_nan
    assert np.all(close)


@dataclass(frozen=True)
class Case:
    ranks: int
    calls: list[tuple[DType, ReduceOp, int, bool]]  # dtype, op, count, in place
    seed: int
    small_bytes: int
    segment_bytes: int
    special: bool


calls = st.tuples(
    st.sampled_from(list(DTYPES)), st.sampled_from(list(ReduceOp)), st.integers(1, 700), st.booleans()
)
cases = st.builds(
    Case,
    ranks=st.integers(2, 9),
    calls=st.lists(calls, min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
    small_bytes=st.sampled_from([0, 400, 1 << 20]),
    segment_bytes=st.sampled_from([4, 40, 256, 1 << 16]),
    special=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(cases)
def test_every_rank_gets_the_same_right_result(case: Case) -> None:
    rng = np.random.default_rng(case.seed)
    inputs = [
        [random_array(rng, dtype, count, case.special) for _ in range(case.ranks)]
        for dtype, _, count, _ in case.calls
    ]
    given_inputs = [[array.copy() for array in ranks] for ranks in inputs]
    outputs = [
        [array if in_place else np.empty_like(array) for array in ranks]
        for ranks, (_, _, _, in_place) in zip(given_inputs, case.calls, strict=True)
    ]
    ranks = [
        [
            Call(dtype, op, given_inputs[i][rank], outputs[i][rank])
            for i, (dtype, op, _, _) in enumerate(case.calls)
        ]
        for rank in range(case.ranks)
    ]
    outcomes = collectives.simulate(ranks, case.seed, case.small_bytes, case.segment_bytes)
    assert outcomes == [(list(range(len(case.calls))), None)] * case.ranks
    for i, (_, op, _, in_place) in enumerate(case.calls):
        check(op, inputs[i], outputs[i])
        if not in_place:
            for before, after in zip(inputs[i], given_inputs[i], strict=True):
                np.testing.assert_array_equal(before.view(np.uint32), after.view(np.uint32))


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
@pytest.mark.parametrize("odd_one_out", range(4))
def test_ranks_that_call_different_things_all_learn_it(small_bytes: int, odd_one_out: int) -> None:
    def call(rank: int) -> Call:
        op = ReduceOp.MAX if rank == odd_one_out else ReduceOp.SUM
        return Call(DType.FLOAT32, op, np.ones(100, np.float32), np.empty(100, np.float32))

    for done, failure in collectives.simulate([[call(rank)] for rank in range(4)], 7, small_bytes, 64):
        assert done == []
        assert failure is not None
        assert "all_reduce #0 of 100 float32, sum" in failure
        assert "all_reduce #0 of 100 float32, max" in failure


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", [ReduceOp.MAX, ReduceOp.MIN])
def test_extremes_are_numpys_to_the_bit(dtype: DType, op: ReduceOp) -> None:
    rng = np.random.default_rng(1)
    low, high = (random_array(rng, dtype, 1003, special=True) for _ in range(2))
    into = np.empty_like(low)
    collectives.reduce(dtype, op, into, low, high)
    want = np.maximum(low, high) if op == ReduceOp.MAX else np.minimum(low, high)
    np.testing.assert_array_equal(into, want)


@pytest.mark.parametrize("op", ReduceOp)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reduce_into_an_operand(dtype: DType, op: ReduceOp) -> None:
    rng = np.random.default_rng(2)
    low, high = (random_array(rng, dtype, 517, special=False) for _ in range(2))
    apart = np.empty_like(low)
    collectives.reduce(dtype, op, apart, low, high)
    into_low, into_high = low.copy(), high.copy()
    collectives.reduce(dtype, op, into_low, into_low, high)
    collectives.reduce(dtype, op, into_high, low, into_high)
    np.testing.assert_array_equal(into_low, apart)
    np.testing.assert_array_equal(into_high, apart)
