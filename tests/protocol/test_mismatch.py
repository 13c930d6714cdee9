# SPDX-License-Identifier: Apache-2.0
"""Ranks make different calls. All ranks get an error with both descriptions, over any rails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from protocol.jobs import StaticJob, skip_unless_possible
from protocol.loopback_switch import PLACE, LoopbackSwitch

from railweave.hosts.arrays import Array
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import CollectiveMismatch
from railweave.hosts.options import parse_rails

RANKS = 3
RAILS = ["tcp=tcp@lo", "ina=ina@lo", "rdma=rdma@lo", "tcp=tcp@lo,rdma=rdma@lo,ina=ina@lo"]

Call = tuple[str, Callable[[Communicator], Any]]  # its description as call #1, and a function that makes it


def zeros(count: int, dtype: str = "float32") -> Array:
    return np.zeros(count, dtype)


def all_reduce(count: int, dtype: str = "float32", op: str = "sum") -> Call:
    return f"all_reduce #1 of {count} {dtype}, {op}", lambda comm: comm.all_reduce(zeros(count, dtype), op)


def reduce(count: int, root: int) -> Call:
    return f"reduce #1 of {count} float32, sum, to rank {root}", lambda comm: comm.reduce(zeros(count), root)


def broadcast(count: int, root: int = 0) -> Call:
    return f"broadcast #1 of {count} float32 from rank {root}", lambda comm: comm.broadcast(
        zeros(count), root
    )


def all_gather(count: int) -> Call:
    return f"all_gather #1 of {count} float32 per rank", lambda comm: comm.all_gather(zeros(count))


def reduce_scatter(count: int, op: str = "sum") -> Call:
    text = f"reduce_scatter #1 of {count // RANKS} float32 per rank, {op}"
    return text, lambda comm: comm.reduce_scatter(zeros(count), op)


PAIRS = [
    (all_reduce(10), all_reduce(11)),
    (all_reduce(10), all_reduce(10, op="max")),
    (all_reduce(10), all_reduce(10, "int32")),
    (all_reduce(10), all_reduce(10, "float64")),  # the switch cannot sum it, so only other rails carry it
    (all_reduce(10), all_reduce(100_000)),
    (all_reduce(100_000), all_reduce(100_000, op="prod")),
    (all_reduce(10, "float64"), all_reduce(100_000, op="prod")),
    (all_reduce(10), reduce(10, 0)),
    (reduce(10, 0), reduce(10, 2)),
    (all_reduce(1, "int32"), ("barrier #1", Communicator.barrier)),
    (all_reduce(1), all_reduce(0)),  # no rail may carry an empty call
    (all_reduce(0), all_reduce(100_000)),
    (all_gather(0), all_gather(7)),
    (reduce_scatter(6, "max"), reduce_scatter(0, "max")),
    (reduce(0, 0), all_gather(0)),
    (all_reduce(6000), all_gather(6000)),
    (reduce_scatter(6000), reduce_scatter(6000, "max")),
    (all_gather(6000), all_gather(6001)),
]
BROADCASTS = [
    (broadcast(6000), all_reduce(6000)),
    (broadcast(6000), broadcast(6000, 1)),
    (all_gather(6000), broadcast(6000, 1)),
]


def shares(rails: str) -> dict[str, float]:
    """Return the same share of large calls for each rail. Fixed shares need no surveys between calls."""
    return {rail.name: 1.0 for rail in parse_rails(rails)}


def learnt(switch: LoopbackSwitch, rails: str, common: Call, odd: Call, odd_one: int = 1) -> list[str]:
    """Make `odd` on one rank and `common` on the others, then a barrier. Return the errors of all ranks."""
    skip_unless_possible(rails)
    switch.restart()
    job = StaticJob(RANKS, ina=[PLACE])

    def work(comm: Communicator) -> str:
        comm.all_reduce(zeros(3, "int32"))
        job.meet()
        with pytest.raises(CollectiveMismatch) as raised:  # noqa: PT012 - either call may raise it
            (odd if comm.rank == odd_one else common)[1](comm)
            comm.barrier()
        with pytest.raises(CollectiveMismatch):
            comm.all_reduce(zeros(3))
        return str(raised.value)

    return job.run(work, rails, shares=shares(rails))


@pytest.mark.parametrize("rails", ["tcp=tcp@lo", "ina=ina@lo", RAILS[-1]])
def test_all_ranks_learn_of_both_calls(switch: LoopbackSwitch, rails: str) -> None:
    for pair in PAIRS:
        texts = [text for text, _ in pair]
        if rails == "ina=ina@lo" and any("float64" in text or "prod" in text for text in texts):
            continue
        for error in learnt(switch, rails, *pair):
            assert all(text in error for text in texts), error


@pytest.mark.parametrize("rails", RAILS)
def test_a_rank_that_only_sends_finds_the_difference_with_the_next_call(
    switch: LoopbackSwitch, rails: str
) -> None:
    for pair in BROADCASTS:
        for error in learnt(switch, rails, *pair, odd_one=RANKS - 1):
            told = [text for text, _ in pair if text in error]
            assert len(told) == 2 or (told and "barrier #2" in error), error


@pytest.mark.parametrize("rails", RAILS)
@pytest.mark.parametrize("odd_one", range(RANKS))
def test_a_broadcast_that_is_empty_on_one_rank(switch: LoopbackSwitch, rails: str, odd_one: int) -> None:
    """A rank may complete the broadcast if its neighbours made the same call. Its next call then fails."""
    for error in learnt(switch, rails, broadcast(4), broadcast(0), odd_one):
        assert broadcast(0)[0] in error


@pytest.mark.parametrize("rails", ["tcp=tcp@lo", "rdma=rdma@lo"])
def test_a_mismatch_behind_unsent_messages_is_reported(rails: str) -> None:
    """A rank forgets the messages that it has not sent, and announces the mismatch in their place."""
    skip_unless_possible(rails)

    def work(comm: Communicator) -> None:
        comm.all_reduce(zeros(3, "int32"))
        job.meet()
        with pytest.raises(CollectiveMismatch):  # noqa: PT012 - any of the calls may raise it
            calls = [comm.broadcast(zeros(4), 0, async_op=True) for _ in range(10)]
            (comm.all_gather if comm.rank == RANKS - 1 else comm.broadcast)(zeros(6000))
            for call in calls:
                call.wait()
            comm.barrier()

    for _ in range(16):
        job = StaticJob(RANKS)
        job.run(work, rails)


@pytest.mark.parametrize("rails", RAILS)
def test_calls_that_are_empty_on_all_ranks(job: StaticJob, rails: str) -> None:
    skip_unless_possible(rails)

    def work(comm: Communicator) -> None:
        for make, shape in (
            (comm.all_reduce, (0,)),
            (comm.all_reduce, (3, 0)),
            (comm.all_gather, (2, 0)),
            (comm.reduce_scatter, (0, 5)),
            (comm.broadcast, (0,)),
        ):
            given = np.empty(shape, np.float32)
            assert make(given).size == 0
            assert make(given, async_op=True).wait().size == 0
        assert (comm.reduce(zeros(0), 1) is None) == (comm.rank != 1)
        assert comm.all_reduce(np.ones(4, np.float32)).tolist() == [RANKS] * 4
        assert comm.all_reduce(np.full(1, 5.0, np.float32)).tolist() == [5 * RANKS]  # not the placeholder

    job.run(work, rails, shares=shares(rails))


@pytest.mark.parametrize("rails", RAILS)
def test_another_order(job: StaticJob, rails: str) -> None:
    """Two calls are in flight at once. One rank makes them in the opposite order."""
    skip_unless_possible(rails)

    def work(comm: Communicator) -> None:
        comm.all_reduce(zeros(3, "int32"))
        job.meet()
        given = [zeros(100_000), zeros(10, "int32")][:: -1 if comm.rank == 1 else 1]
        works = [comm.all_reduce(each, async_op=True) for each in given]
        for pending in works:
            with pytest.raises(CollectiveMismatch) as raised:
                pending.wait()
        assert "rank 1 calls" in str(raised.value)
        assert "rank 0 calls" in str(raised.value) or "rank 2 calls" in str(raised.value)

    job.run(work, rails, shares=shares(rails))
