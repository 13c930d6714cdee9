# SPDX-License-Identifier: Apache-2.0
"""Messages of an RDMA rail with and without a clearance, over loopback."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from protocol.jobs import StaticJob, skip_unless_possible

from railweave.hosts.communicator import Communicator

RANKS = 3
RAILS = "rdma=rdma@lo"
SHORT = 16 * 1024  # bytes of the longest message without a clearance
DEADLINE_S = 30


def test_sizes_around_the_longest_short_message() -> None:
    """Calls follow each other at once, so that messages of both kinds are under way."""
    skip_unless_possible(RAILS)
    counts = [size // 4 + more for size in (4, SHORT // 2, SHORT, 3 * SHORT) for more in (-1, 0, 1)][1:]

    def work(comm: Communicator) -> None:
        inputs = [np.arange(count, dtype=np.int32) * (comm.rank + 1) for count in counts]
        outputs = [np.empty_like(x) for x in inputs]
        calls = [comm.all_reduce(x, out=out, async_op=True) for x, out in zip(inputs, outputs, strict=True)]
        for call, out in zip(calls, outputs, strict=True):
            call.wait(DEADLINE_S)
            np.testing.assert_array_equal(out, np.arange(len(out)) * (1 + 2 + 3))

    StaticJob(RANKS).run(work, RAILS)


@pytest.mark.parametrize("size", [400, SHORT + 4], ids=["short", "long"])
def test_a_root_is_far_ahead(size: int) -> None:
    """The root is ahead by more messages than its peers can store."""
    skip_unless_possible(RAILS)
    calls, ahead = 200, threading.Event()

    def work(comm: Communicator) -> None:
        arrays = [np.full(size // 4, number if comm.rank == 0 else -1, np.int32) for number in range(calls)]
        if comm.rank != 0:
            assert ahead.wait(DEADLINE_S)
        pending = [comm.broadcast(x, 0, async_op=True) for x in arrays]
        if comm.rank == 0:
            pending[-1].wait(DEADLINE_S)  # a root already has its result
            ahead.set()
        for number, (call, x) in enumerate(zip(pending, arrays, strict=True)):
            call.wait(DEADLINE_S)
            assert (x == number).all()

    StaticJob(RANKS).run(work, RAILS)
