# SPDX-License-Identifier: Apache-2.0
"""Random schedules of an algorithm in virtual time. A schedule follows from its conditions and its seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from railweave.sdk.check.network import Network, Process, serve
from railweave.sdk.check.results import DENSITIES, compare, inputs
from railweave.sdk.library import Algorithm
from railweave.sdk.machines import Array, Job
from railweave.sdk.manifest import Manifest
from railweave.sdk.virtual_time import MICROSECOND, MILLISECOND, SECOND, Link
from railweave.topologies.named import named

BOUND = 7200 * SECOND
DELAY = 20 * MICROSECOND
QUIET = 30 * SECOND  # after a rank's death, the others may go on so long
SLOTS = (2, 4, 16, 64)


@dataclass(frozen=True)
class Conditions:
    """The possible events of a schedule. The defaults are the simplest ones."""

    network: str = "planes:hosts=2"
    jobs: int = 1
    calls: int = 1
    elements: int = 1  # most in a call
    dtype: str = "int32"
    op: str = "sum"
    slots: int = 0  # if the algorithm has this option
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    late_us: int = 0  # most delay of a packet that is reordered
    apart_ms: float = 0.0  # most time between the starts of two ranks
    restart: bool = False  # of each switch, once
    death: bool = False  # of one rank of job 0
    density: float = 1.0  # share of each rank's blocks that are not zero; a block has the lanes of a packet
    anew: bool = False  # the ranks drop their calls once, and go on with new endpoints, as those of a rail do

    @classmethod
    def draw(cls, algorithm: Algorithm, seed: int, lanes: int) -> Conditions:
        """Draw the conditions of a seed, within the limits of the manifest."""
        draw, manifest = random.Random(seed), algorithm.manifest  # noqa: S311 - schedules, no secrets
        choice = draw.choice
        return cls(
            network=_network(choice(manifest.networks), draw),
            jobs=choice((1, 1, 2, 3)),
            calls=draw.randint(1, 4),
            elements=choice((1, lanes, draw.randint(1, 40 * lanes))),
            dtype=choice(manifest.dtypes),
            op=choice(manifest.operations),
            slots=choice(SLOTS) if "slots" in manifest.options else 0,
            loss=choice((0, 0, 0.001, 0.01, 0.05, 0.2)),
            duplicate=choice((0, 0, 0.02, 0.2)),
            reorder=choice((0, 0, 0.02, 0.3)),
            late_us=choice((100, 20_000)),
            apart_ms=choice((0, 1, 300)),
            restart="restart" in manifest.survives and draw.random() < 1 / 4,
            death=draw.random() < 1 / 8,
            density=choice(DENSITIES),
            anew=algorithm.restarts and draw.random() < 1 / 4,
        )

    def simpler(self) -> Iterator[Conditions]:
        """Yield conditions that differ from these in one value, which is simpler."""
        for field in fields(self):
            value: Any = getattr(self, field.name)
            least: Any = field.default
            steps = [least]
            if type(value) is int and value > least + 1:
                steps += [(value + least) // 2, value - 1]
            for step in steps:
                if step != value:
                    yield replace(self, **{field.name: step})

    def within(self, manifest: Manifest) -> bool:
        """Return whether the algorithm can run under these conditions."""
        kind = self.network.partition(":")[0]
        known = kind in manifest.networks, self.dtype in manifest.dtypes, self.op in manifest.operations
        alone = not (self.anew and self.death)
        return all(known) and alone and self.slots != 1 and self.slots.bit_count() <= 1  # a power of two

    def __str__(self) -> str:
        """Return the values that are not the simplest ones."""
        pairs = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return (
            ", ".join(f"{name}={value}" for name, value, least in pairs if value != least)
            or "the simplest conditions"
        )


def _network(kind: str, draw: random.Random) -> str:
    counts = {
        "planes": ("hosts", (2, 8)),
        "racks": (f"racks=2,ina={draw.randint(0, 2)},hosts", (1, 4)),
        "leaf-spine": ("racks=2,spines=1,hosts", (1, 4)),
        "fat-tree": ("k=4,hosts", (1, 1)),
    }
    keys, (least, most) = counts[kind]
    return f"{kind}:{keys}={draw.randint(least, most)}"


class Schedule:
    """One run of an algorithm under conditions."""

    def __init__(self, algorithm: Algorithm, conditions: Conditions, seed: int, lanes: int) -> None:
        """Make the network and the jobs."""
        self._conditions = conditions
        self._random = draw = random.Random(seed)  # noqa: S311
        self._algorithm = algorithm
        plane = named(conditions.network, rails=["ina"], rates=[0]).planes[0]
        link = Link(
            delay=DELAY,
            loss=conditions.loss,
            duplicate=conditions.duplicate,
            reorder=conditions.reorder,
            late=conditions.late_us * MICROSECOND,
        )
        self.network = Network(algorithm, plane, lanes, link, draw.getrandbits(32))
        self.counts: Counter[str] = Counter()
        self.worst = 0.0  # greatest error of a float32 result, as a share of the bound
        options = {"slots": conditions.slots} if conditions.slots else {}
        jobs = [algorithm.job(number, len(plane.nics), options, lanes) for number in range(conditions.jobs)]
        self.network.install(jobs)
        self._jobs = [_Calls(self, job, draw.getrandbits(32)) for job in jobs]

    def run(self) -> None:
        """Run to the end. Raises WrongResult, HangError, or an error of the algorithm's own code."""
        network, draw = self.network, self._random
        victim = draw.randrange(len(network.plane.nics))
        if self._conditions.restart:
            for name in network.switches:
                network.at(int(draw.random() * 20 * MILLISECOND), partial(network.restart, name))
        if self._conditions.death:
            network.at(int(draw.random() * 5 * MILLISECOND), self._jobs[0].ranks[victim].die)
        elif self._conditions.anew:
            for job in self._jobs:
                network.at(int(draw.random() * 20 * MILLISECOND), job.begin_anew)
        living = self._jobs[1:] if self._conditions.death else self._jobs
        try:
            network.run(lambda: all(job.done for job in living), BOUND)
            if self._conditions.death:  # its job gets no result without it
                network.run_until(network.now + QUIET)
        finally:
            self.counts["packets"] += network.sent
            self.counts["sent"] += network.sent_bytes
            for switch in network.switches.values():
                for table in self._algorithm.manifest.counters:
                    self.counts.update(switch.packets(table))


class _Calls:
    """The calls of one job."""

    def __init__(self, schedule: Schedule, job: Job, seed: int) -> None:
        conditions, network = schedule._conditions, schedule.network
        generator = np.random.default_rng(seed)
        self.job, self.counts, self._schedule = job, schedule.counts, schedule
        self.op, self.algorithm = conditions.op, schedule._algorithm
        counts = 1 + generator.integers(conditions.elements, size=conditions.calls)
        like = conditions.dtype, conditions.density, job.lanes
        self.given = [inputs(generator, job.ranks, int(count), *like) for count in counts]
        serve(network, job)
        self.ranks = [_Rank(network, self, rank) for rank in range(job.ranks)]
        self._generator = generator
        for rank in self.ranks:
            network.at(self._apart(), rank.start)

    def _apart(self) -> int:
        """Draw the time until a rank begins."""
        return int(self._generator.random() * self._schedule._conditions.apart_ms * MILLISECOND)

    @property
    def done(self) -> bool:
        """Whether all ranks have the results of all calls."""
        return all(rank.call == len(self.given) for rank in self.ranks)

    def begin_anew(self) -> None:
        """Drop all calls. Then let each rank go on with the first call that a rank has not completed."""
        network = self._schedule.network
        position = max(rank.endpoint.position for rank in self.ranks)
        first = max(0, min(rank.call for rank in self.ranks))
        for rank in self.ranks:
            rank.dead = True
            network.at(network.now + self._apart(), partial(rank.go_on, position, first))

    def check(self, rank: int, call: int, result: Array) -> None:
        """Compare a result with the right one for all ranks, also if one has died meanwhile."""
        given = self.given[call]
        about = f"job {self.job.number}, rank {rank}, call {call} of {given[0].size} {given[0].dtype.name}"
        share = compare(self.algorithm, given, self.op, result, about)
        self._schedule.worst = max(self._schedule.worst, share)
        self.counts["results"] += 1
        self.counts["bytes"] += given[0].nbytes


class _Rank(Process):
    """A rank that makes one call after the other, and compares each result."""

    def __init__(self, network: Network, calls: _Calls, rank: int) -> None:
        super().__init__(network, calls.job, rank)
        self.call = -1  # before the first
        self._calls, self._number = calls, rank

    def start(self) -> None:
        """Begin the first call."""
        self.call = 0
        self.endpoint.begin(self._calls.given[0][self._number], self._calls.op)
        self.turn()

    def die(self) -> None:
        """End without a word."""
        self.dead = True

    def go_on(self, position: int, call: int) -> None:
        """Go on with a call, by a new endpoint. A rank that has not started yet does so later."""
        self.dead = False
        self.endpoint = self._calls.algorithm.endpoint(self._calls.job, self._number)
        self.endpoint.start_at(position)
        if self.call >= 0 and call < len(self._calls.given):
            self.call = call
            self.endpoint.begin(self._calls.given[call][self._number], self._calls.op)
            self.turn()

    def turn(self) -> None:
        """Also begin the next call when one is done."""
        super().turn()
        given = self._calls.given
        while not self.dead and 0 <= self.call < len(given) and self.endpoint.done:
            self._calls.check(self._number, self.call, self.endpoint.result)
            self.call += 1
            if self.call < len(given):
                self.endpoint.begin(given[self.call][self._number], self._calls.op)
                super().turn()
