# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of the in-network rail: a seed determines jobs, links and faults. Every bit is compared.

    cd tests && python -m protocol.schedules --seeds 0:10000

One process holds the native endpoints and the switches, which are the model. dataplane/test_model.py compares
the model with the compiled programs. Up to three jobs share up to three levels of switches.
Links lose, duplicate and reorder packets, or die for a while. Switches restart. Groups move to other slots.
Ranks are late, or halt and go on with new calls. Workers die, and their jobs go on without them.
The explorer prints the command that replays a failed seed.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from protocol.calls import Call, draw_values, kind_of, native
from protocol.network import Network, Shape, child_of, join, root_hosts, tree_of
from protocol.network import place as place_group
from protocol.oracle import SEAL_LANES, expected
from protocol.seeds import main
from protocol.virtual_time import MICROSECOND, MILLISECOND, SECOND, Link

from railweave._native.collectives import Collective

RANGE = 64  # registers of each job in every switch
BOUND = 400 * SECOND
SHAPES: tuple[Shape, ...] = (1, 2, 3, 5, (2, 2), (1, 3, 2), ((2, 1), (1, 1)), ((1, 2), 2))
STARTS = (1, 2**31 - 2, 2**32 - 2)  # first serial numbers; some wrap
OPS = ("sum", "avg", "max", "min")
DTYPES = ("float32", "float16", "bfloat16", "int32", "int32")
MOVED = ("uint8", "uint16", "int32", "float64")  # types of collectives without a reduction, one for each size
MOVING = (Collective.ALL_GATHER, Collective.BROADCAST)
SLOTS = (1, 2, 4, 16)

Choose = Callable[[list[int]], list[int]]


def least(positions: list[int]) -> list[int]:
    """Return where each rank resumes: all from the least position."""
    return [min(positions)] * len(positions)


@dataclass
class Job:
    """One job: a group in the switches, and an endpoint for each of its hosts."""

    hosts: list[int]
    slots: int
    base: int
    start: int
    group: int = 0
    ranks: list[int] = field(default_factory=list)  # indices in the network
    calls: list[Call] = field(default_factory=list)
    begun: int = 0  # the first call since the last halt
    moving: bool = False
    halting: bool = False  # until all ranks have restarted
    halted: set[int] = field(default_factory=set)  # ranks

    def used(self, network: Network) -> int:
        """Return the most rounds that the group can have used. The next `start` must be after them."""
        sent = max(network.endpoints[rank].stats()["contributions"] for rank in self.ranks)
        return sent // (2 * self.slots) + 2  # type: ignore[no-any-return]


class Schedule:
    """One run. Mutants change where ranks resume (`resume_from`)."""

    def __init__(self, seed: int, resume_from: Choose = least) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.resume_from = resume_from
        self.lanes = SEAL_LANES + self.random.choice((1, 4, 8, 60))
        self.shape = self.random.choice(SHAPES)
        self.counts: Counter[str] = Counter()
        self.next_group = 7
        root = tree_of(self.shape, self.lanes)
        self.network = Network([], root, self.draw_link(), self.random.getrandbits(32))
        self.jobs = [self.form(index) for index in range(self.random.choice((1, 1, 2, 3)))]

    # --- drawing ---

    def draw_link(self) -> Link:
        """Draw the properties of the links."""
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
        job = Job(members, self.random.choice(SLOTS), index * RANGE, self.random.choice(STARTS))
        self.enter(job)
        return job

    def enter(self, job: Job) -> None:
        """Add the job to the switches, and give its ranks endpoints and calls."""
        job.group = self.next_group
        self.next_group += 1
        endpoints = join(
            *(self.network.root, job.hosts, job.slots, self.lanes),
            group=job.group,
            start=job.start,
            base=job.base,
        )
        job.ranks = [self.network.add(each, host) for each, host in zip(endpoints, job.hosts, strict=True)]
        job.calls, job.begun = [], 0
        calls = self.draw_calls(job)
        for rank in job.ranks:
            self.begin(job, rank, calls)

    def draw_calls(self, job: Job) -> range:
        """Draw the next calls, and return their numbers."""
        first = len(job.calls)
        job.begun = first
        job.calls += [self.draw_call(len(job.hosts)) for _ in range(self.random.randint(1, 3))]
        return range(first, len(job.calls))

    def draw_call(self, ranks: int) -> Call:
        """Draw a collective: type, length and values."""
        choice, lanes = self.random.choice, self.lanes
        collective = choice(
            (Collective.ALL_REDUCE, Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, *MOVING)
        )
        count = choice((1, lanes - 1, lanes, lanes + 1, self.random.randint(1, 24 * lanes)))
        if collective in MOVING:
            dtype = np.dtype(choice(MOVED))
            raw = self.numbers.integers(0, 256, (ranks, count * dtype.itemsize), np.uint8)
            inputs = [each.view(dtype) for each in raw]
        else:
            wide = ranks if collective is Collective.REDUCE_SCATTER else 1
            dtype, nonfinite = kind_of(choice(DTYPES)), choice((0, 0, 0, 0.05))
            inputs = [draw_values(self.numbers, dtype, wide * count, nonfinite) for _ in range(ranks)]
            if collective is Collective.REDUCE_SCATTER:
                inputs = [values.reshape(ranks, count) for values in inputs]
        offset = choice((0, 0, count // 3))
        return Call(
            inputs,
            collective,
            op="sum" if collective in MOVING else choice(OPS),
            root=self.random.randrange(ranks) if collective is Collective.BROADCAST else 0,
            offset=offset,
            count=choice((count - offset, self.random.randint(1, count - offset))),
            in_place=self.random.random() < 0.5,
        )

    # --- calls and faults ---

    def begin(self, job: Job, rank: int, calls: range) -> None:
        """Let a rank start these calls in order, with pauses in between."""
        when = self.network.now
        for number in calls:
            when += self.random.choice((0, 0, 40, 3_000, 60_000)) * MICROSECOND
            self.network.at(when, partial(self.start, job, rank, number))

    def start(self, job: Job, rank: int, number: int) -> None:
        """Start a rank's next call, unless the call or the rank has been given up in the meantime."""
        if rank not in job.ranks or rank in job.halted or number < job.begun:
            return
        start_call(self.network.endpoints[rank], number, job.calls[number], job.ranks.index(rank))
        self.network.ranks[rank].pump()

    def soon(self) -> int:
        """Return a time shortly after now."""
        return self.network.now + self.random.choice((0, 30, 700, 20_000)) * MICROSECOND

    def move(self, job: Job) -> None:
        """Pause all ranks, each at a different time. Then the group goes on with another number."""
        if job.moving:
            return
        job.moving = True
        self.counts["move"] += 1
        positions: dict[int, int] = {}
        for rank in job.ranks:
            self.network.at(self.soon(), partial(self.pause, job, rank, positions))

    def pause(self, job: Job, rank: int, positions: dict[int, int]) -> None:
        """Pause one rank. After the last one the group moves."""
        if rank not in job.ranks:
            return
        positions[rank] = self.network.endpoints[rank].pause(self.network.now)
        if len(positions) < len(job.ranks):
            return
        self.leave(job)
        job.group, job.slots = self.next_group, self.random.choice((job.slots, 1, 4, 32))
        self.next_group += 1
        place_group(self.network.root, job.group, job.hosts, job.slots, job.start, job.base)
        froms = self.resume_from([positions[each] for each in job.ranks])
        for each, resume_from in zip(job.ranks, froms, strict=True):
            self.network.at(self.soon(), partial(self.resume, job, each, job.group, resume_from))
        job.moving = False

    def leave(self, job: Job) -> None:
        """Remove the group from the switches. Its next serial numbers follow those that it can have used."""
        job.start = (job.start + job.used(self.network)) % 2**32
        for node in self.network.root.nodes():
            if any(host in job.hosts for host in root_hosts(node)):
                node.switch.remove(job.group)

    def resume(self, job: Job, rank: int, group: int, resume_from: int) -> None:
        """Resume one rank, unless it already has this group or is gone."""
        endpoint = self.network.endpoints[rank]
        if rank not in job.ranks or endpoint.group == group:
            return
        child = child_of(self.network.root, self.network.ranks[rank].host, job.hosts)
        place = {"group": group, "child": child, "slots": job.slots, "lanes": self.lanes}
        endpoint.resume(**place, resume_from=resume_from, now=self.network.now)
        self.network.ranks[rank].pump()

    def restart(self) -> None:
        """Restart all switches without their state, and move every group."""
        if any(job.moving for job in self.jobs) or self.resuming():
            return
        self.counts["restart"] += 1
        self.network.replace(tree_of(self.shape, self.lanes))
        for job in self.jobs:
            place_group(self.network.root, job.group, job.hosts, job.slots, job.start, job.base)
            self.move(job)

    def resuming(self) -> bool:
        """Return whether some rank does not know its current group yet."""
        return any(self.network.endpoints[rank].group != job.group for job in self.jobs for rank in job.ranks)

    def halt(self) -> None:
        """Halt all ranks of a job, each at a different time. Then all go on with new calls."""
        job = self.random.choice(self.jobs)
        if job.halting:
            return
        job.halting = True
        self.counts["halt"] += 1
        for rank in job.ranks:
            self.network.at(self.soon(), partial(self.halt_one, job, rank))

    def halt_one(self, job: Job, rank: int) -> None:
        """Halt one rank, which gives up unfinished calls. After the last one all ranks restart."""
        if rank not in job.ranks:
            return
        self.network.endpoints[rank].halt()
        for number in range(job.begun, len(job.calls)):
            if number not in self.network.events[rank]:
                job.calls[number].spoil(job.ranks.index(rank))
        job.halted.add(rank)
        if len(job.halted) < len(job.ranks):
            return
        calls, at_once = self.draw_calls(job), self.random.random() < 0.7
        base = max(self.network.endpoints[each].next_chunk() for each in job.ranks)
        for each in job.ranks:
            self.network.at(self.soon(), partial(self.restart_one, job, each, base, calls, at_once))

    def restart_one(self, job: Job, rank: int, base: int, calls: range, at_once: bool) -> None:
        """Restart one rank at the greatest next chunk of all ranks."""
        if rank not in job.ranks:
            return
        self.network.endpoints[rank].restart(base, self.network.now)
        job.halted.remove(rank)
        job.halting = bool(job.halted)
        for number in calls if at_once else ():
            self.start(job, rank, number)
        if not at_once:
            self.begin(job, rank, calls)
        self.network.ranks[rank].pump()

    def cut(self) -> None:
        """Cut a host's link for a while."""
        self.counts["cut"] += 1
        host = self.random.choice(root_hosts(self.network.root))
        self.network.links = {(self.random.choice(("up", "down")), host): Link(loss=1.0)}
        self.network.at(self.network.now + self.random.choice((5, 2_000)) * MILLISECOND, self.mend)

    def mend(self) -> None:
        """Repair all links."""
        self.network.links = {}

    def kill(self) -> None:
        """Kill a worker. The others give up their calls, and form the job again in the same slots."""
        job = self.random.choice(self.jobs)
        moves = job.moving or any(self.network.endpoints[rank].group != job.group for rank in job.ranks)
        if len(job.ranks) < 2 or job.halting or moves:
            return
        self.counts["death"] += 1
        gone = self.random.randrange(len(job.ranks))
        self.leave(job)
        for rank in job.ranks:
            self.network.endpoints[rank].abort()
        job.hosts = [host for place, host in enumerate(job.hosts) if place != gone]
        self.enter(job)

    # --- the run ---

    def run(self) -> None:
        """Run to the end. Raise AssertionError for a wrong bit, a hang or a forbidden event."""
        faults = (self.restart, self.cut, self.any_move, self.any_move, self.kill, self.halt, self.halt)
        for _ in range(self.random.choice((0, 0, 1, 1, 2, 3, 5))):
            when = self.random.randrange(100) * self.random.choice((10, 1000)) * MICROSECOND
            self.network.at(when, self.random.choice(faults))
        self.network.run(self.done, within=BOUND)
        self.network.drain()
        self.counts["packets"] += sum(rank.packets_sent for rank in self.network.ranks)
        self.check()

    def any_move(self) -> None:
        """Move one of the jobs."""
        if not self.resuming():
            self.move(self.random.choice(self.jobs))

    def done(self) -> bool:
        """Return whether all ranks have all results since the last halt."""
        events = self.network.events
        return not any(job.halting for job in self.jobs) and all(
            all(number in events[rank] for number in range(job.begun, len(job.calls)))
            for job in self.jobs
            for rank in job.ranks
        )

    def check(self) -> None:
        """Compare every bit with the oracle."""
        for job in self.jobs:
            for rank in job.ranks:
                done = [event for event in self.network.events[rank] if not is_stall(event)]
                assert done == sorted(set(done)), f"events {done}"
                assert set(range(job.begun, len(job.calls))) <= set(done), f"events {done}"
                assert self.network.endpoints[rank].idle, "an endpoint is not idle"
            for number, call in enumerate(job.calls):
                about = f"group {job.group}, call {number} ({call.collective}, {call.op})"
                reduce = partial(reduced, call, self.lanes)
                for place, wanted in enumerate(call.expected(reduce)):
                    if place not in call.spoilt:
                        call.check(place, wanted, f"{about}, rank {place}")
                call.check_spoilt(about)


def reduced(call: Call, lanes: int, parts: Any) -> Any:
    """Return the oracle's result for the ranks' parts. Sums of shards have neither wide nor exact lanes."""
    whole = call.collective is Collective.ALL_REDUCE
    return expected(parts, call.op, lanes, wide=whole, exact=whole or len(parts) == 1)


def start_call(endpoint: Any, number: int, call: Call, rank: int) -> None:
    """Start one rank's part of a call."""
    endpoint.start_part(
        *(number, call.op, native(call.given[rank]), native(call.outputs[rank])),
        *(call.collective, call.root, rank, call.whole, call.offset, call.count),
    )


def is_stall(event: object) -> bool:
    """Return whether an event only reports silence."""
    return isinstance(event, tuple) and event[0] == "stalled"


if __name__ == "__main__":
    sys.exit(main(Schedule, __doc__))
