# SPDX-License-Identifier: Apache-2.0
"""Communicators whose in-network rail loses its trees. Calls continue on another rail."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from protocol.jobs import DEADLINE_S, StaticJob
from protocol.loopback_switch import GROUP, PLACE, LoopbackSwitch

from railweave.hosts.communicator import Communicator
from railweave.hosts.decisions import Reason
from railweave.hosts.events import GroupMoved, GroupPaused, LeaseLost

RANKS = 3
RAILS = "ina=ina@lo,tcp=tcp@lo"
EQUAL = {"ina": 1, "tcp": 1}
COUNT = 5000


def call_until(comm: Communicator, reached: Callable[[], bool]) -> None:
    """Sum and check until all ranks have `reached` in the same round."""
    end = time.monotonic() + DEADLINE_S
    while True:
        total = comm.all_reduce(np.arange(COUNT, dtype=np.int32) + comm.rank)
        np.testing.assert_array_equal(total, RANKS * np.arange(COUNT) + 3)
        if comm.all_reduce(np.array([reached()], np.int32), "min")[0]:
            return
        assert time.monotonic() < end, comm.stats()


def state_of(comm: Communicator, rail: str) -> str:
    return next(report.state for report in comm.stats().rails if report.name == rail)


def test_a_lost_lease_leaves_the_other_rails_and_is_told(job: StaticJob) -> None:
    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(COUNT, np.float32))
        job.meet()
        job.memberships[comm.rank].on_event(LeaseLost("lease 7 is unknown"))
        call_until(comm, lambda: state_of(comm, "ina") == "down")
        standing = [(d.rail, d.reason) for d in comm.why() if not d.collective]
        assert standing == [("ina", Reason.RAIL_DOWN)]
        assert "lease 7 is unknown" in next(d.detail for d in comm.why() if d.rail == "ina")
        with urllib.request.urlopen(f"http://{comm.metrics_address}/metrics") as answer:
            told = answer.read().decode()
        who = f'job="default",kind="ina",rail="ina",rank="{comm.rank}"'
        assert f'railweave_rail_state{{{who},state="down"}} 1.0' in told
        assert f"railweave_rail_failures_total{{{who}}} 1.0" in told
        job.meet()

    job.run(work, RAILS, shares=EQUAL, metrics="127.0.0.1:0")


def test_a_group_that_is_moved_after_a_while_is_used_again(switch: LoopbackSwitch, job: StaticJob) -> None:
    moved = replace(PLACE, group=GROUP + 1)

    def work(comm: Communicator) -> None:
        mine = job.memberships[comm.rank]
        comm.all_reduce(np.ones(COUNT, np.float32))
        job.meet()
        mine.on_event(GroupPaused("ina", 0, GROUP, "its switch is gone"))
        call_until(comm, lambda: state_of(comm, "ina") != "up")
        _, position = mine.positions.get(timeout=DEADLINE_S)
        lowest = int(comm.all_reduce(np.array([position], np.int64), "min")[0])
        if comm.rank == 0:
            switch.restart(moved.group)
        job.meet()
        mine.on_event(GroupMoved(GROUP, replace(moved, child=comm.rank), lowest))
        call_until(comm, lambda: state_of(comm, "ina") == "up")
        before = comm.stats().rails[0].slices
        call_until(comm, lambda: comm.stats().rails[0].slices > before)

    job.run(work, RAILS, shares=EQUAL)


def test_types_that_only_a_dead_rail_can_carry_wait_for_it(job: StaticJob) -> None:
    """The switch cannot sum float64. The call waits until the excluded rail comes back."""

    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(COUNT, np.float32))
        job.meet()
        comm._agent.suspect(1, "a test says so")
        call_until(comm, lambda: comm.stats().rails[1].failures == 1)
        np.testing.assert_array_equal(comm.all_reduce(np.full(3, 0.5)), 1.5)

    job.run(work, RAILS, shares=EQUAL)
