# SPDX-License-Identifier: Apache-2.0
"""An agent with rails that misbehave, and with threads that run at the same time."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from protocol.recovering import Job, Rank

from railweave._native.agent import Agent, Call, FailureKind
from railweave._native.collectives import DType, ReduceOp

DEADLINE_S = 30.0


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


def test_a_rank_turns_its_loop_while_it_hands_over_a_large_result() -> None:
    """Another thread runs between two turns: the rails have finished, but the caller has no result yet."""
    x = np.ones(8 << 20, np.float32)
    seen = threading.Event()

    def look(rank: Rank, op: int) -> None:
        while not rank.agent.done(op):
            if not rank.agent.lagging(op):
                rank.agent.stats()
                if not rank.agent.done(op):
                    seen.set()

    def work(rank: Rank) -> None:
        latest = time.monotonic() + DEADLINE_S
        for _ in range(1000):
            assert time.monotonic() < latest, "no thread has been let in"
            out = np.empty_like(x)
            op = rank.submit(Call(DType.FLOAT32, ReduceOp.SUM, x.size), x, out)
            look(rank, op)
            rank.wait(op)
            assert (out == 2).all()
            job.meet()
            if seen.is_set():
                return
            job.meet()

    with Job(2) as job:
        job.run(work)
