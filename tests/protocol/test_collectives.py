# SPDX-License-Identifier: Apache-2.0
"""Ring and recursive doubling over a simulated network, against numpy."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave._native import collectives
from railweave._native.collectives import Call, DType, ReduceOp

Array = npt.NDArray[Any]

DTYPES: dict[DType, Any] = {
    DType.FLOAT32: np.float32,
    DType.INT32: np.int32,
    DType.FLOAT16: np.float16,
    DType.BFLOAT16: ml_dtypes.bfloat16,
    DType.FLOAT64: np.float64,
    DType.INT8: np.int8,
    DType.UINT8: np.uint8,
    DType.INT64: np.int64,
}
FLOATS = {DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64}
SPECIAL_FLOATS = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-42, 6e-8, 65504.0, 3.2e38]


def random_array(rng: np.random.Generator, dtype: DType, count: int, special: bool) -> Array:
    kind = DTYPES[dtype]
    if dtype not in FLOATS:
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, count, dtype=kind, endpoint=True)
    with np.errstate(over="ignore"):
        values: Array = rng.normal(size=count).astype(kind)
        if special:
            where = rng.random(count) < 0.3
            values[where] = rng.choice(np.array(SPECIAL_FLOATS), where.sum()).astype(kind)
    return values


def bits(array: Array) -> Array:
    """The array as native code takes it; nobody but numpy knows ml_dtypes' types."""
    return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array


def exactly(array: Array) -> Array:
    """All types but int64 fit into a float64; int64 stays what it is."""
    return array if array.dtype == np.int64 else array.astype(np.float64)


def numpys(op: ReduceOp, low: Array, high: Array) -> Array:
    """What numpy makes of two operands in their own type; an average is a sum as long as it is reduced."""
    functions = {ReduceOp.MAX: np.maximum, ReduceOp.MIN: np.minimum, ReduceOp.PROD: np.multiply}
    result: Array = functions.get(op, np.add)(low, high)
    return result


def finished(op: ReduceOp, total: Array, ranks: int) -> Array:
    if op != ReduceOp.AVG:
        return total
    if total.dtype.kind in "iu":
        return np.array(
            [int(abs(value)) // ranks * (-1 if value < 0 else 1) for value in total.tolist()], total.dtype
        )
    return (total / total.dtype.type(ranks)).astype(total.dtype)


def by_ring(op: ReduceOp, inputs: list[Array]) -> Array:
    """Block b begins at rank b and takes up one rank after the other, rounded at each."""
    ranks, count = len(inputs), inputs[0].size
    blocks = []
    for block in range(ranks):
        part = slice(count * block // ranks, count * (block + 1) // ranks)
        order = [inputs[(block + hop) % ranks][part] for hop in range(ranks)]
        blocks.append(functools.reduce(functools.partial(numpys, op), order))
    return finished(op, np.concatenate(blocks), ranks)


def by_doubling(op: ReduceOp, inputs: list[Array]) -> Array:
    """The ranks too many are folded in first; then pairs, pairs of pairs, and so on."""
    core = 1 << len(inputs).bit_length() - 1
    extra = len(inputs) - core
    folded = [numpys(op, inputs[2 * i], inputs[2 * i + 1]) for i in range(extra)] + inputs[2 * extra :]
    while len(folded) > 1:
        folded = [numpys(op, *pair) for pair in zip(folded[::2], folded[1::2], strict=True)]
    return finished(op, folded[0], len(inputs))


def check(case: Case, op: ReduceOp, inputs: list[Array], outputs: list[Array]) -> None:
    """Every rank has numpy's result to the bit, but for the bits of a NaN, in the stated order."""
    with np.errstate(all="ignore"):
        want = (by_doubling if inputs[0].nbytes <= case.small_bytes else by_ring)(op, inputs)
    for output in outputs[1:]:
        np.testing.assert_array_equal(bits(output).view(np.uint8), bits(outputs[0]).view(np.uint8))
    got, want = exactly(outputs[0]), exactly(want)
    np.testing.assert_array_equal(got, want)
    if op in {ReduceOp.MAX, ReduceOp.MIN}:
        return  # of +0 and -0, numpy takes what its vector instructions give
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


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
            Call(dtype, op, bits(given_inputs[i][rank]), bits(outputs[i][rank]))
            for i, (dtype, op, _, _) in enumerate(case.calls)
        ]
        for rank in range(case.ranks)
    ]
    outcomes = collectives.simulate(ranks, case.seed, case.small_bytes, case.segment_bytes)
    assert outcomes == [(list(range(len(case.calls))), None)] * case.ranks
    for i, (_, op, _, in_place) in enumerate(case.calls):
        check(case, op, inputs[i], outputs[i])
        if not in_place:
            for before, after in zip(inputs[i], given_inputs[i], strict=True):
                np.testing.assert_array_equal(before.view(np.uint8), after.view(np.uint8))


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


@pytest.mark.parametrize("op", ReduceOp)
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_are_numpys_and_may_write_over_an_operand(dtype: DType, op: ReduceOp) -> None:
    rng = np.random.default_rng(1)
    low, high = (random_array(rng, dtype, 1003, special=True) for _ in range(2))
    with np.errstate(all="ignore"):
        want = numpys(op, low, high)
    for into in (np.empty_like(low), low.copy(), high.copy()):
        operands = [low, high]
        for place in (0, 1):
            if np.array_equal(into.view(np.uint8), operands[place].view(np.uint8)):
                operands[place] = into
        collectives.reduce(dtype, op, bits(into), bits(operands[0]), bits(operands[1]))
        np.testing.assert_array_equal(into.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize(("dtype", "name"), [(DType.FLOAT16, "float16"), (DType.BFLOAT16, "bfloat16")])
def test_every_half_is_converted_and_rounded_as_numpy_does(dtype: DType, name: str) -> None:
    """x + 0 for all 65,536 numbers, and sums that are ties, overflow and vanish."""
    every = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype])
    into = np.empty_like(every)
    for other in (np.zeros_like(every), np.roll(every, 1), every[::-1].copy(), np.roll(every, 12345)):
        collectives.reduce(dtype, ReduceOp.SUM, bits(into), bits(every), bits(other))
        with np.errstate(all="ignore"):
            want = every + other
        np.testing.assert_array_equal(into.astype(np.float32), want.astype(np.float32), err_msg=name)
