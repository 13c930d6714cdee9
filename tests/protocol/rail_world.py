# SPDX-License-Identifier: Apache-2.0
"""One rail of every rank in this process. A test halts and restarts them at any time, drawn from one seed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocol.calls import Call, integer_call, total

from railweave._native.agent import FailureKind
from railweave._native.collectives import Collective
from railweave._rigs.rails import Rails

DEADLINE_S = 30.0
SECRET = b"what the ranks of one rail share"


@dataclass
class World:
    """Rails of `ranks` ranks, opened by the test. All values are int32, so that each sum has one result."""

    ranks: int
    rails: Rails
    seed: int = 0
    counts: Sequence[int] = (1, 1000, 300_000)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.calls: list[Call] = []  # by slice
        self.begun: list[set[int]] = [set() for _ in range(self.ranks)]

    @property
    def spoilt(self) -> bool:
        """Return whether a caller has overwritten memory of a slice that it gave up."""
        return any(call.spoilt for call in self.calls)

    def run(self, reached: Callable[[], bool]) -> None:
        """Drive the rails until `reached`. Raise AssertionError with their reports if it takes too long."""
        latest = time.monotonic() + DEADLINE_S
        while not reached():
            left = latest - time.monotonic()
            told = [
                (self.rails.done(rank), [failure.message for failure in self.rails.failures(rank)])
                for rank in range(self.ranks)
            ]
            assert left > 0, f"the time is up: {told}"
            self.rails.turn(left)

    def some_turns(self) -> None:
        """Drive the rails for a random number of turns, without waiting."""
        for _ in range(self.random.choice([0, 1, 5, 30])):
            self.rails.turn(0.0)

    def in_any_order(self, act: Callable[[int], None]) -> None:
        """Have every rank act, in random order, with some turns in between."""
        for rank in self.random.sample(range(self.ranks), self.ranks):
            act(rank)
            self.some_turns()

    def new_slices(self, most: int = 3) -> list[int]:
        """Make up to `most` new sums. Return their numbers."""
        made = []
        for _ in range(self.random.randint(1, most)):
            made.append(len(self.calls))
            seed, count = self.random.getrandbits(32), self.random.choice(self.counts)
            self.calls.append(integer_call(seed, self.ranks, Collective.ALL_REDUCE, count))
        return made

    def start(self, rank: int, slices: Sequence[int]) -> None:
        for number in slices:
            self.begun[rank].add(number)
            call = self.calls[number]
            self.rails.start(rank, number, number, call.given[rank], call.outputs[rank])

    def start_all(self, slices: Sequence[int]) -> None:
        for rank in range(self.ranks):
            self.start(rank, slices)

    def halt(self, rank: int) -> None:
        """Halt a rank's rail. The caller then overwrites the memory of calls that are not done."""
        self.rails.halt(rank)
        self.spoil(rank)

    def spoil(self, rank: int) -> None:
        for number in self.begun[rank] - set(self.rails.done(rank)):
            self.calls[number].spoil(rank)
        self.begun[rank].clear()

    def restart(self, incarnation: int, slices: Sequence[int] = (), bases: Sequence[int] = ()) -> None:
        """Restart all ranks. Each begins with these slices, before or after the others have restarted."""

        def act(rank: int) -> None:
            self.rails.restart(rank, incarnation, list(bases))
            self.start(rank, slices)

        self.in_any_order(act)

    def greatest_chunks(self) -> list[int]:
        return [max(each) for each in zip(*map(self.rails.next_chunks, range(self.ranks)), strict=True)]

    def all_ready(self) -> bool:
        return all(map(self.rails.ready, range(self.ranks)))

    def finish(self, slices: Sequence[int]) -> None:
        """Complete these slices, in order and with the right sums.

        Check that no rail wrote to memory after the caller got it back.
        """
        for rank in range(self.ranks):
            self.run(lambda rank=rank: set(slices) <= set(self.rails.done(rank)))  # type: ignore[misc]
        for number in slices:
            self.calls[number].check_all(total, number)
        for call in self.calls:
            call.check_spoilt()
        for rank in range(self.ranks):
            done = self.rails.done(rank)
            assert done == sorted(set(done))
            assert all(failure.kind == FailureKind.SILENT for failure in self.rails.failures(rank))


def tcp_world(ranks: int, seed: int = 0, *, connected: bool = True) -> World:
    """Open rails over loopback, connected like a job's, or like repair channels without a connection yet."""
    world = World(ranks, Rails(ranks), seed)
    members = [("127.0.0.1", world.rails.open_tcp(rank, "127.0.0.1")) for rank in range(ranks)]
    for rank in range(ranks):
        join = world.rails.connect_tcp if connected else world.rails.introduce
        join(rank, SECRET, members)
    if connected:
        world.run(world.all_ready)
    return world
