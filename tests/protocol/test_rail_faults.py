# SPDX-License-Identifier: Apache-2.0
"""A rail whose code throws is excluded and used again. The job goes on over its other rails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from protocol.recovering import DEADLINE_S, Job, Rank

from railweave._native.agent import Agent, Call, Failure, FailureKind
from railweave._native.collectives import DType, ReduceOp

BROKEN = 1  # the rail
COUNTS = (10, 100_000)


def calls(rank: Rank, numbers: range) -> None:
    """Sum on all ranks, alternately on one rail and on all rails, and check each sum."""
    for number in numbers:
        x = np.full(COUNTS[number % 2], rank.rank + number, np.int32)
        assert (rank.all_reduce(x) == sum(r + number for r in range(rank.size))).all()


def until_used_again(rank: Rank) -> None:
    """Wait until the rail has been excluded and is in use again."""
    rank.until(lambda: len(rank.agent.changes(0)) >= 2 and rank.alive(1 << 30) == [0, BROKEN])


@pytest.mark.parametrize(
    "where", ["start", "skip_call", "expire", "slice_done", "can_start", "deadline", "progress"]
)
def test_a_rail_that_throws_is_excluded_and_used_again(where: str) -> None:
    """The rail throws on one rank. The other ranks have to learn of this fault."""
    with Job(3, breaking=True) as job:
        job.run(lambda rank: calls(rank, range(4)))
        job.ranks[1].agent.break_at(BROKEN, where)
        job.run(lambda rank: calls(rank, range(4, 40)))
        job.run(until_used_again)
        job.run(lambda rank: calls(rank, range(40, 60)))
        for rank in job.ranks:
            state = rank.agent.rail_states()[BROKEN]
            assert (state.state, state.failures) == ("up", 1)
            assert f"its own code failed: {where} is broken" in state.last_failure


@pytest.mark.parametrize("where", ["halt", "restart", "next_chunks", "stats"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_rail_that_throws_while_it_is_out_is_used_again(where: str, times: int) -> None:
    with Job(2, breaking=True) as job:
        job.ranks[1].agent.break_at(BROKEN, where, times)
        job.ranks[0].agent.set_obstacle(BROKEN, "it is tested")
        job.run(lambda rank: rank.until(lambda: rank.alive(1 << 30) == [0]))
        job.run(lambda rank: calls(rank, range(10)))
        job.ranks[0].agent.set_obstacle(BROKEN, "")
        job.run(until_used_again)
        job.run(lambda rank: calls(rank, range(10, 30)))
        assert all(rank.agent.failure() is None for rank in job.ranks)


def test_a_rail_that_throws_before_recovery_is_known_is_excluded() -> None:
    """A rail may throw while the ranks connect their rails one after the other."""
    with Job(2, breaking=True, recovers=False) as job:
        for rank in job.ranks:
            rank.agent.break_at(BROKEN, "expire")
            rank.agent.stats()  # a turn of the loop
        job.enable_recovery()
        job.run(until_used_again)
        job.run(lambda rank: calls(rank, range(20)))


@contextmanager
def lone_rail() -> Iterator[list[Rank]]:
    """Make two ranks with a single rail."""
    with Job(2, 1, breaking=True, recovers=False) as job:
        for rank in job.ranks:
            rank.agent.forgo_recovery()
        yield job.ranks


def submit(rank: Rank) -> int:
    return rank.submit(
        Call(DType.FLOAT32, ReduceOp.SUM, 10), np.ones(10, np.float32), np.empty(10, np.float32)
    )


@pytest.mark.parametrize("where", ["start", "expire", "slice_done"])
def test_the_only_rail_that_throws_ends_the_communicator_with_its_name(where: str) -> None:
    with lone_rail() as (broken, other):
        broken.agent.break_at(0, where)
        end = time.monotonic() + DEADLINE_S
        while broken.agent.failure() is None:  # a call may complete before the rail sets a timer
            assert time.monotonic() < end
            told = [(rank.agent, submit(rank)) for rank in (broken, other)]
            for agent, op in told:
                assert agent.wait(op, DEADLINE_S)
        # Except at the start, the other rank may already have its result.
        for rank in (broken, other) if where == "start" else (broken,):
            failure = rank.agent.failure()
            assert failure is not None
            assert (failure.kind, failure.rail) == (FailureKind.RAIL_DOWN, "tcp0")
            assert failure.message == f"its own code failed: {where} is broken"


@pytest.mark.parametrize("where", ["abort", "announce"])
def test_a_rail_that_throws_at_the_end_keeps_nobody_waiting(where: str) -> None:
    with lone_rail() as (rank, _), ThreadPoolExecutor(1) as pool:
        rank.agent.break_at(0, where, 100)
        op = submit(rank)
        waiting = pool.submit(rank.agent.wait, op, DEADLINE_S)
        rank.agent.fail(Failure(FailureKind.PEER_LOST, 1, "it is tested"))
        assert waiting.result(DEADLINE_S)
        failure = rank.agent.failure_of(op)
        assert failure is not None
        assert failure.message == "it is tested"


@pytest.mark.parametrize("start_now", [True, False])
def test_a_rail_that_cannot_start_a_slice_ends_the_communicator_and_holds_nothing(start_now: bool) -> None:
    agent = Agent(0, 2)
    rail, _ = agent.add_ina("ina", "127.0.0.1", "lo")  # a rail without a tree
    x, out = np.ones(4, np.float32), np.empty(4, np.float32)
    point = op, _ = agent.plan_point(DEADLINE_S)
    agent.submit(point, Call(DType.FLOAT32, ReduceOp.SUM, 4), x, out, [(rail, 0, 4)], start_now)
    assert agent.wait(op, DEADLINE_S)
    failure = agent.failure_of(op)
    assert failure is not None
    assert (failure.kind, failure.rail) == (FailureKind.RAIL_DOWN, "ina")
    assert "must be attached" in failure.message
    stats = threading.Thread(target=agent.stats, daemon=True)  # hangs if a thread never releases the loop
    stats.start()
    stats.join(DEADLINE_S)
    assert not stats.is_alive()
    agent.close(0)
