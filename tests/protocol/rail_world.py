# SPDX-License-Identifier: Apache-2.0
"""One rail of every rank in this process. A test halts and restarts them at any time, drawn from one seed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railweave._native.agent import FailureKind
from railweave._rigs.rails import Rails

DEADLINE_S = 30.0
SECRET = b"what the ranks of one rail share"
SPOILT = -77  # a caller writes this value into memory that it has got back

Integers = NDArray[np.int32]


@dataclass
class World:
    """Rails of `ranks` ranks, opened by the test. All values are int32, so that each sum has one result."""

    ranks: int
    rails: Rails
    seed: int = 0
    counts: Sequence[int] = (1, 1000, 300_000)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.numbers = np.random.default_rng(self.seed)
        self.outputs: dict[int, list[Integers]] = {}  # by slice, then rank
        self.totals: dict[int, Integers] = {}
        self.inputs: dict[int, list[Integers]] = {}
        self.begun: list[set[int]] = [set() for _ in range(self.ranks)]
        self.spoilt: list[Integers] = []

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
            number, count = len(self.totals), self.random.choice(self.counts)
            inputs = [self.numbers.integers(-(2**20), 2**20, count, np.int32) for _ in range(self.ranks)]
            self.inputs[number] = inputs
            self.outputs[number] = [np.zeros(count, np.int32) for _ in inputs]
            self.totals[number] = np.sum(inputs, axis=0, dtype=np.int32)
            made.append(number)
        return made

    def start(self, rank: int, slices: Sequence[int]) -> None:
        for number in slices:
            self.begun[rank].add(number)
            self.rails.start(rank, number, number, self.inputs[number][rank], self.outputs[number][rank])

    def start_all(self, slices: Sequence[int]) -> None:
        for rank in range(self.ranks):
            self.start(rank, slices)

    def halt(self, rank: int) -> None:
        """Halt a rank's rail. The caller then overwrites the memory of calls that are not done."""
        self.rails.halt(rank)
        self.spoil(rank)

    def spoil(self, rank: int) -> None:
        for number in self.begun[rank] - set(self.rails.done(rank)):
            self.outputs[number][rank][:] = SPOILT
            self.spoilt.append(self.outputs[number][rank])
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
            for output in self.outputs[number]:
                np.testing.assert_array_equal(output, self.totals[number])
        for memory in self.spoilt:
            assert (memory == SPOILT).all()
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
