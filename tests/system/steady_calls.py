# SPDX-License-Identifier: Apache-2.0
"""Ranks that call without a pause and check every number, while a test harms their rails."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from system.plane_network import PlaneNetwork

from railweave.hosts.communicator import Communicator
from railweave.hosts.reports import RailReport

DEADLINE_S = 30.0
SMALL, LARGE, FLOATS = 257, 300_001, 200_003  # elements: the first uses one rail, the others are split
SHARD = 40_009

Array = NDArray[Any]


def integers(rank: int, round_: int, count: int) -> Array:
    """Return a rank's contribution. It differs by element, rank and round."""
    return np.arange(count, dtype=np.int32) * np.int32(rank + 1) + np.int32(7919 * round_)


def integer_sum(ranks: int, round_: int, count: int) -> Array:
    """Return the sum of `integers` over all ranks. It wraps as int32 does."""
    factor = np.int32(ranks * (ranks + 1) // 2)
    return np.arange(count, dtype=np.int32) * factor + np.int32(7919 * round_) * np.int32(ranks)


def floats(rank: int, round_: int, count: int) -> Array:
    """Return numbers whose sum depends on the order of the additions."""
    return np.sin(np.arange(count, dtype=np.float32) * np.float32(rank + 1.5)) + np.float32(0.1 * round_)


class Others:
    """A pending reduce_scatter, all_gather and broadcast. The last two work in place."""

    def __init__(self, comm: Communicator, round_: int) -> None:
        rank, ranks = comm.rank, comm.world_size
        self._own = slice(rank * SHARD, (rank + 1) * SHARD)
        self._ranks, self._round, self._root = ranks, round_, round_ % ranks
        gathered = np.zeros(ranks * SHARD, np.int32)
        gathered[self._own] = integers(rank, round_, SHARD)
        self._works = [
            comm.reduce_scatter(integers(rank, round_, ranks * SHARD), async_op=True),
            comm.all_gather(gathered[self._own], out=gathered, async_op=True),
            comm.broadcast(integers(rank, round_, LARGE), root=self._root, async_op=True),
        ]

    def check(self) -> None:
        scattered, gathered, sent = (work.wait(DEADLINE_S) for work in self._works)
        total = integer_sum(self._ranks, self._round, self._ranks * SHARD)
        np.testing.assert_array_equal(scattered, total[self._own])
        all_given = [integers(peer, self._round, SHARD) for peer in range(self._ranks)]
        np.testing.assert_array_equal(gathered, np.concatenate(all_given))
        np.testing.assert_array_equal(sent, integers(self._root, self._round, LARGE))


def one_round(comm: Communicator, round_: int) -> list[bytes]:
    """Run all collectives, sync and async, small and split, in place and not. Check the results.

    Return the digests of the sums of floats. They must be the same on all ranks.
    """
    rank, ranks = comm.rank, comm.world_size
    in_place = integers(rank, round_, LARGE)
    given = floats(rank, round_, FLOATS)
    pending = [
        comm.all_reduce(integers(rank, round_, SMALL), async_op=True),
        comm.all_reduce(in_place, out=in_place, async_op=True),
        comm.all_reduce(given, async_op=True),
    ]
    others = Others(comm, round_)
    few = floats(rank, round_, 5)
    comm.all_reduce(few, out=few)
    np.testing.assert_array_equal(
        comm.all_reduce(integers(rank, round_ + 1, LARGE)), integer_sum(ranks, round_ + 1, LARGE)
    )
    small, large, many = (work.wait(DEADLINE_S) for work in pending)
    others.check()
    np.testing.assert_array_equal(small, integer_sum(ranks, round_, SMALL))
    np.testing.assert_array_equal(large, integer_sum(ranks, round_, LARGE))
    exact = sum(floats(peer, round_, FLOATS).astype(np.float64) for peer in range(ranks))
    np.testing.assert_allclose(many, exact, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(given, floats(rank, round_, FLOATS))
    return [hashlib.blake2b(each.tobytes()).digest() for each in (few, many)]


class Calls:
    """The progress of the ranks, for a test that waits for it. Every wait has a deadline."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.rails: dict[int, Mapping[str, RailReport]] = {}  # by rank, after its last round
        self._rounds = [0] * ranks
        self._digests: dict[int, list[bytes]] = {}  # by round
        self._changed = threading.Condition()
        self._stopping = False
        self._futures: list[Future[None]] = []

    def work(self, comm: Communicator) -> None:
        """Make calls until the test has seen enough; all ranks end after the same round."""
        round_ = 0
        while True:
            stop = comm.all_reduce(np.array([self._stopping], np.int32), "max")
            if stop[0]:
                return
            digests = one_round(comm, round_)
            round_ += 1
            with self._changed:
                assert self._digests.setdefault(round_, digests) == digests, "ranks differ"
                self._rounds[comm.rank] = round_
                self.rails[comm.rank] = {rail.name: rail for rail in comm.stats().rails}
                self._changed.notify_all()

    def follow(self, futures: list[Future[None]]) -> None:
        """Wake the waiting test when a rank ends."""
        self._futures = futures
        for future in futures:
            future.add_done_callback(self._wake)

    def _wake(self, _: Future[None]) -> None:
        with self._changed:
            self._changed.notify_all()

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached` is true. Raise the error of a rank that fails."""
        end = time.monotonic() + DEADLINE_S
        with self._changed:
            while not reached():
                for future in self._futures:
                    if future.done():
                        future.result()
                assert self._changed.wait(end - time.monotonic()), f"{self._rounds}: {self.rails}"

    def rounds(self, more: int) -> None:
        """Wait until every rank has done `more` rounds beyond the fastest rank's present round."""
        target = max(self._rounds) + more
        self.until(lambda: min(self._rounds) >= target)

    def all_see(self, rail: str, states: tuple[str, ...]) -> None:
        """Wait until every rank has a rail in one of these states."""
        self.until(
            lambda: (
                len(self.rails) == self.ranks and all(at[rail].state in states for at in self.rails.values())
            )
        )

    def used_again(self, rail: str) -> None:
        """Wait until every rank has moved more of the program's bytes over a rail."""
        before = {rank: at[rail].payload_bytes for rank, at in self.rails.items()}
        self.until(lambda: all(self.rails[rank][rail].payload_bytes > before[rank] for rank in before))

    def stop(self) -> None:
        """Let the ranks end after their present round."""
        self._stopping = True


@contextmanager
def steady_calls(network: PlaneNetwork, **options: object) -> Iterator[Calls]:
    """Run ranks on all hosts of a network. They call and check while the block runs, and must end cleanly."""
    calls = Calls(len(network.topology.hosts))
    with network.ranks(calls.work, **options) as futures:
        calls.follow(futures)
        try:
            yield calls
        finally:
            calls.stop()
        for future in futures:
            future.result(DEADLINE_S)
