# SPDX-License-Identifier: Apache-2.0
"""A rail whose heartbeats pass but whose calls make no progress is excluded."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from protocol.recovering import DEADLINE_S, Job, Rank
from system.namespaces import inside, ip, namespace

from railweave._native.agent import Call
from railweave._native.collectives import DType, ReduceOp

SMALL = 100  # elements: such calls alternate between rails, and each uses one rail


@pytest.fixture
def job() -> Iterator[Job]:
    """Two ranks on the loopback interface of a separate namespace."""
    with namespace() as alone, inside(alone):
        ip("link", "set", "lo", "up")
        with Job(2) as made:
            yield made


def drop_tcp(ports: list[int], over: str = "") -> None:
    """Drop all segments to or from these ports, or only the segments `over` a rate."""
    among = "{ " + ", ".join(map(str, ports)) + " }"
    rules = (
        "add table ip stuck; add chain ip stuck out { type filter hook output priority 0; }; "
        f"add rule ip stuck out tcp dport {among} {over} drop; "
        f"add rule ip stuck out tcp sport {among} {over} drop"
    )
    subprocess.run(["nft", rules], check=True)


def sums(rank: Rank, calls: range) -> None:
    for number in calls:
        x = np.full(SMALL, rank.rank + number, np.float32)
        assert (rank.all_reduce(x) == sum(r + number for r in range(rank.size))).all()


def excludes_a_rail_on_which_nothing_moves(job: Job) -> None:
    job.run(lambda rank: sums(rank, range(10)))
    drop_tcp([rank.ports[1] for rank in job.ranks])
    job.run(lambda rank: sums(rank, range(10, 30)))
    for rank in job.ranks:
        state = rank.agent.rail_states()[1]
        assert state.failures == 1
        assert "stood still" in state.reason
        assert rank.agent.rail_states()[0].failures == 0


def test_a_rail_on_which_nothing_moves_is_excluded_although_its_heartbeats_pass(job: Job) -> None:
    excludes_a_rail_on_which_nothing_moves(job)


def test_a_rail_that_is_much_slower_than_expected_is_excluded_by_a_call_of_its_own(job: Job) -> None:
    """The call makes progress all the time. The other rail does not show how long it should take."""
    size = 500_000
    x = np.ones(size, np.int32)

    def on_the_second_rail(rank: Rank) -> None:
        out = np.empty_like(x)
        point = op, _ = rank.agent.plan_point(DEADLINE_S)
        call = Call(DType.INT32, ReduceOp.SUM, size)
        assert rank.agent.submit(point, call, x, out, [(1, 0, size)], True, 0.02)
        rank.wait(op)
        assert (out == rank.size).all()

    job.run(on_the_second_rail)
    drop_tcp([rank.ports[1] for rank in job.ranks], over="limit rate over 200 kbytes/second burst 64 kbytes")
    job.run(on_the_second_rail)
    for rank in job.ranks:
        assert "instead of 20 ms" in rank.agent.rail_states()[1].reason
        assert rank.agent.rail_states()[0].failures == 0


CHILD = """
from protocol.recovering import Job
from system.test_stuck_rail import excludes_a_rail_on_which_nothing_moves
with Job(2) as job:
    excludes_a_rail_on_which_nothing_moves(job)
"""


def test_it_is_excluded_also_where_processes_stand_still_again_and_again() -> None:
    with namespace() as alone, inside(alone):
        ip("link", "set", "lo", "up")
        child = subprocess.Popen([sys.executable, "-c", CHILD], cwd=Path(__file__).parents[1])
        try:
            for _ in range(500):
                for number in (signal.SIGSTOP, signal.SIGCONT):
                    child.send_signal(number)
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(0.06)
                if child.returncode is not None:
                    break
        finally:
            child.kill()
        assert child.wait() == 0
