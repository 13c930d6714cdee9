# SPDX-License-Identifier: Apache-2.0
"""Who is no member of a job reaches its ports: it is counted, and the job goes on."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import numpy as np
from protocol.recovering import DEADLINE_S, Job, Rank


def until(rank: Rank, reached: Callable[[], bool]) -> None:
    """Let the rank's loop run until something is true."""
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
