# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of ATP: workers, parameter servers and the compiled program; every sum is checked.

    cd tests && python -m protocol.atp_schedules --seeds 0:10000

Zero, one or both of two racks aggregate. Up to three jobs share one to sixteen aggregators. Links lose,
duplicate and reorder packets. Ranks start late, and sums saturate in the switches. All time is virtual.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from math import ceil

import numpy as np
from dataplane.inprocess import InProcessSwitch
from dataplane.packets import HEADERS
from dataplane.packets import datagram as frame
from dataplane.programs import aggregation
from numpy.typing import NDArray
from protocol.seeds import main
from protocol.virtual_time import MICROSECOND, MILLISECOND, SECOND, Link, Process, World

from railweave.controller.routes import routes
from railweave.controller.tables import Endpoint, ip_number, mac_number
from railweave.experiments.contenders.atp import fabric
from railweave.experiments.contenders.atp.packet import server_port, worker_port
from railweave.experiments.contenders.atp.server import Server
from railweave.experiments.contenders.atp.worker import Worker
from railweave.p4src.artifacts import ATP
from railweave.topologies.model import Nic, Plane
from railweave.topologies.named import named

LANES = 64
BOUND = 7200 * SECOND


class Rank(Process):
    """A worker of a job. It makes one call after the other, and compares each sum."""

    def __init__(self, schedule: Schedule, job: Job, number: int) -> None:
        self.worker = Worker(number, len(schedule.plane.nics), job.number, LANES)
        super().__init__(schedule.network, self.worker)
        self.schedule, self.job, self.number = schedule, job, number
        self.call = -1  # before the first

    def deadline(self) -> int | None:
        """Return when the worker has to send again. The worker's time is in seconds, so round up."""
        due_s = self.worker.deadline()
        return None if due_s == float("inf") else ceil(due_s * SECOND) + 1

    def receive(self, datagram: bytes) -> None:
        self.worker.receive(datagram, self.world.now / SECOND)

    def turn(self) -> None:
        """Receive, send, and begin the next call when one is done."""
        while self.waiting:
            self.receive(*self.waiting.popleft())
        if self.call >= 0:
            self.pump()

    def pump(self) -> None:
        if self.worker.done and not self.done():
            self.next_call()
        while (packet := self.worker.transmit(self.world.now / SECOND)) is not None:
            to = server_port(self.job.number)
            self.schedule.send(self.number, worker_port(self.job.number), 0, to, packet)
        self._set_timer(self.deadline())

    def next_call(self) -> None:
        """Compare the call that is done, and begin the next."""
        if self.call >= 0:
            given = self.job.given[self.call]
            out = np.empty_like(given[self.number])
            self.worker.finish(out)
            exact = np.sum(np.stack(given), axis=0, dtype=np.int32)
            about = f"job {self.job.number}, rank {self.number}: call {self.call}"
            assert (out == exact).all(), f"{about} is wrong"
            self.schedule.counts["results"] += 1
        self.call += 1
        if not self.done():
            self.worker.begin(self.job.given[self.call][self.number])

    def done(self) -> bool:
        """Whether all calls are done."""
        return self.call == len(self.job.given)


class Job:
    """A job's ranks, its server and its calls."""

    def __init__(self, schedule: Schedule, number: int) -> None:
        draw, ranks = schedule.random, len(schedule.plane.nics)
        generator = np.random.default_rng(draw.randrange(2**32))
        self.number = number
        self.given: list[list[NDArray[np.int32]]] = []  # by call and rank
        for _ in range(draw.randint(1, 4)):
            count = draw.choice((1, LANES, draw.randint(1, 40 * LANES)))
            self.given.append(list(generator.integers(-(2**31), 2**31, (ranks, count)).astype(np.int32)))
        self.server = Server(number, ranks, LANES)
        self.ranks = [Rank(schedule, self, rank) for rank in range(ranks)]
        late = draw.choice((0, MILLISECOND, 300 * MILLISECOND))
        for rank in self.ranks:
            schedule.network.at(int(draw.random() * late), rank.pump)


class Schedule:
    """One seed's network, jobs and faults."""

    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        link = Link(
            delay=20 * MICROSECOND,
            loss=draw.choice((0, 0, 0.01, 0.05, 0.2)),
            duplicate=draw.choice((0, 0.02, 0.2)),
            reorder=draw.choice((0, 0.02, 0.3)),
            late=draw.choice((100 * MICROSECOND, 20 * MILLISECOND)),
        )
        self.network = World(draw.getrandbits(32), link)
        hosts, ina = draw.randint(1, 4), draw.randint(0, 2)
        racks = named(f"racks:racks=2,hosts={hosts},ina={ina}", rails=["ina"], rates=[0])
        self.plane: Plane = racks.planes[0]
        self.counts: Counter[str] = Counter()
        self.jobs = [Job(self, number) for number in range(draw.randint(1, 3))]
        slots = 1 << draw.randint(0, 4)
        self.states = fabric.states(self.plane, range(len(self.jobs)), slots)
        program = replace(aggregation(LANES, ATP), prepare=None)
        self.switches = {name: InProcessSwitch().load(program) for name in self.states}
        self.receivers = fabric.receivers(self.plane)
        self.ports = self._far_ends()
        self.bridging = {
            name: {dict(entry.match)["destination"]: dict(entry.params)["port"] for entry in way.entries}
            for name, way in routes(self.plane).items()
        }

    def _far_ends(self) -> dict[tuple[str, int], tuple[str, int] | Nic]:
        ends: dict[tuple[str, int], tuple[str, int] | Nic] = {(n.switch, n.port): n for n in self.plane.nics}
        for t in self.plane.trunks:
            ends[t.lower, t.lower_port] = t.upper, t.upper_port
            ends[t.upper, t.upper_port] = t.lower, t.lower_port
        return ends

    # --- the network ---

    def to_switch(self, name: str, port: int, data: bytes) -> None:
        if name in self.switches:
            out = self.switches[name].exchange(port, data)
        else:
            out = [(self.bridging[name][int.from_bytes(data[:6], "big")], data)]
        for to, changed in out:
            self.network.send((name, to), changed, partial(self.arrive, self.ports[name, to]))

    def arrive(self, end: tuple[str, int] | Nic, data: bytes) -> None:
        if isinstance(end, tuple):
            self.to_switch(*end, data)
            return
        assert data[:6] == _end(end).mac.to_bytes(6), "a frame is addressed wrongly"
        assert data[30:34] == _end(end).ip.to_bytes(4)
        self.to_host(self.plane.nics.index(end), int.from_bytes(data[36:38], "big"), data[HEADERS:])

    def to_host(self, rank: int, port: int, datagram: bytes) -> None:
        for job in self.jobs:
            if port == worker_port(job.number):
                job.ranks[rank].arrive(datagram)
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
            self.network.at(self.network.now, partial(self.to_host, to, to_port, datagram))
            return
        own, peer = self.plane.nics[rank], self.plane.nics[to]
        data = frame(_end(own, port), _end(peer, to_port), datagram)
        self.network.send(("up", rank), data, partial(self.to_switch, own.switch, own.port))

    # --- running ---

    def run(self) -> None:
        for name, state in self.states.items():
            self.switches[name].install(state)
        try:
            self.network.run(lambda: all(rank.done() for job in self.jobs for rank in job.ranks), BOUND)
        finally:
            for switch in self.switches.values():
                self.counts.update(switch.action_packets("decide"))


def _end(nic: Nic, port: int = 0) -> Endpoint:
    return Endpoint(mac_number(nic.mac), ip_number(nic.address), port)


if __name__ == "__main__":
    sys.exit(main(Schedule, __doc__))
