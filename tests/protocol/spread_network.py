# SPDX-License-Identifier: Apache-2.0
"""Machines of multicast around a tree of switches that copy SPREAD to all others and forward unicast.

READY is the test's: `begin` lets every rank start a task at a time of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from protocol.virtual_time import FRAMING, MICROSECOND, MILLISECOND, Process, World
from protocol.virtual_time import Link as AnyLink

from railweave._native import ina, spread
from railweave._native.collectives import Collective

GROUP = 7
BESIDE = ina.HEADER_BYTES + spread.CODE_BYTES  # of a SPREAD, beside its payload
SECRET = b"of all ranks around one switch.."
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Link(AnyLink):
    """A link with a bounded queue."""

    delay: int = 20 * MICROSECOND
    queue: int | None = 20 * MILLISECOND


class Rank(Process):
    """One machine, and what became of it."""

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
class Task:
    """One collective of all ranks."""

    number: int
    slice_id: int
    collective: Collective
    root: int
    inputs: list[Bytes]
    outputs: list[Bytes]
    count: int
    stride: int
    offset: int
    chunk_bytes: int
    started: set[int] = field(default_factory=set)

    def input(self, rank: int) -> Bytes:
        """Return the part of the rank's input that the slice holds."""
        return self.inputs[rank][self.offset : self.offset + self.count]

    def output(self, rank: int) -> Bytes:
        """Return the rank's output from where the slice begins."""
        return self.outputs[rank][self.offset :]

    def check(self, rank: int) -> None:
        """Compare every byte of a rank's output, also those around the slice."""
        wanted = np.full_like(self.outputs[rank], UNTOUCHED)
        if self.collective == Collective.BROADCAST:
            wanted[self.offset : self.offset + self.count] = self.input(self.root)
        else:
            for source in range(len(self.inputs)):
                begin = source * self.stride + self.offset
                wanted[begin : begin + self.count] = self.input(source)
        wrong = int((wanted != self.outputs[rank]).sum())
        assert not wrong, f"task {self.number}, rank {rank}: {wrong} of {len(wanted)} bytes are wrong"


UNTOUCHED = 0xA5
SPOILT = 0x5A


class SpreadNetwork(World):
    """Ranks around one switch, or in racks with a switch each, below another one."""

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
        self.given: dict[tuple[int, int], Bytes] = {}  # inputs as callers hold them, by slice and rank
        self.switch_asleep_until = 0  # its process has no core until then
        self.lost_bytes = 0  # payload of multicast that somebody did not get because of loss
        self.lost_answers = 0  # payload of answers
        self.sent_by_host = [0] * world_size  # bytes on the wire
        self.to_host = [0] * world_size

    @property
    def spreaders(self) -> list[spread.Spreader]:
        """All machines, by rank."""
        return [rank.machine for rank in self.ranks]

    def total(self, counter: str) -> int:
        """Sum of a counter over all ranks."""
        return sum(each.stats()[counter] for each in self.spreaders)

    def describe(self) -> str:
        """Tell which tasks are done."""
        return f"done {[rank.done for rank in self.ranks]}"

    # --- the network ---

    def lost(self, name: object, data: bytes) -> None:
        """Count what ranks do not get. Answers go to one; all behind the link miss what is multicast."""
        if data[0] & 15 != spread.KIND_SPREAD:
            return
        direction, place = name  # type: ignore[misc]
        payload, ranks = len(data) - BESIDE, len(self.ranks)
        below = sum(self.rack(rank) == place for rank in range(ranks))
        missing = {"up": ranks - 1, "down": 1, "trunk up": ranks - below, "trunk down": below}[direction]
        self.lost_answers += payload if data[5] else 0
        self.lost_bytes += 0 if data[5] else payload * missing

    def from_host(self, rank: int, data: bytes, to: int) -> None:
        """A host's datagram enters its link."""
        self.sent_by_host[rank] += len(data) + FRAMING
        self.send(("up", rank), data, partial(self.at_switch, rank, to))

    def at_switch(self, rank: int, to: int, data: bytes) -> None:
        """A datagram enters its rack's switch: to those that hang there, and up if there are others."""
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
        """Down to each rack with one of the ranks."""
        for rack in sorted({self.rack(rank) for rank in ranks}):
            below = [rank for rank in ranks if self.rack(rank) == rack]
            self.send(("trunk down", rack), data, partial(self.down, rack, below))

    def down(self, rack: int, ranks: list[int], data: bytes) -> None:
        """A copy to each of these ranks of the rack; SPREAD that goes to all names it by its child."""
        for rank in ranks:
            copy = data[:4] + bytes([rank]) + data[5:]
            self.send(("down", rank), copy, partial(self.at_host, rank))

    def rack(self, rank: int) -> int:
        """Where a rank is."""
        return rank * self.racks // len(self.ranks)

    def at_host(self, rank: int, data: bytes) -> None:
        """A datagram arrives."""
        self.to_host[rank] += len(data) + FRAMING
        self.ranks[rank].arrive(data)

    def take_cores_away(self, share: float, within: int) -> None:
        """Stop ranks and switch again and again for 2 to 30 ms; they go on one after the other."""
        begin = 0
        while begin < within:
            away = int(self.random.uniform(2, 30) * MILLISECOND)
            stands = [*(rank.sleep for rank in self.ranks), self.stop_switch]
            self.random.shuffle(stands)
            for place, stand in enumerate(stands):
                self.at(begin, partial(stand, away + place * MILLISECOND // 3))
            begin += int(away / share)

    def stop_switch(self, duration: int) -> None:
        """Take the switch's core away."""
        self.switch_asleep_until = self.now + duration

    def after_done(self, rank: int, slice_id: int) -> None:
        """Its memory is the caller's again, who compares it, and uses it for something else."""
        task = next(each for each in self.tasks if each.slice_id == slice_id)
        task.check(rank)
        self.spoil(task, rank)

    def spoil(self, task: Task, rank: int) -> None:
        """The caller writes into its memory."""
        task.outputs[rank][:] = SPOILT
        self.given[task.slice_id, rank][:] = SPOILT

    def check_spoilt(self, task: Task, rank: int) -> None:
        """Nobody has written there since."""
        assert (task.outputs[rank] == SPOILT).all(), f"task {task.number}, rank {rank}: written after its end"

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
        """Make one task with random bytes; `begin` starts it."""
        ranks = len(self.ranks)
        whole = count + offset if whole is None else whole
        gathers = collective == Collective.ALL_GATHER
        inputs = list(self.numbers.integers(0, 256, (ranks, whole), np.uint8))
        outputs = [np.full(whole * (ranks if gathers else 1), UNTOUCHED, np.uint8) for _ in range(ranks)]
        last = self.tasks[-1].number if self.tasks else 0
        task = Task(
            number=last + 1 if number is None else number,
            slice_id=len(self.tasks),
            collective=collective,
            root=root,
            inputs=inputs,
            outputs=outputs,
            count=count,
            stride=whole if gathers else 0,
            offset=offset,
            chunk_bytes=chunk_bytes,
        )
        for rank in range(ranks):
            place = task.inputs[rank]
            if in_place:
                begin = rank * whole if gathers else 0
                place = outputs[rank][begin : begin + whole]
                if gathers or rank == root:
                    place[offset : offset + count] = task.input(rank)
            else:
                place = place.copy()
            self.given[task.slice_id, rank] = place
        self.tasks.append(task)
        return task

    def start(self, task: Task, rank: int, unfinished: int = 0) -> None:
        """READY's result comes to a rank."""
        task.started.add(rank)
        self.ranks[rank].machine.start(
            task=task.number,
            slice_id=task.slice_id,
            collective=task.collective,
            root=task.root,
            input=self.given[task.slice_id, rank][task.offset : task.offset + task.count],
            output=task.output(rank),
            count=task.count,
            stride=task.stride,
            chunk_bytes=task.chunk_bytes,
            unfinished=unfinished,
            now=self.now,
        )
        self.ranks[rank].pump()

    def begin(self, task: Task, instants: Sequence[int] | None = None, unfinished: int = 0) -> None:
        """Start the task on every rank, now or so much later each."""
        for rank in range(len(self.ranks)):
            when = self.now + (instants[rank] if instants else 0)
            self.at(when, partial(self.start, task, rank, unfinished))

    def all_done(self, *tasks: Task) -> bool:
        """Whether all ranks have these tasks, or all that there are."""
        wanted = tasks or self.tasks
        return all(task.slice_id in rank.done_at for task in wanted for rank in self.ranks)
