# SPDX-License-Identifier: Apache-2.0
"""Ranks make different calls. All ranks get an error with both descriptions, over any rails."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from protocol.jobs import StaticJob, skip_unless_possible
from protocol.loopback_switch import PLACE, LoopbackSwitch

from railweave.hosts.arrays import DTYPES, Array
from railweave.hosts.capabilities import INA_DTYPES, INA_OPS, OPS
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import CollectiveMismatch
from railweave.hosts.options import parse_rails

RANKS = 3
ODD_ONE = 1


Call = Callable[[Communicator], Any]

RAILS = [
    "tcp=tcp@lo",
    "ina=ina@lo",
    "rdma=rdma@lo",
    "ina=ina@lo,tcp=tcp@lo",
    "rdma=rdma@lo,ina=ina@lo",
    "tcp=tcp@lo,rdma=rdma@lo,ina=ina@lo",
]


@dataclass(frozen=True)
class Kind:
    """One all_reduce. A small one uses one rail and recursive doubling, a large one is split."""

    count: int
    dtype: str = "float32"
    op: str = "sum"

    def __str__(self) -> str:
        return f"all_reduce #1 of {self.count} {self.dtype}, {self.op}"

    def fits(self, rails: str) -> bool:
        able = DTYPES[np.dtype(self.dtype).char] in INA_DTYPES and OPS[self.op] in INA_OPS
        return able or "tcp" in rails or "rdma" in rails


KINDS = [
    Kind(10),
    Kind(11),
    Kind(10, op="max"),
    Kind(10, "int32"),
    Kind(10, "float64"),  # the switch cannot sum it, so only other rails carry it
    Kind(100_000),
    Kind(100_000, op="prod"),
]


@pytest.mark.parametrize("rails", RAILS)
def test_every_pair_of_kinds(switch: LoopbackSwitch, rails: str) -> None:
    skip_unless_possible(rails)
    for pair in itertools.combinations(KINDS, 2):
        if all(kind.fits(rails) for kind in pair):
            switch.restart()
            assert_found(rails, *pair)


def equal(rails: str) -> dict[str, float]:
    """Return the same share of large calls for each rail. Fixed shares need no surveys between calls."""
    return {rail.name: 1.0 for rail in parse_rails(rails)}


def assert_found(rails: str, common: Kind, odd: Kind) -> None:
    def made(kind: Kind) -> Call:
        return lambda comm: comm.all_reduce(np.zeros(kind.count, kind.dtype), kind.op)

    assert_described(rails, {str(common): made(common), str(odd): made(odd)})


def assert_described(rails: str, calls: dict[str, Call]) -> None:
    """Make the first call on all ranks except one, and the second on that rank. All learn of both calls."""
    job = StaticJob(RANKS, ina=[PLACE])
    common, odd = calls.values()

    def work(comm: Communicator) -> str:
        comm.all_reduce(np.zeros(3, np.int32))
        job.meet()
        with pytest.raises(CollectiveMismatch) as raised:
            (odd if comm.rank == ODD_ONE else common)(comm)
        with pytest.raises(CollectiveMismatch):
            comm.all_reduce(zeros(3))
        return str(raised.value)

    for text in job.run(work, rails, shares=equal(rails)):
        for call in calls:
            assert call in text


def zeros(count: int) -> Array:
    return np.zeros(count, np.float32)


# The same rails carry both calls of a pair. If one call is empty, no rail may carry it.
ALIKE: list[dict[str, Call]] = [
    {
        "reduce #1 of 10 float32, sum, to rank 0": lambda comm: comm.reduce(zeros(10), 0),
        "reduce #1 of 10 float32, sum, to rank 2": lambda comm: comm.reduce(zeros(10), 2),
    },
    {
        "all_reduce #1 of 10 float32, sum": lambda comm: comm.all_reduce(zeros(10)),
        "reduce #1 of 10 float32, sum, to rank 0": lambda comm: comm.reduce(zeros(10), 0),
    },
    {
        "all_reduce #1 of 1 int32, sum": lambda comm: comm.all_reduce(np.zeros(1, np.int32)),
        "barrier #1": lambda comm: comm.barrier(),
    },
    {
        "all_reduce #1 of 1 float32, sum": lambda comm: comm.all_reduce(zeros(1)),
        "all_reduce #1 of 0 float32, sum": lambda comm: comm.all_reduce(zeros(0)),
    },
    {
        "all_reduce #1 of 0 float32, sum": lambda comm: comm.all_reduce(zeros(0)),
        "all_reduce #1 of 100000 float32, sum": lambda comm: comm.all_reduce(zeros(100_000)),
    },
    {
        "all_gather #1 of 0 float32 per rank": lambda comm: comm.all_gather(zeros(0)),
        "all_gather #1 of 7 float32 per rank": lambda comm: comm.all_gather(zeros(7), async_op=True).wait(),
    },
    {
        "reduce_scatter #1 of 2 float32 per rank, max": lambda comm: comm.reduce_scatter(zeros(6), "max"),
        "reduce_scatter #1 of 0 float32 per rank, max": lambda comm: comm.reduce_scatter(zeros(0), "max"),
    },
    {
        "reduce #1 of 0 float32, sum, to rank 0": lambda comm: comm.reduce(zeros(0), 0),
        "all_gather #1 of 0 float32 per rank": lambda comm: comm.all_gather(zeros(0)),
    },
    {
        "all_reduce #1 of 6000 float32, sum": lambda comm: comm.all_reduce(zeros(6000)),
        "all_gather #1 of 6000 float32 per rank": lambda comm: comm.all_gather(zeros(6000)),
    },
    {
        "reduce_scatter #1 of 2000 float32 per rank, sum": lambda comm: comm.reduce_scatter(zeros(6000)),
        "reduce_scatter #1 of 2000 float32 per rank, max": lambda comm: comm.reduce_scatter(
            zeros(6000), "max"
        ),
    },
    {
        "all_gather #1 of 6000 float32 per rank": lambda comm: comm.all_gather(zeros(6000)),
        "all_gather #1 of 6001 float32 per rank": lambda comm: comm.all_gather(zeros(6001)),
    },
]


@pytest.mark.parametrize("rails", RAILS)
def test_calls_that_rails_carry_alike(switch: LoopbackSwitch, rails: str) -> None:
    skip_unless_possible(rails)
    for pair in ALIKE:
        switch.restart()
        assert_described(rails, pair)


@pytest.mark.parametrize("rails", RAILS)
@pytest.mark.parametrize("odd_one", range(RANKS))
def test_a_broadcast_that_is_empty_on_one_rank(switch: LoopbackSwitch, rails: str, odd_one: int) -> None:
    """A rank may complete the broadcast if its neighbours made the same call. Its next call then fails."""
    skip_unless_possible(rails)
    switch.restart()
    job = StaticJob(RANKS, ina=[PLACE])

    def work(comm: Communicator) -> str:
        comm.all_reduce(np.zeros(3, np.int32))
        job.meet()
        comm.broadcast(zeros(0 if comm.rank == odd_one else 4), async_op=True)
        following = comm.all_reduce(zeros(4), async_op=True)
        with pytest.raises(CollectiveMismatch) as raised:
            following.wait()
        return str(raised.value)

    for text in job.run(work, rails, shares=equal(rails)):
        assert "broadcast #1 of 0 float32 from rank 0" in text


BROADCASTS: list[dict[str, Call]] = [
    {
        "broadcast #1 of 6000 float32 from rank 0": lambda comm: comm.broadcast(zeros(6000)),
        "all_reduce #1 of 6000 float32, sum": lambda comm: comm.all_reduce(zeros(6000)),
    },
    {
        "broadcast #1 of 6000 float32 from rank 0": lambda comm: comm.broadcast(zeros(6000)),
        "broadcast #1 of 6000 float32 from rank 1": lambda comm: comm.broadcast(zeros(6000), 1),
    },
    {
        "all_gather #1 of 6000 float32 per rank": lambda comm: comm.all_gather(zeros(6000)),
        "broadcast #1 of 6000 float32 from rank 1": lambda comm: comm.broadcast(zeros(6000), 1),
    },
]


@pytest.mark.parametrize("rails", RAILS)
def test_a_rank_that_only_sends_finds_the_difference_with_the_next_call(
    switch: LoopbackSwitch, rails: str
) -> None:
    skip_unless_possible(rails)
    for calls in BROADCASTS:
        switch.restart()
        job = StaticJob(RANKS, ina=[PLACE])
        usual, odd = calls.values()

        def work(comm: Communicator, job: StaticJob = job, usual: Call = usual, odd: Call = odd) -> str:
            comm.all_reduce(np.zeros(3, np.int32))
            job.meet()

            def call_and_go_on() -> None:
                (odd if comm.rank == RANKS - 1 else usual)(comm)
                comm.barrier()

            with pytest.raises(CollectiveMismatch) as raised:
                call_and_go_on()
            return str(raised.value)

        for text in job.run(work, rails, shares=equal(rails)):
            told = [call for call in calls if call in text]
            assert len(told) == 2 or (told and "barrier #2" in text), text


@pytest.mark.parametrize("rails", ["tcp=tcp@lo", "rdma=rdma@lo"])
def test_a_mismatch_behind_unsent_messages_is_reported(rails: str) -> None:
    """A rank forgets the messages that it has not sent, and announces the mismatch in their place."""
    skip_unless_possible(rails)

    def work(comm: Communicator) -> None:
        comm.all_reduce(np.zeros(3, np.int32))
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
def test_calls_that_are_empty_on_all_ranks(switch: LoopbackSwitch, rails: str) -> None:
    skip_unless_possible(rails)
    job = StaticJob(RANKS, ina=[PLACE])

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
            pending = make(given, async_op=True)
            assert pending.wait().size == 0
        assert (comm.reduce(zeros(0), 1) is None) == (comm.rank != 1)
        assert comm.all_reduce(np.ones(4, np.float32)).tolist() == [RANKS] * 4
        assert comm.all_reduce(np.full(1, 5.0, np.float32)).tolist() == [5 * RANKS]  # not the placeholder

    job.run(work, rails, shares=equal(rails))


@pytest.mark.parametrize("rails", RAILS)
def test_another_order(switch: LoopbackSwitch, rails: str) -> None:
    """Two calls are in flight at once. One rank makes them in the opposite order."""
    skip_unless_possible(rails)
    job = StaticJob(RANKS, ina=[PLACE])

    def work(comm: Communicator) -> None:
        comm.all_reduce(np.zeros(3, np.int32))
        job.meet()
        kinds = [Kind(100_000), Kind(10, "int32")][:: -1 if comm.rank == ODD_ONE else 1]
        works = [comm.all_reduce(np.zeros(k.count, k.dtype), k.op, async_op=True) for k in kinds]
        for pending in works:
            with pytest.raises(CollectiveMismatch) as raised:
                pending.wait()
        assert "rank 1 calls" in str(raised.value)
        assert "rank 0 calls" in str(raised.value) or "rank 2 calls" in str(raised.value)

    job.run(work, rails, shares=equal(rails))
