# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of ATP: workers, parameter servers and the compiled program; every sum is checked.

    cd tests && python -m protocol.atp_schedules --seeds 0:10000

Two racks of which none, one or both aggregate, up to three jobs that share one to sixteen aggregators, loss,
duplication, reordering, late ranks, sums that saturate on their way; all in virtual time.
"""

from __future__ import annotations

import heapq
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import numpy as np
from dataplane.harness import Switch
from dataplane.inprocess import InProcessSwitch
from dataplane.programs import aggregation
from numpy.typing import NDArray
from protocol.engine_switch import HEADERS, Station, frame
from protocol.seeds import main

from railweave.controller.routes import routes
from railweave.controller.state import SwitchState
from railweave.experiments.contenders.atp import fabric
from railweave.experiments.contenders.atp.packet import server_port, worker_port
from railweave.experiments.contenders.atp.server import Server
from railweave.experiments.contenders.atp.worker import Worker
from railweave.p4src.artifacts import ATP
from railweave.topologies.model import Nic, Plane
from railweave.topologies.named import named

LANES = 64
HOP_S = 20e-6
BOUND_S = 7200.0

Mutation = Callable[[dict[str, Any]], None]


class HangError(Exception):
    """Ranks wait for something that does not come."""


@lru_cache(maxsize=4)
def loaded_switch(number: int, mutation: Mutation | None) -> InProcessSwitch:
    """A switch with the program, or what a mutation of its JSON makes of it; it serves many schedules."""
    program = aggregation(LANES, ATP)
    switch = InProcessSwitch()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as mutant:
        if mutation:
            changed = json.loads(program.json.read_text())
            mutation(changed)
            json.dump(changed, mutant)
            mutant.flush()
            program = replace(program, json=Path(mutant.name))
        switch.load(replace(program, prepare=None))
    return switch


def install(switch: Switch, state: SwitchState) -> None:
    """Give a switch what the fabric says."""
    for entry in state.entries:
        switch.insert(entry.table, dict(entry.match), entry.action, dict(entry.params))
    for group in state.multicasts:
        switch.multicast(group.group, sorted(group.replicas))


def remove(switch: Switch, state: SwitchState) -> None:
    """Take that away, and what aggregators hold."""
    for entry in state.entries:
        switch.delete(entry.table, dict(entry.match))
    for group in state.multicasts:
        switch.delete_multicast(group.group)
    arrays = switch.control.device.pipeline.arrays  # type: ignore[attr-defined]
    arrays.set_registers("aggregator_owner", range(64), 0)


@dataclass
class Job:
    """A job's ranks and server, and what it is to compute."""

    number: int
    workers: list[Worker]
    server: Server
    given: list[list[NDArray[np.int32]]]  # by call and rank
    ready_s: list[float]  # by rank: how late it is
    call: list[int]  # by rank


@dataclass
class Outcome:
    """What a schedule came to."""

    failure: str = ""
    results: int = 0  # of ranks, compared
    decided: Counter[str] = field(default_factory=Counter)


class Schedule:
    """One seed's network, jobs and faults."""

    def __init__(self, seed: int, mutation: Mutation | None = None) -> None:
        self.random = draw = random.Random(seed)
        self.loss = draw.choice((0, 0, 0.01, 0.05, 0.2))
        self.duplication = draw.choice((0, 0.02, 0.2))
        self.reordering = draw.choice((0, 0.02, 0.3))
        self.late_s = draw.choice((100e-6, 20e-3))
        hosts, ina = draw.randint(1, 4), draw.randint(0, 2)
        self.plane: Plane = named(f"racks:racks=2,hosts={hosts},ina={ina}", rails=["ina"], rates=[0]).planes[
            0
        ]
        self.now_s = 0.0
        self.outcome = Outcome()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self.jobs = [self._job(number) for number in range(draw.randint(1, 3))]
        slots = 1 << draw.randint(0, 4)
        self.states = fabric.states(self.plane, range(len(self.jobs)), slots)
        self.switches = {name: loaded_switch(i, mutation) for i, name in enumerate(self.states)}
        self.receivers = fabric.receivers(self.plane)
        self.ports = self._far_ends()
        self.bridging = {
            name: {dict(entry.match)["destination"]: dict(entry.params)["port"] for entry in way.entries}
            for name, way in routes(self.plane).items()
        }

    def _job(self, number: int) -> Job:
        draw, ranks = self.random, len(self.plane.nics)
        generator = np.random.default_rng(draw.randrange(2**32))
        given = []
        for _ in range(draw.randint(1, 4)):
            count = draw.choice((1, LANES, draw.randint(1, 40 * LANES)))
            given.append(list(generator.integers(-(2**31), 2**31, (ranks, count)).astype(np.int32)))
        late = draw.choice((0.0, 1e-3, 0.3))
        return Job(
            number,
            [Worker(rank, ranks, number, LANES) for rank in range(ranks)],
            Server(number, ranks, LANES),
            given,
            [draw.random() * late for _ in range(ranks)],
            [0] * ranks,
        )

    def _far_ends(self) -> dict[tuple[str, int], tuple[str, int] | Nic]:
        ends: dict[tuple[str, int], tuple[str, int] | Nic] = {(n.switch, n.port): n for n in self.plane.nics}
        for t in self.plane.trunks:
            ends[t.lower, t.lower_port] = t.upper, t.upper_port
            ends[t.upper, t.upper_port] = t.lower, t.lower_port
        return ends

    # --- the network ---

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, self._serial, call))
        self._serial += 1

    def launch(self, call: Callable[[], None]) -> None:
        """Carry something over a link, or not."""
        draw = self.random.random
        for _ in range(2 if draw() < self.duplication else 1):
            if draw() >= self.loss:
                late_s = draw() * self.late_s if draw() < self.reordering else 0.0
                self.at(self.now_s + HOP_S + late_s, call)

    def to_switch(self, name: str, port: int, data: bytes) -> None:
        if name in self.switches:
            out = self.switches[name].exchange(port, data)
        else:
            out = [(self.bridging[name][int.from_bytes(data[:6])], data)]
        for to, changed in out:
            self.launch(lambda end=self.ports[name, to], data=changed: self.arrive(end, data))  # type: ignore[misc]

    def arrive(self, end: tuple[str, int] | Nic, data: bytes) -> None:
        if isinstance(end, tuple):
            self.to_switch(*end, data)
            return
        assert data[:6] == _mac(end), "a frame is addressed wrongly"
        assert data[30:34] == IPv4Address(end.address).packed
        self.to_host(self.plane.nics.index(end), int.from_bytes(data[36:38]), data[HEADERS:])

    def to_host(self, rank: int, port: int, datagram: bytes) -> None:
        for job in self.jobs:
            if port == worker_port(job.number):
                job.workers[rank].receive(datagram, self.now_s)
            elif port == server_port(job.number) and rank == 0:
                self._serve(job, datagram)

    def _serve(self, job: Job, datagram: bytes) -> None:
        answer = job.server.receive(datagram)
        if answer is not None:
            to = {self.receivers[r] for r in range(job.server.ranks) if answer[1] >> r & 1}
            for address in sorted(to):
                rank = next(r for r, nic in enumerate(self.plane.nics) if nic.address == address)
                self.send(0, server_port(job.number), rank, worker_port(job.number), answer[0])

    def send(self, rank: int, port: int, to: int, to_port: int, datagram: bytes) -> None:
        if rank == to:
            self.at(self.now_s, lambda: self.to_host(to, to_port, datagram))
            return
        own, peer = self.plane.nics[rank], self.plane.nics[to]
        data = frame(_station(own, port), _station(peer, to_port), datagram)
        self.launch(lambda: self.to_switch(own.switch, own.port, data))

    # --- running ---

    def run(self) -> Outcome:
        for name, state in self.states.items():
            install(self.switches[name], state)
        before = self._counts()
        try:
            self._run()
        finally:
            self.outcome.decided = self._counts() - before
            for name, state in self.states.items():
                remove(self.switches[name], state)
        return self.outcome

    def _counts(self) -> Counter[str]:
        counted = (Counter(switch.action_packets("decide")) for switch in self.switches.values())
        return sum(counted, Counter())

    def _run(self) -> None:
        for job in self.jobs:
            for rank, ready_s in enumerate(job.ready_s):
                self.at(ready_s, lambda job=job, rank=rank: self._begin(job, rank))  # type: ignore[misc]
        while any(call < len(job.given) for job in self.jobs for call in job.call):
            times = [worker.deadline() for job in self.jobs for worker in job.workers]
            times += [event[0] for event in self._events[:1]]
            self.now_s = max(self.now_s, min(times))
            if self.now_s > BOUND_S:
                raise HangError(f"not done after {BOUND_S:g} s")
            while self._events and self._events[0][0] <= self.now_s:
                heapq.heappop(self._events)[2]()
            for job in self.jobs:
                for rank in range(len(job.workers)):
                    self._progress(job, rank)

    def _begin(self, job: Job, rank: int) -> None:
        job.workers[rank].begin(job.given[job.call[rank]][rank])

    def _progress(self, job: Job, rank: int) -> None:
        worker = job.workers[rank]
        while (packet := worker.transmit(self.now_s)) is not None:
            self.send(rank, worker_port(job.number), 0, server_port(job.number), packet)
        if self.now_s < job.ready_s[rank] or not worker.done or job.call[rank] == len(job.given):
            return
        given = job.given[job.call[rank]]
        out = np.empty_like(given[rank])
        worker.finish(out)
        exact = np.sum(np.stack(given), axis=0, dtype=np.int32)
        assert (out == exact).all(), f"job {job.number}, rank {rank}: call {job.call[rank]} is wrong"
        self.outcome.results += 1
        job.call[rank] += 1
        if job.call[rank] < len(job.given):
            self._begin(job, rank)


def _mac(nic: Nic) -> bytes:
    return bytes.fromhex(nic.mac.replace(":", ""))


def _station(nic: Nic, port: int) -> Station:
    return Station(IPv4Address(nic.address).packed, _mac(nic), port)


def run_seed(seed: int) -> Outcome:
    """Run one seed's schedule."""
    schedule = Schedule(seed)
    try:
        return schedule.run()
    except (AssertionError, HangError) as error:
        return Outcome(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main(run_seed, __doc__))
