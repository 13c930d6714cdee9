# SPDX-License-Identifier: Apache-2.0
"""Multicast machines around a tree of switches. The switches copy SPREAD to all others and forward unicast.

Tests replace READY: `begin` starts a task on every rank, at once or at different times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from protocol.calls import Array, Call
from protocol.virtual_time import FRAMING, MICROSECOND, MILLISECOND, Process, World
from protocol.virtual_time import Link as AnyLink

from railweave._native import ina
from railweave._native.collectives import Collective
from railweave._rigs import spread

GROUP = 7
BESIDE = ina.HEADER_BYTES + spread.CODE_BYTES  # bytes of a SPREAD in addition to its payload
SECRET = b"of all ranks around one switch.."


@dataclass(frozen=True)
class Link(AnyLink):
    """A link with a bounded queue."""

    delay: int = 20 * MICROSECOND
    queue: int | None = 20 * MILLISECOND


class Rank(Process):
    """One machine, and the slices that it has finished."""

    world: SpreadNetwork

    def __init__(self, world: SpreadNetwork, rank: int, machine: spread.Spreader) -> None:
        super().__init__(world, machine)
        self.rank = rank
        self.done: list[int] = []
        self.done_at: dict[int, int] = {}

    def receive(self, data: bytes) -> None:
        """Hand the machine a datagram."""
        tasks = self.world.tasks
        self.machine.receive(data, self.world.now, tasks[-1].number if tasks else 0)

    def transmit(self, packet: tuple[bytes, int]) -> None:
        """Send a datagram to a rank, or to all."""
        self.world.from_host(self.rank, *packet)

    def event(self, slice_id: int) -> None:
        """Note that a slice is done."""
        self.done.append(slice_id)
        self.done_at[slice_id] = self.world.now
        self.world.after_done(self.rank, slice_id)


@dataclass
class Task(Call):
    """One collective of all ranks, in chunks."""

    number: int = 0
    slice_id: int = 0
    chunk_bytes: int = 1

    def input(self, rank: int) -> Array:
        """Return the part of the rank's input that the slice holds."""
        return self.inputs[rank][self.part]


class SpreadNetwork(World):
    """Ranks around one switch, or in racks with a switch each below a spine switch."""

    def __init__(
        self,
        world_size: int,
        link: Link,
        seed: int = 0,
        rate_bps: int | None = None,
        roots: int = 65535,
        racks: int = 1,
    ) -> None:
        super().__init__(seed, link)
        self.racks = racks
        self.numbers = np.random.default_rng(seed)
        rate = link.rate_bps if rate_bps is None else rate_bps
        usual: dict[str, Any] = {"group": GROUP, "world_size": world_size, "rate_bps": rate, "roots": roots}
        self.ranks = [
            Rank(self, rank, spread.Spreader(child=rank, rank=rank, secret=SECRET, **usual))
            for rank in range(world_size)
        ]
        self.tasks: list[Task] = []
        self.switch_asleep_until = 0  # the switch's process gets no core before this time
        self.lost_bytes = 0  # multicast payload that at least one rank lost
        self.lost_answers = 0  # payload of answers
        self.sent_by_host = [0] * world_size  # bytes on the wire
        self.to_host = [0] * world_size

    @property
    def spreaders(self) -> list[spread.Spreader]:
        """Return all machines, by rank."""
        return [rank.machine for rank in self.ranks]

    def total(self, counter: str) -> int:
        """Return the sum of a counter over all ranks."""
        return sum(each.stats()[counter] for each in self.spreaders)

    def describe(self) -> str:
        """Describe which tasks are done."""
        return f"done {[rank.done for rank in self.ranks]}"

    # --- the network ---

    def lost(self, name: object, data: bytes) -> None:
        """Count lost payload. An answer has one receiver. A multicast has all ranks behind the link."""
        if data[0] & 15 != spread.KIND_SPREAD:
            return
        direction, place = name  # type: ignore[misc]
        payload, ranks = len(data) - BESIDE, len(self.ranks)
        below = sum(self.rack(rank) == place for rank in range(ranks))
        missing = {"up": ranks - 1, "down": 1, "trunk up": ranks - below, "trunk down": below}[direction]
        self.lost_answers += payload if data[5] else 0
        self.lost_bytes += 0 if data[5] else payload * missing

    def from_host(self, rank: int, data: bytes, to: int) -> None:
        """Put a host's datagram on its link."""
        self.sent_by_host[rank] += len(data) + FRAMING
        self.send(("up", rank), data, partial(self.at_switch, rank, to))

    def at_switch(self, rank: int, to: int, data: bytes) -> None:
        """Deliver a datagram to its rack's switch, which sends it down, and up for ranks in other racks."""
        if self.now < self.switch_asleep_until:
            self.at(self.switch_asleep_until, partial(self.at_switch, rank, to, data))
            return
        if to == spread.TREE:
            assert data[0] & 15 == spread.KIND_SPREAD, "only SPREAD goes to the group's address"
            assert data[4] == rank, "a stranger's packet, by its child"
        home = self.rack(rank)
        others = [other for other in range(len(self.ranks)) if other != rank and to in (spread.TREE, other)]
        self.down(home, [other for other in others if self.rack(other) == home], data)
        away = [other for other in others if self.rack(other) != home]
        if away:
            self.send(("trunk up", home), data, partial(self.at_spine, away))

    def at_spine(self, ranks: list[int], data: bytes) -> None:
        """Send a datagram down to each rack that has one of the ranks."""
        for rack in sorted({self.rack(rank) for rank in ranks}):
            below = [rank for rank in ranks if self.rack(rank) == rack]
            self.send(("trunk down", rack), data, partial(self.down, rack, below))

    def down(self, rack: int, ranks: list[int], data: bytes) -> None:
        """Send a copy to each of these ranks of the rack, with the rank as child."""
        for rank in ranks:
            copy = data[:4] + bytes([rank]) + data[5:]
            self.send(("down", rank), copy, partial(self.at_host, rank))

    def rack(self, rank: int) -> int:
        """Return the rack of a rank."""
        return rank * self.racks // len(self.ranks)

    def at_host(self, rank: int, data: bytes) -> None:
        """Deliver a datagram to a rank."""
        self.to_host[rank] += len(data) + FRAMING
        self.ranks[rank].arrive(data)

    def stop_switch(self, duration: int) -> None:
        """Take the switch's core away."""
        self.switch_asleep_until = self.now + duration

    def after_done(self, rank: int, slice_id: int) -> None:
        """Compare a rank's output, and then overwrite its memory like a caller."""
        task = next(each for each in self.tasks if each.slice_id == slice_id)
        task.check(rank, task.expected()[rank], f"task {task.number}, rank {rank}")
        task.spoil(rank)

    # --- tasks ---

    def task(
        self,
        collective: Collective,
        count: int,
        chunk_bytes: int,
        *,
        number: int | None = None,
        root: int = 0,
        whole: int | None = None,
        offset: int = 0,
        in_place: bool = False,
    ) -> Task:
        """Make one task with random bytes. `begin` starts it."""
        whole = count + offset if whole is None else whole
        last = self.tasks[-1].number if self.tasks else 0
        task = Task(
            list(self.numbers.integers(0, 256, (len(self.ranks), whole), np.uint8)),
            collective,
            root=root,
            offset=offset,
            count=count,
            in_place=in_place,
            number=last + 1 if number is None else number,
            slice_id=len(self.tasks),
            chunk_bytes=chunk_bytes,
        )
        self.tasks.append(task)
        return task

    def start(self, task: Task, rank: int, unfinished: int = 0) -> None:
        """Deliver READY's result to a rank, which starts the task."""
        self.ranks[rank].machine.start(
            task=task.number,
            slice_id=task.slice_id,
            collective=task.collective,
            root=task.root,
            input=task.given[rank][task.part],
            output=task.outputs[rank].reshape(-1)[task.offset :],
            count=task.count,
            stride=task.whole if task.collective == Collective.ALL_GATHER else 0,
            chunk_bytes=task.chunk_bytes,
            unfinished=unfinished,
            now=self.now,
        )
        self.ranks[rank].pump()

    def begin(self, task: Task, instants: Sequence[int] | None = None, unfinished: int = 0) -> None:
        """Start the task on every rank, now or after the rank's time in `instants`."""
        for rank in range(len(self.ranks)):
            when = self.now + (instants[rank] if instants else 0)
            self.at(when, partial(self.start, task, rank, unfinished))

    def all_done(self, *tasks: Task) -> bool:
        """Return whether all ranks have completed these tasks, or without arguments all tasks."""
        wanted = tasks or self.tasks
        return all(task.slice_id in rank.done_at for task in wanted for rank in self.ranks)
