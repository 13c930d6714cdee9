# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of allreduces by racks and single ranks: every bit compared, none may hang.

    cd tests && python -m protocol.composed_schedules --seeds 0:10000

The native machines run in virtual time. Each rack has endpoints around a switch, on links that lose up to
20 % of the packets and duplicate some. The members form a ring, whose messages take random times. Ranks begin
late. Each rank halts its rail at a different time, and then makes new calls. Sometimes a rank dies.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from protocol.calls import BFLOAT16, Array, Call, bits, draw_values, native
from protocol.oracle import expected
from protocol.seeds import main

from railweave._native.collectives import DType, ReduceOp
from railweave._rigs import composed
from railweave._rigs.collectives import Call as Sum

DTYPES = {
    np.dtype(np.float32): DType.FLOAT32,
    np.dtype(np.int32): DType.INT32,
    np.dtype(np.float16): DType.FLOAT16,
    BFLOAT16: DType.BFLOAT16,
}
OPS = {"sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "max": ReduceOp.MAX, "min": ReduceOp.MIN}
SIZES = ((1, 1), (1, 1, 1), (2, 1), (2, 2), (3, 1, 1), (4, 4), (4, 2, 1), (2, 3, 1), (4, 1, 1, 1, 1), (6, 4))


def sum_of(call: Call, rank: int) -> Sum:
    """Return a rank's part of an allreduce, in the form for the native code."""
    arrays = (native(call.given[rank]), native(call.outputs[rank]))
    return Sum(DTYPES[call.inputs[rank].dtype], OPS[call.op], *arrays)


def wrong(call: Call, rank: int, lanes: int) -> int:
    """Count the elements whose bits differ from the definition. All NaNs count as equal."""
    (wanted, *_), got = call.expected(partial(defined, call.op, lanes)), call.outputs[rank]
    return int(((bits(wanted) != bits(got)) & ~(nan(wanted) & nan(got))).sum())


def check_outcomes(
    eras: Sequence[Sequence[Call]],
    outcomes: Sequence[tuple[list[int], str | None]],
    lanes: int,
    *,
    may_fail: bool,
) -> None:
    """Raise AssertionError for wrong bits, and for a rank that neither completes the last era nor fails.

    `outcomes` has the numbers of the calls that each rank has completed, and its failure.
    """
    calls = list(itertools.chain(*eras))
    last = range(len(calls) - len(eras[-1]), len(calls))
    for rank, (done, failure) in enumerate(outcomes):
        assert done == sorted(set(done)), f"rank {rank} reported {done}"
        for number in done:
            count = wrong(calls[number], rank, lanes)
            assert not count, f"rank {rank}, call {number}: {count} elements are wrong"
        assert failure is None or may_fail, f"rank {rank}: {failure}"
        assert failure or {*last} <= {*done}, f"rank {rank} hangs: done {done} of {len(calls)} calls"


def defined(op: str, lanes: int, parts: Any) -> Array:
    """Return the defined result of one packet after the other, without wide lanes and seals."""
    return expected(parts, op, lanes, wide=False, sealed=False)


def nan(values: Array) -> Array:
    """Return which elements are NaN, with any bits."""
    return np.isnan(values.astype(np.float32)) if values.dtype != np.int32 else np.zeros(len(values), bool)


def draw_inputs(numbers: np.random.Generator, dtype: np.dtype[Any], count: int, ranks: int) -> list[Array]:
    """Draw all ranks' values. Some ranks have NaN and Inf."""
    return [draw_values(numbers, dtype, count, numbers.choice([0, 0, 0, 0, 0.02])) for _ in range(ranks)]


class Schedule:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.counts: Counter[str] = Counter()
        choice = self.random.choice
        self.members = self.draw_members()
        self.size = sum(map(len, self.members))
        self.lanes = choice((1, 4, 8, 64))
        self.calls = [
            [self.draw_call() for _ in range(self.random.randint(1, 3))] for _ in range(choice((1, 1, 2, 3)))
        ]
        self.counts["halt"] += len(self.calls) - 1
        self.dies = self.random.randrange(self.size) if self.random.random() < 0.1 else -1
        self.counts["death"] += self.dies >= 0
        loss = choice((0.0, 0.0, 0.01, 0.2))
        self.options = {
            "lanes": self.lanes,
            "slots": choice((1, 2, 8, 64)) if loss < 0.1 else 8,  # few slots with much loss take too long
            "message_bytes": choice((16, 100, 1000, 10_000)),
            "piece_bytes": choice((4, 64, 1000)),
            "narrow_bytes": choice((0, 0, 200, 20_000)),
            "loss": loss,
            "duplicate": choice((0.0, 0.05)),
            "late_s": choice((1e-5, 1e-3, 2e-2)),
        }
        self.counts["loss"] += self.options["loss"] > 0

    def draw_members(self) -> list[list[int]]:
        """Draw racks and single ranks, which ranks are where, and their order."""
        sizes = list(self.random.choice(SIZES))
        self.random.shuffle(sizes)
        ranks = list(range(sum(sizes)))
        if self.random.random() < 0.5:
            self.random.shuffle(ranks)
        return [[ranks.pop(0) for _ in range(size)] for size in sizes]

    def draw_call(self) -> Call:
        """Draw one call."""
        dtype = self.random.choice(list(DTYPES))
        count = self.random.choice((1, 2, 7, 8, 9, 63, self.random.randint(1, 600)))
        inputs = draw_inputs(self.numbers, dtype, count, self.size)
        return Call(inputs, op=self.random.choice(list(OPS)), in_place=self.random.random() < 0.5)

    def run(self) -> None:
        """Run to the end. Raise AssertionError for a wrong bit or a hang."""
        calls = [[[sum_of(call, rank) for call in era] for rank in range(self.size)] for era in self.calls]
        outcomes, _ = composed.simulate(
            calls, self.members, seed=self.random.getrandbits(32), dies=self.dies, **self.options
        )
        check_outcomes(self.calls, outcomes, self.lanes, may_fail=self.dies >= 0)


if __name__ == "__main__":
    sys.exit(main(Schedule, __doc__))
