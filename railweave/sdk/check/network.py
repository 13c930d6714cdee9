# SPDX-License-Identifier: Apache-2.0
"""A plane in virtual time: endpoints, servers, links with faults, and switches with the compiled program."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import finsy as fy

from railweave.controller import wire
from railweave.controller.routes import routes, trunk_ends
from railweave.controller.state import SwitchState, difference
from railweave.controller.tables import ip_number, mac_number
from railweave.p4src.artifacts import Artifact
from railweave.sdk.check import frames
from railweave.sdk.library import Algorithm
from railweave.sdk.machines import Endpoint, Job
from railweave.sdk.sockets import AT_ONCE
from railweave.sdk.states import require_fit
from railweave.sdk.virtual_time import SECOND, Link, World
from railweave.switch.lowering import lower
from railweave.switch.p4runtime.device import Device
from railweave.switch.pipeline import Pipeline
from railweave.topologies.model import Nic, Plane

_lowered = functools.cache(lower)


class Switch:
    """A switch in this process. Its clock advances by 1 µs per packet."""

    def __init__(self, artifact: Artifact) -> None:
        """Load the program, with empty tables and registers."""
        self._schema = fy.P4Schema(artifact.p4info_path, artifact.json_path)
        self._now_us = 0
        self.reload()

    def reload(self) -> None:
        """Load the program again, as a switch does that has lost its power."""
        config = self._schema.get_pipeline_config()
        self._device = Device.of(config, Pipeline(*_lowered(config.p4_device_config)))
        self._state = SwitchState()

    def reconcile(self, state: SwitchState) -> None:
        """Write the difference between the switch's state and the wanted one."""
        for update in difference(self._state, state):
            self._device.write(wire.encode(update).encode_update(self._schema))
        self._state = state

    def exchange(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Send a frame into a port. Return the frames that leave, with their ports."""
        self._now_us += 1
        return self._device.pipeline.inject(port, frame, self._now_us)

    def packets(self, table: str) -> Counter[str]:
        """Return the packets by action of a table whose entries count."""
        found: Counter[str] = Counter()
        actions = {self._identity(entry): entry.action.name for entry in self._read(fy.P4TableEntry(table))}
        for counted in self._read(fy.P4DirectCounterEntry(table_entry=fy.P4TableEntry(table))):
            found[actions[self._identity(counted.table_entry)]] += counted.packet_count
        return found

    def _identity(self, entry: fy.P4TableEntry) -> tuple[object, ...]:
        return tuple(entry.match_dict(self._schema).items()), entry.priority

    def _read(self, pattern: fy.P4TableEntry | fy.P4DirectCounterEntry) -> list[Any]:
        found = self._device.read(pattern.encode(self._schema))
        return [fy.p4entity.decode_entity(entity, self._schema) for entity in found]


class Network(World):
    """A plane with its hosts' sockets. All links have the same loss, repetitions and delays."""

    def __init__(self, algorithm: Algorithm, plane: Plane, lanes: int, link: Link, seed: int) -> None:
        """Start the switches, without any entries."""
        super().__init__(seed, link)
        self.plane = plane
        self.algorithm = algorithm
        self.switches = {
            switch.name: Switch(algorithm.artifact(lanes)) for switch in plane.switches if switch.p4runtime
        }
        self.sent = 0  # frames of hosts
        self.sent_bytes = 0  # of numbers in these
        self._states: Mapping[str, SwitchState] = {}
        self._bridging = {
            name: {dict(entry.match)["destination"]: dict(entry.params)["port"] for entry in way.entries}
            for name, way in routes(plane).items()
        }
        self._ends: dict[tuple[str, int], tuple[str, int] | Nic] = dict(trunk_ends(plane))
        self._ends |= {(nic.switch, nic.port): nic for nic in plane.nics}
        self._sockets: dict[tuple[Nic, int], Callable[[bytes], None]] = {}
        self._processes: list[Process] = []

    def install(self, jobs: Sequence[Job]) -> None:
        """Write the entries of these jobs into the switches."""
        self._states = self.algorithm.wanted(self.plane, jobs)
        require_fit(self._states, self.algorithm.artifact(jobs[0].lanes), self.algorithm.manifest.counters)
        for name, switch in self.switches.items():
            switch.reconcile(self._states[name])

    def restart(self, name: str) -> None:
        """Restart a switch. Its registers are empty, and its entries are written again."""
        self.switches[name].reload()
        self.switches[name].reconcile(self._states[name])

    def listen(self, nic: Nic, port: int, receive: Callable[[bytes], None]) -> None:
        """Give datagrams to a port of a host to `receive`. Other datagrams are dropped."""
        self._sockets[nic, port] = receive

    def add(self, process: Process) -> None:
        """Add an endpoint to those that `describe` names."""
        self._processes.append(process)

    def describe(self) -> str:
        """Name the ranks whose calls are not complete, and their deadlines in seconds."""
        waiting = [each for each in self._processes if not each.endpoint.done]
        return "; ".join(map(str, waiting)) or "no call has begun"

    def send_datagram(self, source: Nic, source_port: int, to: Nic, port: int, datagram: bytes) -> None:
        """Send a datagram. One to the same host does not leave it."""
        frame = frames.pack(source, source_port, to, port, bytes(datagram))
        if source == to:
            self.at(self.now, partial(self._to_host, to, frames.unpack(frame)))
            return
        self.sent += 1
        self.sent_bytes += len(datagram) - self.algorithm.manifest.header_bytes
        self.send(("up", source.host), frame, partial(self._to_switch, source.switch, source.port))

    def _to_switch(self, name: str, port: int, frame: bytes) -> None:
        if name in self.switches:
            out = self.switches[name].exchange(port, frame)
        else:
            out = [(self._bridging[name][frames.unpack(frame).mac], frame)]
        for to, changed in out:
            self.send((name, to), changed, partial(self._arrived, self._ends.get((name, to))))

    def _arrived(self, end: tuple[str, int] | Nic | None, frame: bytes) -> None:
        if isinstance(end, Nic):
            if frames.is_valid(frame):
                self._to_host(end, frames.unpack(frame))
        elif end is not None:
            self._to_switch(*end, frame)

    def _to_host(self, nic: Nic, frame: frames.Frame) -> None:
        receive = self._sockets.get((nic, frame.port))
        if receive and (frame.mac, frame.address) == (mac_number(nic.mac), ip_number(nic.address)):
            receive(frame.datagram)


class Process:
    """An endpoint in its loop: it receives, sends, and waits for its deadline."""

    def __init__(self, network: Network, job: Job, rank: int) -> None:
        """Open the rank's socket. Nothing is sent before `turn`."""
        self.endpoint: Endpoint = network.algorithm.endpoint(job, rank)
        self.dead = False
        self._network = network
        self._nic = network.plane.nics[rank]
        ports = network.algorithm.manifest
        self._port = ports.rank_port(job.number)
        self._to = network.plane.nics[(rank + 1) % job.ranks], self._port
        if network.algorithm.server:
            self._to = network.plane.nics[0], ports.server_port(job.number)
        network.listen(self._nic, self._port, self._receive)
        self._timer: list[object] | None = None
        network.add(self)

    def __str__(self) -> str:
        """Return the rank, and when it sends again."""
        endpoint = self.endpoint
        state = "is dead" if self.dead else f"waits, its deadline is {endpoint.deadline():g} s"
        return f"rank {endpoint.rank} of job {endpoint.job.number} {state}"

    def _receive(self, datagram: bytes) -> None:
        if not self.dead:
            self.endpoint.receive([memoryview(datagram)], self._network.now / SECOND)
            self.turn()

    def turn(self) -> None:
        """Send what is due, and plan the next turn."""
        if self.dead:
            return
        endpoint, network = self.endpoint, self._network
        while len(datagrams := endpoint.transmit(network.now / SECOND, AT_ONCE)):
            for datagram in datagrams:
                network.send_datagram(self._nic, self._port, *self._to, bytes(datagram))
        if self._timer is not None:
            network.cancel(self._timer)
        due = endpoint.deadline()
        self._timer = None if math.isinf(due) else network.at(math.ceil(due * SECOND) + 1, self.turn)


def serve(network: Network, job: Job) -> None:
    """Start the parameter server of a job on the host of rank 0, if the algorithm has one."""
    if network.algorithm.server is None:
        return
    server, ports = network.algorithm.server(job), network.algorithm.manifest
    by_address = {nic.address: nic for nic in network.plane.nics}
    to = [by_address[address] for address in network.algorithm.receivers(network.plane)]
    home, port = network.plane.nics[0], ports.server_port(job.number)

    def receive(datagram: bytes) -> None:
        if answer := server.receive(datagram):
            for nic in dict.fromkeys(nic for rank, nic in enumerate(to) if answer[1] >> rank & 1):
                network.send_datagram(home, port, nic, ports.rank_port(job.number), answer[0])

    network.listen(home, port, receive)
