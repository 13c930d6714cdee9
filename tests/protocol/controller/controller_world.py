# SPDX-License-Identifier: Apache-2.0
"""A controller, its switch and a client on loopback, in the test's own event loop."""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from fake_switch import FakeSwitch

from railweave.controller.quotas import Quota, Quotas
from railweave.controller.server import ControllerOptions, RunningController, serve
from railweave.protocol import PROTOCOL
from railweave.topologies.model import Topology
from railweave.topologies.planes import planes
from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc

DEADLINE_S = 20.0


@dataclasses.dataclass
class World:
    """The parts of a test: the fake switch, the topology that points to it, and a client's stub."""

    switch: FakeSwitch
    topology: Topology
    running: RunningController
    stub: pb_grpc.ControllerStub
    switches: dict[str, FakeSwitch] = dataclasses.field(default_factory=dict)  # if there are several

    def offer(self, host: int, plane: str = "ina", **changes: Any) -> pb.RailOffer:
        """Return the offer of the agent on host h1, h2, … for its rail on a plane."""
        there = self.topology.plane(plane)
        nic = there.nics[host - 1]
        values = {"name": plane, "kind": there.kind, "plane": plane, "address": nic.address, "mac": nic.mac}
        return pb.RailOffer(**{**values, "port": 40000 + host, **changes})

    def request(self, rank: int, size: int, job: str = "job", **changes: Any) -> pb.JoinGroupRequest:
        """Return a JoinGroupRequest of rank r on host r + 1 with an ina and a tcp rail."""
        host = min(rank + 1, len(self.topology.hosts))
        rails = [self.offer(host), self.offer(host, "tcp")]
        values = {"job": job, "rank": rank, "size": size, "rails": rails, "deadline_s": DEADLINE_S}
        values["protocol"] = PROTOCOL
        return pb.JoinGroupRequest(**{**values, **changes})

    async def join(self, size: int, job: str = "job") -> list[pb.JoinGroupResponse]:
        """Let all ranks of a job join."""
        calls = (self.stub.JoinGroup(self.request(rank, size, job)) for rank in range(size))
        return list(await asyncio.gather(*calls))

    async def waits(self, job: str, *ranks: int) -> None:
        """Wait until exactly these ranks wait for the others of their job."""
        await self.settled(lambda: self.running.groups.waiting(job) == set(ranks))

    async def watched(self, job: str, *ranks: int) -> None:
        """Wait until exactly these ranks have a stream."""
        await self.settled(lambda: self.running.groups.watching(job) == set(ranks))

    async def settled(self, condition: Callable[[], bool]) -> None:
        """Wait, within a deadline, until a condition of the switch or controller is true."""
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.005)


def at_address(topology: Topology, port: int) -> Topology:
    """Return the topology with all its P4 switches at one port of loopback."""
    return at_addresses(topology, {s.name: port for plane in topology.planes for s in plane.switches})


def at_addresses(topology: Topology, ports: dict[str, int]) -> Topology:
    """Return the topology with each P4 switch at its own port of loopback."""
    moved = tuple(
        dataclasses.replace(
            plane,
            switches=tuple(
                dataclasses.replace(s, p4runtime=f"127.0.0.1:{ports[s.name]}", device_id=1)
                if s.p4runtime
                else s
                for s in plane.switches
            ),
        )
        for plane in topology.planes
    )
    return dataclasses.replace(topology, planes=moved)


@asynccontextmanager
async def controller_for(switch: FakeSwitch, hosts: int = 4, **options: Any) -> AsyncIterator[World]:
    """Run a controller that has configured the switch, with a client's channel to the controller."""
    topology = at_address(planes(hosts, ("ina", "tcp")), switch.port)
    async with served(topology, **options) as (running, stub):
        yield World(switch, topology, running, stub)


@asynccontextmanager
async def served(
    topology: Topology, **options: Any
) -> AsyncIterator[tuple[RunningController, pb_grpc.ControllerStub]]:
    """Run a controller of a topology whose switches run, with the stub of a client without TLS."""
    quotas = options.pop("quotas", Quotas(Quota(options.pop("slots", 512))))
    chosen = ControllerOptions(**{"listen": "127.0.0.1:0", "lanes": 64, "quotas": quotas, **options})
    async with (
        serve(topology, chosen) as running,
        grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        yield running, pb_grpc.ControllerStub(channel)


@asynccontextmanager
async def running_switches(topology: Topology) -> AsyncIterator[dict[str, FakeSwitch]]:
    """Run a fake for every P4 switch of a topology, by name."""
    switches = {s.name: FakeSwitch() for plane in topology.planes for s in plane.switches if s.p4runtime}
    try:
        for switch in switches.values():
            await switch.start()
        yield switches
    finally:
        for switch in switches.values():
            await switch.stop()


@asynccontextmanager
async def controller_of(
    topology: Topology, switches: dict[str, FakeSwitch], **options: Any
) -> AsyncIterator[World]:
    """Run a controller that has configured several switches."""
    moved = at_addresses(topology, {name: switch.port for name, switch in switches.items()})
    async with served(moved, **options) as (running, stub):
        yield World(next(iter(switches.values()), FakeSwitch()), moved, running, stub, switches)


@asynccontextmanager
async def new_world(hosts: int = 4, **options: Any) -> AsyncIterator[World]:
    """Run a new switch under a new controller."""
    switch = FakeSwitch()
    await switch.start()
    try:
        async with controller_for(switch, hosts, **options) as world:
            yield world
    finally:
        await switch.stop()


def checksum(header: bytes) -> int:
    """Return the checksum of an IPv4 header whose checksum field is 0."""
    total = sum(struct.unpack("!10H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
