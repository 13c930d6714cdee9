# SPDX-License-Identifier: Apache-2.0
"""The algorithms of host rails over a simulated network, against numpy."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from protocol.calls import Array, assert_bits, integer_call, native, total
from protocol.calls import Call as RanksCall
from protocol.reference import (
    DTYPES,
    by_bruck,
    by_doubling,
    by_ring,
    exactly,
    numpys,
    random_array,
    scattered_by_bruck,
    scattered_by_ring,
)

from railweave._native.collectives import Collective, DType, ReduceOp
from railweave._rigs import collectives
from railweave._rigs.collectives import Call


@dataclass(frozen=True)
class Spec:
    """One call. The rail carries the part `span` of the tensor or of each shard."""

    collective: Collective
    dtype: DType
    op: ReduceOp
    count: int
    root: int
    in_place: bool = False
    span: tuple[float, float] = (0.0, 1.0)

    @property
    def sharded(self) -> bool:
        return self.collective in (Collective.REDUCE_SCATTER, Collective.ALL_GATHER)

    @property
    def part(self) -> slice:
        first, last = sorted(int(edge * self.count) for edge in self.span)
        first = min(first, self.count - 1)
        return slice(first, max(last, first + 1))


@dataclass(frozen=True)
class Case:
    ranks: int
    calls: list[Spec]
    seed: int
    small_bytes: int
    bruck_bytes: int
    segment_bytes: int = 1 << 16
    special: bool = False


def given(spec: Spec, case: Case, numbers: np.random.Generator) -> RanksCall:
    """Draw the ranks' inputs of a call."""
    wide = case.ranks if spec.collective == Collective.REDUCE_SCATTER else 1
    inputs = [random_array(numbers, spec.dtype, wide * spec.count, case.special) for _ in range(case.ranks)]
    return RanksCall(
        [each.reshape(wide, -1) if wide > 1 else each for each in inputs],
        spec.collective,
        root=spec.root % case.ranks,
        offset=spec.part.start,
        count=spec.part.stop - spec.part.start,
        in_place=spec.in_place,
    )


def of_rank(spec: Spec, call: RanksCall, rank: int) -> Call:
    """Return a rank's part, in the form for the native code."""
    part = (call.part.start, call.part.stop - call.part.start)
    arrays = (native(call.given[rank]), native(call.outputs[rank]))
    return Call(spec.dtype, spec.op, *arrays, call.collective, call.root, part)


def expected(spec: Spec, case: Case, call: RanksCall) -> list[Array]:
    """Return the expected contents of the rail's part at the end, by rank."""
    parts = [values[..., call.part] for values in call.inputs]
    size = (call.part.stop - call.part.start) * parts[0].itemsize * (case.ranks if spec.sharded else 1)
    small = size <= case.small_bytes
    with np.errstate(all="ignore"):
        if spec.collective == Collective.REDUCE_SCATTER:
            return (scattered_by_bruck if small else scattered_by_ring)(
                spec.op, [list(each) for each in parts]
            )
        large = by_bruck if size <= case.bruck_bytes else by_ring
        return call.expected(partial(by_doubling if small else large, spec.op))


def check(spec: Spec, case: Case, call: RanksCall) -> None:
    """Compare all bits with numpy's result. NaNs may have other bits, unless the call only moves data."""
    for rank, want in enumerate(expected(spec, case, call)):
        got = np.ascontiguousarray(call.outputs[rank][..., call.part])
        if spec.collective == Collective.ALL_REDUCE:
            assert_bits([got], np.ascontiguousarray(call.outputs[0][..., call.part]))
        moved = spec.collective in (Collective.ALL_GATHER, Collective.BROADCAST)
        if not moved:
            check_values(spec, exactly(got), exactly(np.ascontiguousarray(want)))
        call.check(rank, want if moved else got)  # also outside the part
        if not spec.in_place:
            assert_bits([call.given[rank]], call.inputs[rank])


def check_values(spec: Spec, got: Array, want: Array) -> None:
    np.testing.assert_array_equal(got, want)
    if spec.op in {ReduceOp.MAX, ReduceOp.MIN}:
        return  # numpy's choice between +0 and -0 depends on its vector instructions
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


spans = st.one_of(st.just((0.0, 1.0)), st.tuples(st.floats(0, 1), st.floats(0, 1)))
specs = st.builds(
    Spec,
    collective=st.sampled_from(Collective),
    dtype=st.sampled_from(list(DTYPES)),
    op=st.sampled_from(ReduceOp),
    count=st.integers(1, 700),
    root=st.integers(0, 8),
    in_place=st.booleans(),
    span=spans,
)
cases = st.builds(
    Case,
    ranks=st.integers(2, 9),
    calls=st.lists(specs, min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
    small_bytes=st.sampled_from([0, 400, 1 << 20]),
    bruck_bytes=st.sampled_from([0, 1000, 1 << 20]),
    segment_bytes=st.sampled_from([4, 40, 256, 1 << 16]),
    special=st.booleans(),
)


def run(case: Case) -> None:
    """Check all results. The simulated transport refuses messages that a repair channel cannot carry."""
    numbers = np.random.default_rng(case.seed)
    made = [(spec, given(spec, case, numbers)) for spec in case.calls]
    ranks = [[of_rank(spec, call, rank) for spec, call in made] for rank in range(case.ranks)]
    outcomes = collectives.simulate(
        [ranks], case.seed, case.small_bytes, case.segment_bytes, case.bruck_bytes
    )
    assert outcomes == [(list(range(len(case.calls))), None)] * case.ranks
    for spec, call in made:
        check(spec, case, call)


@settings(max_examples=200, deadline=None)
@drawn(cases)
def test_every_rank_gets_the_right_result(case: Case) -> None:
    run(case)


@pytest.mark.parametrize("ranks", [10, 16, 17, 31, 32, 33])
def test_many_ranks_get_the_right_result(ranks: int) -> None:
    specs = [
        Spec(collective, DType.INT32, ReduceOp.SUM, ranks, root)
        for collective, root in itertools.product(Collective, (1, ranks - 1))
    ]
    for small_bytes, bruck_bytes in ((0, 0), (0, 1 << 20), (1 << 20, 0)):
        run(Case(ranks, specs, ranks, small_bytes, bruck_bytes))


ONES = np.ones(400, np.float32)
ODD_ONES = {
    "all_reduce #0 of 100 float32, max": (Collective.ALL_REDUCE, ReduceOp.MAX, 0, 100),
    "all_reduce #0 of 99 float32, sum": (Collective.ALL_REDUCE, ReduceOp.SUM, 0, 99),
    "reduce_scatter #0 of 100 float32 per rank, sum": (Collective.REDUCE_SCATTER, ReduceOp.SUM, 0, 100),
    "all_gather #0 of 100 float32 per rank": (Collective.ALL_GATHER, ReduceOp.SUM, 0, 100),
    "broadcast #0 of 100 float32 from rank 2": (Collective.BROADCAST, ReduceOp.SUM, 2, 100),
    "broadcast #0 of 100 float32 from rank 3": (Collective.BROADCAST, ReduceOp.SUM, 3, 100),
}


def odd_call(collective: Collective, op: ReduceOp, root: int, count: int) -> Call:
    given = ONES[: count * (4 if collective == Collective.REDUCE_SCATTER else 1)]
    out = np.empty(count * (4 if collective == Collective.ALL_GATHER else 1), np.float32)
    return Call(DType.FLOAT32, op, given, out, collective, root)


USUAL = (Collective.ALL_REDUCE, ReduceOp.SUM, 0, 100)
RANKS = 4


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
@pytest.mark.parametrize("odd_one_out", range(RANKS))
@pytest.mark.parametrize("odd", ODD_ONES)
def test_ranks_that_call_different_things_all_learn_it(odd: str, small_bytes: int, odd_one_out: int) -> None:
    """A rank that only sends in a broadcast may complete it. The next call then finds the mismatch."""

    def calls(rank: int) -> list[Call]:
        return [odd_call(*(ODD_ONES[odd] if rank == odd_one_out else USUAL)), odd_call(*USUAL)]

    outcomes = collectives.simulate([[calls(rank) for rank in range(RANKS)]], 7, small_bytes, 64)
    for rank, (done, failure) in enumerate(outcomes):
        through = rank == odd_one_out and done == [0]
        assert through or done == []
        assert failure is not None
        assert "all_reduce #0 of 100 float32, sum" in failure
        if odd.startswith("broadcast"):
            assert odd in failure or "all_reduce #1 of 100 float32, sum" in failure
        else:
            assert odd in failure
            assert not through


def test_roots_that_differ_are_found() -> None:
    """Two roots that only send find the mismatch, at the latest with the next call."""
    for ranks in (2, 5):
        calls = [
            [odd_call(Collective.BROADCAST, ReduceOp.SUM, min(rank, 1), 100), odd_call(*USUAL)]
            for rank in range(ranks)
        ]
        for done, failure in collectives.simulate([calls], 7, 0, 64):
            assert 1 not in done
            assert failure is not None
            assert "from rank 0" in failure or "from rank 1" in failure


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
        collectives.reduce(dtype, op, native(into), native(operands[0]), native(operands[1]))
        np.testing.assert_array_equal(into.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_every_half_is_converted_and_rounded_as_numpy_does(dtype: DType) -> None:
    """Add 0 to all 65,536 numbers, and add numbers with sums that are ties, overflow or vanish."""
    every = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype])
    into = np.empty_like(every)
    for other in (np.zeros_like(every), np.roll(every, 1), every[::-1].copy(), np.roll(every, 12345)):
        collectives.reduce(dtype, ReduceOp.SUM, native(into), native(every), native(other))
        with np.errstate(all="ignore"):
            want = every + other
        np.testing.assert_array_equal(into.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("seed", range(30))
def test_rails_that_are_halted_and_restarted(seed: int) -> None:
    """A halted rail gives up its slices at once. Late messages of these slices change no later slice."""
    draw = random.Random(seed)
    ranks = draw.randint(2, 5)
    incarnations = [
        [
            integer_call(draw.getrandbits(32), ranks, Collective.ALL_REDUCE, draw.choice([1, 5, 500, 4000]))
            for _ in range(draw.randint(1, 3))
        ]
        for _ in range(draw.randint(2, 4))
    ]
    whole = Spec(Collective.ALL_REDUCE, DType.INT32, ReduceOp.SUM, 0, 0)
    calls = [
        [[of_rank(whole, call, rank) for call in made] for rank in range(ranks)] for made in incarnations
    ]
    outcomes = collectives.simulate(calls, seed, small_bytes=64, segment_bytes=256, bruck_bytes=512)
    begun = list(chain(*incarnations))
    last = set(range(len(begun) - len(incarnations[-1]), len(begun)))
    for rank, (done, failure) in enumerate(outcomes):
        assert failure is None
        assert done == sorted(set(done))
        assert last <= set(done)
        for number, call in enumerate(begun):
            if number in done:
                call.check(rank, total(call.inputs))
            else:
                assert (call.outputs[rank].view(np.uint8) == collectives.REUSED).all()
