# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules: jobs, links and faults drawn from one number, and every result held to the oracle's bits.

    cd tests && python -m protocol.schedules --seeds 0:10000

One process holds the native endpoints and, as switches, the compiled P4 program in the embedded engine; time
is virtual. One to three levels; one to three jobs sharing switches; loss, duplication, reordering, late
ranks; switches that restart; groups that move; links that die for a while; workers that die, whose jobs go
on without them in the same slots. A seed that fails is printed with the command that replays it.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from protocol.network import (
    MICROSECOND,
    MILLISECOND,
    SECOND,
    Link,
    Network,
    Node,
    Shape,
    child_of,
    join,
    root_hosts,
    tree_of,
)
from protocol.network import place as place_group
from protocol.oracle import BFLOAT16, Array, expected
from protocol.seeds import main

LANES = 64
RANGE = 64  # registers that each job has of every switch
BOUND = 400 * SECOND
SHAPES = (1, 2, 3, 5, (2, 2), (1, 3, 2), ((2, 1), (1, 1)), ((1, 2), 2))
STARTS = (1, 2**31 - 2, 2**32 - 2)  # of serial numbers: some wrap
OPS = ("sum", "avg", "max", "min")
DTYPES = ("float32", "float16", "bfloat16", "int32", "int32")

MakeTree = Callable[[Shape], Node]
Choose = Callable[[list[int]], list[int]]


def engine_tree(shape: Shape) -> Node:
    """Switches that run the compiled program."""
    return tree_of(shape, LANES, engine=True)


def least(positions: list[int]) -> list[int]:
    """Where each rank resumes: all from the least position."""
    return [min(positions)] * len(positions)


@dataclass
class Call:
    """One collective of a job: what each rank hands in, and where it wants the result."""

    op: str
    inputs: list[Array]
    outputs: list[Array]
    in_place: bool


@dataclass
class Job:
    """One job: a group in the switches, and an endpoint for each of its hosts."""

    hosts: list[int]
    slots: int
    base: int
    group: int
    start: int
    ranks: list[int] = field(default_factory=list)  # places in the network
    calls: list[Call] = field(default_factory=list)
    moving: bool = False

    def used(self, network: Network) -> int:
        """Rounds that the group can have used, so that the next `start` is beyond."""
        sent = max(network.endpoints[rank].stats()["contributions"] for rank in self.ranks)
        return sent // (2 * self.slots) + 2


class Schedule:
    """One run. `tree` makes the switches, `resume_from` says where ranks go on: mutants replace them."""

    def __init__(self, seed: int, tree: MakeTree = engine_tree, resume_from: Choose = least) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.make_tree = tree
        self.resume_from = resume_from
        self.shape = Shape.of(self.random.choice(SHAPES))
        self.faults: Counter[str] = Counter()
        self.next_group = 7
        self.network = Network([], tree(self.shape), self.draw_link(), self.random.getrandbits(32))
        self.jobs = [self.form(index) for index in range(self.random.choice((1, 1, 2, 3)))]

    # --- what is drawn ---

    def draw_link(self) -> Link:
        """Draw how the links treat packets."""
        choice = self.random.choice
        return Link(
            loss=choice((0.0, 0.0, 0.01, 0.05, 0.2)),
            duplicate=choice((0.0, 0.01, 0.2)),
            jitter=choice((0, 20 * MICROSECOND, 2 * MILLISECOND)),
            reorder=choice((0.0, 0.01, 0.1)),
            late=choice((MILLISECOND, 30 * MILLISECOND)),
            packet_time=choice((0, 0, 10 * MICROSECOND)),
        )

    def form(self, index: int) -> Job:
        """Draw a job on some of the hosts, and its calls."""
        hosts = root_hosts(self.network.root)
        members = sorted(self.random.sample(hosts, self.random.randint(1, len(hosts))))
        slots = self.random.choice((1, 2, 4, 16))
        job = Job(members, slots, index * RANGE, self.next_group, self.random.choice(STARTS))
        self.enter(job)
        return job

    def enter(self, job: Job) -> None:
        """Give the job its place in the switches, and its ranks endpoints and calls."""
        job.group = self.next_group
        self.next_group += 1
        endpoints = join(
            self.network.root, job.hosts, job.slots, LANES, group=job.group, start=job.start, base=job.base
        )
        job.ranks = [self.network.add(each, host) for each, host in zip(endpoints, job.hosts, strict=True)]
        job.calls = [self.draw_call(len(job.hosts)) for _ in range(self.random.randint(1, 3))]
        for place, rank in enumerate(job.ranks):
            when = self.network.now
            for number in range(len(job.calls)):
                when += self.random.choice((0, 0, 40, 3_000, 60_000)) * MICROSECOND
                self.network.at(when, partial(self.start, job, place, rank, number))

    def draw_call(self, ranks: int) -> Call:
        """Draw a collective: type, length and values."""
        op, dtype = self.random.choice(OPS), self.random.choice(DTYPES)
        count = self.random.choice((1, LANES - 1, LANES, LANES + 1, self.random.randint(1, 24 * LANES)))
        if dtype == "int32":
            inputs: list[Array] = list(self.numbers.integers(-(2**31), 2**31, (ranks, count), np.int32))
        else:
            kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
            scale = np.exp2(self.numbers.integers(-12, 12, count))
            values = (self.numbers.standard_normal((ranks, count)) * scale).astype(np.float32)
            if self.random.random() < 0.2:
                values[self.numbers.random(values.shape) < 0.05] = self.random.choice((np.nan, np.inf))
            inputs = list(values.astype(kind))
        in_place = self.random.random() < 0.5
        outputs = [values.copy() if in_place else np.zeros_like(values) for values in inputs]
        return Call(op, inputs, outputs, in_place)

    # --- what happens ---

    def start(self, job: Job, place: int, rank: int, number: int) -> None:
        """Start a rank's next call, unless the rank has been given up meanwhile."""
        if rank not in job.ranks:
            return
        call = job.calls[number]
        output = call.outputs[place]
        given = output if call.in_place else call.inputs[place]
        if output.dtype == BFLOAT16:
            given, output = given.view(np.uint16), output.view(np.uint16)
        self.network.endpoints[rank].start(number, call.op, given, output)
        self.network.pump(rank)

    def move(self, job: Job) -> None:
        """Pause all ranks, each at its time; then the group goes on under another number."""
        if job.moving:
            return
        job.moving = True
        self.faults["move"] += 1
        positions: dict[int, int] = {}
        for rank in job.ranks:
            self.network.at(self.soon(), partial(self.pause, job, rank, positions))

    def soon(self) -> int:
        """A time shortly from now."""
        return self.network.now + self.random.choice((0, 30, 700, 20_000)) * MICROSECOND

    def pause(self, job: Job, rank: int, positions: dict[int, int]) -> None:
        """Pause one rank; the last one lets the group move."""
        if rank not in job.ranks:
            return
        positions[rank] = self.network.endpoints[rank].pause(self.network.now)
        if len(positions) < len(job.ranks):
            return
        self.leave(job)
        job.group = self.next_group
        self.next_group += 1
        place_group(self.network.root, job.group, job.hosts, job.slots, job.start, job.base)
        froms = self.resume_from([positions[each] for each in job.ranks])
        for each, resume_from in zip(job.ranks, froms, strict=True):
            self.network.at(self.soon(), partial(self.resume, job, each, job.group, resume_from))
        job.moving = False

    def leave(self, job: Job) -> None:
        """Take the group out of the switches; its range goes on behind what it can have used."""
        job.start = (job.start + job.used(self.network)) % 2**32
        for node in self.network.root.nodes():
            if any(host in job.hosts for host in root_hosts(node)):
                node.switch.remove(job.group)

    def resume(self, job: Job, rank: int, group: int, resume_from: int) -> None:
        """Let one rank go on, unless the group has moved on or the rank is gone."""
        endpoint = self.network.endpoints[rank]
        if rank not in job.ranks or endpoint.group == group:
            return
        child = child_of(self.network.root, self.network.ranks[rank].host, job.hosts)
        endpoint.resume(
            group=group,
            child=child,
            slots=job.slots,
            lanes=LANES,
            resume_from=resume_from,
            now=self.network.now,
        )
        self.network.pump(rank)

    def restart(self) -> None:
        """All switches lose their state; every group moves."""
        if any(job.moving for job in self.jobs) or self.resuming():
            return
        self.faults["restart"] += 1
        self.network.replace(self.make_tree(self.shape))
        for job in self.jobs:
            place_group(self.network.root, job.group, job.hosts, job.slots, job.start, job.base)
            self.move(job)

    def resuming(self) -> bool:
        """Whether some rank has yet to hear where its group is."""
        return any(self.network.endpoints[rank].group != job.group for job in self.jobs for rank in job.ranks)

    def cut(self) -> None:
        """A host's link is dead for a while."""
        self.faults["cut"] += 1
        host = self.random.choice(root_hosts(self.network.root))
        self.network.links = {(self.random.choice(("up", "down")), host): Link(loss=1.0)}
        self.network.at(self.network.now + self.random.choice((5, 2_000)) * MILLISECOND, self.mend)

    def mend(self) -> None:
        """All links are as before."""
        self.network.links = {}

    def kill(self, job: Job) -> None:
        """A worker dies; the others give up, and form the job again in the same slots."""
        if (
            len(job.ranks) < 2
            or job.moving
            or any(self.network.endpoints[r].group != job.group for r in job.ranks)
        ):
            return
        self.faults["death"] += 1
        gone = self.random.randrange(len(job.ranks))
        self.leave(job)
        for rank in job.ranks:
            self.network.endpoints[rank].abort()
        job.hosts = [host for place, host in enumerate(job.hosts) if place != gone]
        self.enter(job)

    # --- the run ---

    def run(self) -> None:
        """Run to the end; AssertionError for a wrong bit, a hang or an event that must not be."""
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 3))):
            fault = self.random.choice((self.restart, self.cut, self.any_move, self.any_move, self.any_death))
            self.network.at(self.random.randrange(100) * self.random.choice((10, 1000)) * MICROSECOND, fault)
        self.network.run(self.done, within=BOUND)
        self.network.drain()
        self.check()

    def any_move(self) -> None:
        """Move one of the jobs."""
        if not self.resuming():
            self.move(self.random.choice(self.jobs))

    def any_death(self) -> None:
        """Kill a worker of one of the jobs."""
        self.kill(self.random.choice(self.jobs))

    def done(self) -> bool:
        """Whether all ranks have all results."""
        ranks = self.network.ranks
        return all(
            all(number in ranks[rank].events for number in range(len(job.calls)))
            for job in self.jobs
            for rank in job.ranks
        )

    def check(self) -> None:
        """Compare every bit with the oracle's."""
        for job in self.jobs:
            for rank in job.ranks:
                events = [event for event in self.network.events[rank] if not is_stall(event)]
                assert set(events) == set(range(len(job.calls))), f"events {events}"
                assert len(events) == len(job.calls), f"events {events}"
                assert self.network.endpoints[rank].idle, "an endpoint is not idle"
            for number, call in enumerate(job.calls):
                wanted = expected(call.inputs, call.op, LANES)
                bits = f"u{wanted.dtype.itemsize}"
                for place, output in enumerate(call.outputs):
                    wrong = int((output.view(bits) != wanted.view(bits)).sum())
                    assert not wrong, (
                        f"group {job.group}, call {number} ({call.op}, {output.dtype}), "
                        f"rank {place}: {wrong} of {len(output)} elements are wrong"
                    )


def is_stall(event: object) -> bool:
    """Whether an endpoint has told of silence only."""
    return isinstance(event, tuple) and event[0] == "stalled"


@dataclass(frozen=True)
class Outcome:
    """What became of one seed."""

    failure: str
    faults: Counter[str]
    packets: int


def run_seed(seed: int, tree: MakeTree = engine_tree, resume_from: Choose = least) -> Outcome:
    """Run the schedule of one seed."""
    schedule = Schedule(seed, tree, resume_from)
    failure = ""
    try:
        schedule.run()
    except (AssertionError, ValueError) as error:
        failure = f"{type(error).__name__}: {error}"
    return Outcome(failure, schedule.faults, sum(schedule.network.packets_sent))


if __name__ == "__main__":
    sys.exit(main(run_seed, __doc__))
