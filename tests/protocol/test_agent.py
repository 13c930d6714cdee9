# SPDX-License-Identifier: Apache-2.0
"""An agent with threads that run at the same time."""

from __future__ import annotations

import threading
import time

import numpy as np
from protocol.recovering import Job, Rank

from railweave._native.agent import Call
from railweave._native.collectives import DType, ReduceOp

DEADLINE_S = 30.0


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
