# SPDX-License-Identifier: Apache-2.0
"""Every collective survives the death of rails. Results are exact, although lost pieces are repeated."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

import numpy as np
import pytest
from protocol.calls import Call
from protocol.recovering import Job, Rank

from railweave._native import agent
from railweave._native.collectives import Collective, DType, ReduceOp

IN_FLIGHT = 6  # calls that are submitted before the first wait
CALLS = 24
ALWAYS = 1 << 30  # a call far in the future


def made(number: int, size: int, collective: Collective, count: int, root: int, in_place: bool) -> Call:
    """Return a call with numbers that every rank knows."""
    numbers = np.random.default_rng(number)
    shape = (size, count) if collective == Collective.REDUCE_SCATTER else (count,)
    inputs = [numbers.integers(-(1 << 20), 1 << 20, shape, np.int32) for _ in range(size)]
    root = root if collective == Collective.BROADCAST else 0
    return Call(inputs, collective, root=root, in_place=in_place)


def drawn(seed: int, calls: range, size: int) -> list[Call]:
    random = np.random.default_rng(seed)
    return [
        made(
            *(number, size, list(Collective)[random.integers(4)]),
            count=int(random.choice([1, 500, 30_000, 120_000])),
            root=int(random.integers(size)),
            in_place=bool(random.integers(2)),
        )
        for number in calls
    ]


def run(rank: Rank, todo: list[Call], lost: Collection[int] = (), back: Collection[int] = ()) -> None:
    """Make the calls, several in flight. Rank 1 reports that rails have an obstacle, or have none any more.

    The rails `lost` die in the middle of a large call: rank 0 makes this call after the others, when the
    rails are dead.
    """
    pending: deque[tuple[Call, int]] = deque()

    def submit(call: Call) -> None:
        native = agent.Call(DType.INT32, ReduceOp.SUM, call.whole, call.collective, call.root)
        pending.append((call, rank.submit(native, call.given[rank.rank], call.outputs[rank.rank])))

    def finish() -> None:
        call, op = pending.popleft()
        rank.wait(op)
        wanted = call.expected(lambda parts: np.sum(parts, axis=0, dtype=np.int32))
        call.check(rank.rank, wanted[rank.rank], call.collective)

    for place, call in enumerate(todo):
        middle = place == len(todo) // 2
        if middle and rank.rank == 0:
            rank.until(lambda: not {*lost} & {*rank.alive(ALWAYS)})
        submit(call)
        if middle and rank.rank == 1:
            for rail in lost:
                rank.agent.set_obstacle(rail, "it is tested")
            for rail in back:
                rank.agent.set_obstacle(rail, "")
        if len(pending) == IN_FLIGHT:
            finish()
    while pending:
        finish()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("collective", Collective)
def test_all_collectives_while_rails_come_and_go(size: int, collective: Collective) -> None:
    """Two rails die and come back, then another one. Deaths interrupt a call of the given collective."""
    with Job(size, rails=3) as job:
        for seed, lost in enumerate(((1, 2), (0,))):
            going, coming = (drawn(seed, range(first, first + CALLS), size) for first in (0, CALLS))
            going[CALLS // 2] = made(CALLS // 2, size, collective, 120_000, root=1, in_place=bool(seed))
            job.run(lambda rank: run(rank, going, lost=lost))  # noqa: B023
            job.run(lambda rank: run(rank, coming, back=lost))  # noqa: B023
            job.run(lambda rank: rank.until(lambda: rank.alive(ALWAYS) == [0, 1, 2]))
        for rank in job.ranks:
            assert all(state.failures >= 1 for state in rank.agent.rail_states())
            assert any(record.repair for record in rank.agent.drain_records())
