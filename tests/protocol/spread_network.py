# SPDX-License-Identifier: Apache-2.0
"""A multicast tree in virtual time: switches that copy SPREAD to all others and forward unicast.

Links have a rate, a queue with a bound, loss, duplication, reordering and delay; everything random comes from
one seed. READY is the test's: `begin` lets every rank start a task at a time of its own.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray
from protocol.network import MICROSECOND, MILLISECOND, HangError

from railweave._native import ina, spread
from railweave._native.collectives import Collective

GROUP = 7
HEADERS = 42  # Ethernet, IPv4, UDP
BESIDE = ina.HEADER_BYTES + spread.CODE_BYTES  # of a SPREAD, beside its payload
SECRET = b"of all ranks around one switch.."
Bytes = NDArray[np.uint8]
Action = Callable[[], None]


@dataclass(frozen=True)
class Link:
    """How one direction of a link treats packets; probabilities are per packet."""

    rate_bps: int = 0  # 0: unlimited
    queue: int = 20 * MILLISECOND  # what waits longer is dropped
    delay: int = 20 * MICROSECOND
    jitter: int = 0  # uniform, per packet
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0  # share of the packets that `late` delays further
    late: int = 0


@dataclass
class Rank:
    """One machine, its link, and what became of it."""

    spreader: spread.Spreader
    done: list[int] = field(default_factory=list)
    done_at: dict[int, int] = field(default_factory=dict)
    timer: int | None = None  # the earliest wake-up in the queue
    asleep_until: int = 0  # its process has no core until then
    waiting: list[bytes] = field(default_factory=list)  # in its socket


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


class SpreadNetwork:
    """Ranks around one switch."""

    def __init__(
        self,
        world_size: int,
        link: Link,
        seed: int = 0,
        rate_bps: int | None = None,
        roots: int = 65535,
        racks: int = 1,
    ) -> None:
        self.now = 0
        self.link = link
        self.racks = racks  # each with a switch; one more above them where there are several
        self.links: dict[
            tuple[str, int], Link
        ] = {}  # those that differ: ("up" or "down", rank) or ("trunk …", rack)
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        rate = link.rate_bps if rate_bps is None else rate_bps
        self.ranks = [
            Rank(
                spread.Spreader(
                    group=GROUP,
                    child=rank,
                    rank=rank,
                    world_size=world_size,
                    rate_bps=rate,
                    roots=roots,
                    secret=SECRET,
                )
            )
            for rank in range(world_size)
        ]
        self.tasks: list[Task] = []
        self.given: dict[tuple[int, int], Bytes] = {}  # inputs as callers hold them, by slice and rank
        self.switch_asleep_until = 0  # its process has no core until then
        self.longest_queue = 0  # ns
        self.lost_bytes = 0  # payload of multicast that somebody did not get because of loss
        self.lost_answers = 0  # payload of answers
        self.sent_by_host = [0] * world_size  # bytes on the wire
        self.to_host = [0] * world_size
        self.seen: list[bytes] = []  # datagrams that hosts have sent, if `record`
        self.record = False
        self._queue: list[tuple[int, int, Action]] = []
        self._number = 0
        self._free_at: dict[tuple[str, int], int] = {}

    @property
    def spreaders(self) -> list[spread.Spreader]:
        """All machines, by rank."""
        return [rank.spreader for rank in self.ranks]

    def total(self, counter: str) -> int:
        """Sum of a counter over all ranks."""
        return sum(each.stats()[counter] for each in self.spreaders)

    # --- the network ---

    def at(self, when: int, action: Action) -> None:
        """Run `action` at a point in virtual time."""
        self._number += 1
        heapq.heappush(self._queue, (when, self._number, action))

    def send(self, direction: str, host: int, data: bytes, arrive: Action, copies: int = 1) -> None:
        """Put a datagram on a link; `copies`: how many receivers miss it if it is lost."""
        name = (direction, host)
        link = self.links.get(name, self.link)
        chance = self.random.random
        if link.loss and chance() < link.loss:
            self.lose(data, copies)
            return
        arrival = self.now
        if link.rate_bps:
            begins = max(self.now, self._free_at.get(name, 0))
            if begins - self.now > link.queue:
                self.lose(data, copies)
                return
            arrival = begins + (len(data) + HEADERS) * 8 * 10**9 // link.rate_bps
            self._free_at[name] = arrival
            self.longest_queue = max(self.longest_queue, begins - self.now)
        for _ in range(2 if link.duplicate and chance() < link.duplicate else 1):
            delay = link.delay + (int(chance() * (link.jitter + 1)) if link.jitter else 0)
            if link.reorder and chance() < link.reorder:
                delay += link.late
            self.at(arrival + delay, arrive)

    def lose(self, data: bytes, copies: int) -> None:
        """Count what somebody does not get."""
        payload = (len(data) - BESIDE) * copies
        if data[0] & 15 == spread.KIND_SPREAD:
            self.lost_answers += payload if data[5] else 0
            self.lost_bytes += 0 if data[5] else payload

    def from_host(self, rank: int, data: bytes, to: int) -> None:
        """A host's datagram enters its link."""
        if self.record:
            self.seen.append(data)
        self.sent_by_host[rank] += len(data) + HEADERS
        copies = len(self.ranks) - 1 if to == spread.TREE else 1
        self.send("up", rank, data, partial(self.at_switch, rank, data, to), copies)

    def at_switch(self, rank: int, data: bytes, to: int) -> None:
        """A datagram enters its rack's switch: to those that hang there, and up if there are others."""
        if self.now < self.switch_asleep_until:
            self.at(self.switch_asleep_until, partial(self.at_switch, rank, data, to))
            return
        if to == spread.TREE:
            assert data[0] & 15 == spread.KIND_SPREAD, "only SPREAD goes to the group's address"
            assert data[4] == rank, "a stranger's packet, by its child"
        home = self.rack(rank)
        others = [other for other in range(len(self.ranks)) if other != rank and to in (spread.TREE, other)]
        self.down(home, data, [other for other in others if self.rack(other) == home])
        away = [other for other in others if self.rack(other) != home]
        if away:
            self.send("trunk up", home, data, partial(self.at_spine, data, away), len(away))

    def at_spine(self, data: bytes, ranks: list[int]) -> None:
        """Down to each rack with one of the ranks."""
        for rack in sorted({self.rack(rank) for rank in ranks}):
            below = [rank for rank in ranks if self.rack(rank) == rack]
            self.send("trunk down", rack, data, partial(self.down, rack, data, below), len(below))

    def down(self, rack: int, data: bytes, ranks: list[int]) -> None:
        """A copy to each of these ranks of the rack; SPREAD that goes to all names it by its child."""
        for rank in ranks:
            copy = data[:4] + bytes([rank]) + data[5:]
            self.send("down", rank, copy, partial(self.at_host, rank, copy))

    def rack(self, rank: int) -> int:
        """Where a rank is."""
        return rank * self.racks // len(self.ranks)

    def at_host(self, rank: int, data: bytes) -> None:
        """A datagram arrives; it waits while the process has no core."""
        self.to_host[rank] += len(data) + HEADERS
        if self.now < self.ranks[rank].asleep_until:
            self.ranks[rank].waiting.append(data)
            return
        self.receive(rank, data)
        self.pump(rank)

    def receive(self, rank: int, data: bytes) -> None:
        """Hand a datagram to a machine."""
        near = self.tasks[-1].number if self.tasks else 0
        self.ranks[rank].spreader.receive(data, self.now, near)

    def take_cores_away(self, share: float, within: int) -> None:
        """Stop ranks and switch again and again for 2 to 30 ms; they go on one after the other."""
        begin = 0
        while begin < within:
            away = int(self.random.uniform(2, 30) * MILLISECOND)
            processes = [partial(self.sleep, rank) for rank in range(len(self.ranks))]
            processes.append(partial(setattr, self, "switch_asleep_until"))
            self.random.shuffle(processes)
            for place, process in enumerate(processes):
                self.at(begin, partial(process, begin + away + place * MILLISECOND // 3))
            begin += int(away / share)

    def sleep(self, rank: int, until: int) -> None:
        """Take the rank's core away."""
        self.ranks[rank].asleep_until = max(self.ranks[rank].asleep_until, until)
        self.at(until, partial(self._wake, rank, until))

    def pump(self, rank: int) -> None:
        """Send what a machine has, and take its events."""
        host = self.ranks[rank]
        if self.now < host.asleep_until:
            return
        spreader = host.spreader
        while (packet := spreader.transmit(self.now)) is not None:
            self.from_host(rank, *packet)
        while (slice_id := spreader.poll()) is not None:
            host.done.append(slice_id)
            host.done_at[slice_id] = self.now
            self.after_done(rank, slice_id)
        deadline = spreader.deadline()
        if deadline is not None and (host.timer is None or deadline < host.timer):
            host.timer = deadline
            self.at(deadline, partial(self._wake, rank, deadline))

    def _wake(self, rank: int, timer: int) -> None:
        """As the event loop does: first what has come, then timers, then what is to be sent."""
        host = self.ranks[rank]
        if host.timer == timer:
            host.timer = None
        if self.now < host.asleep_until:
            return
        for data in host.waiting:
            self.receive(rank, data)
        host.waiting.clear()
        deadline = host.spreader.deadline()
        if deadline is not None and deadline <= self.now:
            host.spreader.expire(self.now)
        self.pump(rank)

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

    def step(self) -> bool:
        """Advance to the next delivery or deadline; False when nothing will ever happen."""
        if not self._queue:
            return False
        when, _, action = heapq.heappop(self._queue)
        self.now = max(self.now, when)
        action()
        return True

    def run(self, done: Callable[[], bool], within: int) -> None:
        """Advance until `done`; HangError if that takes over `within` ns, or if nothing is under way."""
        bound = self.now + within
        while not done():
            if not self.step() or self.now > bound:
                raise HangError(f"at {self.now} ns: done {[r.done for r in self.ranks]}")

    def drain(self) -> None:
        """Deliver what is under way. Machines that are not idle would go on for ever."""
        while self.step():
            assert len(self._queue) < 10**6

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
        self.ranks[rank].spreader.start(
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
        self.pump(rank)

    def begin(self, task: Task, instants: Sequence[int] | None = None, unfinished: int = 0) -> None:
        """Start the task on every rank, now or so much later each."""
        for rank in range(len(self.ranks)):
            when = self.now + (instants[rank] if instants else 0)
            self.at(when, partial(self.start, task, rank, unfinished))

    def all_done(self, *tasks: Task) -> bool:
        """Whether all ranks have these tasks, or all that there are."""
        wanted = tasks or self.tasks
        return all(task.slice_id in rank.done_at for task in wanted for rank in self.ranks)
