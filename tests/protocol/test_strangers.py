# SPDX-License-Identifier: Apache-2.0
"""Strangers reach the ports of a job. The job counts them and goes on."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from protocol.jobs import StaticJob, StaticMembership
from protocol.recovering import DEADLINE_S, Job, Rank

from railweave.hosts.communicator import Communicator


def until(rank: Rank, reached: Callable[[], bool]) -> None:
    """Let the rank's loop run until `reached`."""
    latest = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < latest
        rank.agent.wait_change(0, 0.01)


def test_datagrams_from_other_addresses_are_counted() -> None:
    with Job(2) as job, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        rank = job.ranks[0]
        for size in (0, 20, 37, 9000):
            stranger.sendto(bytes(size), ("127.0.0.1", rank.control[1]))
        until(rank, lambda: rank.agent.stats()[1].malformed == 4)
        job.run(lambda each: each.all_reduce(np.ones(4, np.float32)))
        assert [each.agent.changes(0) for each in job.ranks] == [[], []]


class Occupied(StaticJob):
    """A job whose first rail has ports of listeners that never answer."""

    def __init__(self, size: int, silent: socket.socket) -> None:
        super().__init__(size)
        self.port = silent.getsockname()[1]

    def join(self, controller: str, **asked: Any) -> StaticMembership:
        joined = super().join(controller, **asked)
        members = {
            rank: [replace(first, port=self.port), *others]
            for rank, (first, *others) in joined.members.items()
        }
        return replace(joined, members=members)


def test_a_job_starts_on_the_rails_that_can_be_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railweave.hosts.rails.JOIN_S", 0.2)

    def work(comm: Communicator) -> list[str]:
        x = np.ones(10, np.float32)
        assert (comm.all_reduce(x) == 3).all()
        return [rail.name for rail in comm.stats().rails if rail.state == "up"]

    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert Occupied(3, silent).run(work, "left=tcp@lo,right=tcp@lo") == [["right"]] * 3
