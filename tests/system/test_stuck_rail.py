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
from protocol.recovering import Job, Rank
from system.namespaces import inside, ip, namespace

SMALL = 100  # elements: such calls alternate between rails, and each uses one rail


@pytest.fixture
def job() -> Iterator[Job]:
    """Two ranks on the loopback interface of a separate namespace."""
    with namespace() as alone, inside(alone):
        ip("link", "set", "lo", "up")
        with Job(2) as made:
            yield made


def drop_tcp(ports: list[int]) -> None:
    """Drop all segments to or from these ports."""
    among = "{ " + ", ".join(map(str, ports)) + " }"
    rules = (
        "add table ip stuck; add chain ip stuck out { type filter hook output priority 0; }; "
        f"add rule ip stuck out tcp dport {among} drop; "
        f"add rule ip stuck out tcp sport {among} drop"
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
