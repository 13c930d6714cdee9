# SPDX-License-Identifier: Apache-2.0
"""Every collective survives the death of rails: exact results, whichever pieces were lost and done anew."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from protocol.recovering import Job, Rank

from railweave._native.agent import Call
from railweave._native.collectives import Collective, DType, ReduceOp

Array = NDArray[Any]
IN_FLIGHT = 6  # calls that have been submitted and not waited for
CALLS = 24
ALWAYS = 1 << 30  # a call that is far ahead


@dataclass(frozen=True)
class Spec:
    """One call; every rank knows what all give."""

    number: int
    collective: Collective
    count: int
    root: int
    in_place: bool

    def given(self, rank: int, size: int) -> Array:
        items = self.count * (size if self.collective == Collective.REDUCE_SCATTER else 1)
        return np.random.default_rng([self.number, rank]).integers(-(1 << 20), 1 << 20, items, np.int32)

    def wanted(self, rank: int, size: int) -> Array:
        given = [self.given(other, size) for other in range(size)]
        match self.collective:
            case Collective.ALL_GATHER:
                return np.concatenate(given)
            case Collective.BROADCAST:
                return given[self.root]
        total = np.sum(given, axis=0, dtype=np.int32)
        return total if self.collective == Collective.ALL_REDUCE else np.split(total, size)[rank]

    def arrays(self, rank: int, size: int) -> tuple[Array, Array]:
        """Input and output; in place, they share what such a call may share."""
        given = self.given(rank, size)
        own = slice(rank * self.count, (rank + 1) * self.count)
        if self.collective == Collective.ALL_GATHER:
            out = np.full(self.count * size, 77, np.int32)
            if self.in_place:
                out[own] = given
            return (out[own] if self.in_place else given), out
        if not self.in_place:
            return given, np.full(self.count, 77, np.int32)
        return given, given[own] if self.collective == Collective.REDUCE_SCATTER else given


def specs(seed: int, calls: range, size: int) -> list[Spec]:
    random = np.random.default_rng(seed)
    return [
        Spec(
            number,
            list(Collective)[random.integers(4)],
            count=int(random.choice([1, 500, 30_000, 120_000])),
            root=int(random.integers(size)),
            in_place=bool(random.integers(2)),
        )
        for number in calls
    ]


def run(rank: Rank, todo: list[Spec], lost: int | None = None, back: int | None = None) -> None:
    """Make the calls, some at once; rank 1 tells that a rail has an obstacle, or has none any more.

    It is lost in the middle of a large call: others have made it, and rank 0 makes it when the rail is gone.
    """
    pending: deque[tuple[Spec, int, Array, Array]] = deque()

    def submit(spec: Spec) -> None:
        x, out = spec.arrays(rank.rank, rank.size)
        root = spec.root if spec.collective == Collective.BROADCAST else 0
        call = Call(DType.INT32, ReduceOp.SUM, spec.count, spec.collective, root)
        pending.append((spec, rank.submit(call, x, out), x, out))

    def finish() -> None:
        spec, op, _, out = pending.popleft()
        rank.wait(op)
        np.testing.assert_array_equal(out, spec.wanted(rank.rank, rank.size), err_msg=str(spec))

    for spec in todo:
        middle = spec == todo[len(todo) // 2]
        if middle and lost is not None and rank.rank == 0:
            rank.until(lambda: lost not in rank.alive(ALWAYS))
        submit(spec)
        if middle and rank.rank == 1:
            if lost is not None:
                rank.agent.set_obstacle(lost, "it is tested")
            if back is not None:
                rank.agent.set_obstacle(back, "")
        if len(pending) == IN_FLIGHT:
            finish()
    while pending:
        finish()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("collective", Collective)
def test_all_collectives_while_rails_come_and_go(size: int, collective: Collective) -> None:
    """Rail 1 dies and comes back, then rail 0 does; the call that each death breaks is of this collective."""
    with Job(size, rails=3) as job:
        for seed, rail in enumerate((1, 0)):
            going, coming = specs(seed, range(CALLS), size), specs(seed, range(CALLS, 2 * CALLS), size)
            going[CALLS // 2] = Spec(CALLS // 2, collective, 120_000, root=1, in_place=bool(seed))
            job.run(lambda rank: run(rank, going, lost=rail))  # noqa: B023
            job.run(lambda rank: rank.until(lambda: rail not in rank.alive(ALWAYS)))  # noqa: B023
            job.run(lambda rank: run(rank, coming, back=rail))  # noqa: B023
            job.run(lambda rank: rank.until(lambda: rail in rank.alive(ALWAYS)))  # noqa: B023
        for rank in job.ranks:
            first, second, _ = rank.agent.rail_states()
            assert min(first.failures, second.failures) >= 1
            assert any(record.repair for record in rank.agent.drain_records())
