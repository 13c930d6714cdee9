# SPDX-License-Identifier: Apache-2.0
"""A controller, its switch and a client on loopback, in the test's own event loop."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import grpc
from fake_switch import FakeSwitch

from railweave.controller.managed import ManagedSwitch
from railweave.controller.quotas import Quota, Quotas
from railweave.controller.server import ControllerOptions, RunningController, serve
from railweave.protocol import PROTOCOL
from railweave.topologies.model import Switch, Topology
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

    @property
    def managed(self) -> ManagedSwitch:
        """Return the controller's view of the only P4 switch."""
        (switch,) = self.running.fabric.switches()
        return switch

    def offer(self, host: int, plane: str = "ina", **changes: Any) -> pb.RailOffer:
        """Return the offer of the agent on host h1, h2, … for its rail on a plane."""
        there = self.topology.plane(plane)
        nic = there.nics[host - 1]
        values = {"name": plane, "kind": there.kind, "plane": plane, "address": nic.address, "mac": nic.mac}
        return pb.RailOffer(**{**values, "port": 40000 + host, **changes})

    def request(self, rank: int, size: int, job: str = "job", **changes: Any) -> pb.JoinGroupRequest:
        """Return a JoinGroupRequest of rank r on host r + 1 with an ina and a tcp rail."""
        values = {"job": job, "rank": rank, "size": size, "deadline_s": DEADLINE_S, "protocol": PROTOCOL}
        if "rails" not in changes:
            host = min(rank + 1, len(self.topology.hosts))
            values["rails"] = [self.offer(host), self.offer(host, "tcp")]
        return pb.JoinGroupRequest(**{**values, **changes})

    def resume(
        self, rank: int, answer: pb.JoinGroupResponse, size: int = 2, paused: Sequence[int] = ()
    ) -> pb.Resume:
        """Return the message of a rank, which a controller has answered, to the next controller."""
        rails = self.request(rank, size).rails
        places = {"ina": answer.ina, "rings": answer.rings}
        return pb.Resume(job="job", rank=rank, size=size, rails=rails, paused=paused, **places)

    async def join(self, size: int, job: str = "job") -> list[pb.JoinGroupResponse]:
        """Let all ranks of a job join."""
        calls = (self.stub.JoinGroup(self.request(rank, size, job)) for rank in range(size))
        return list(await asyncio.gather(*calls))

    async def leave(self, answers: Iterable[pb.JoinGroupResponse]) -> None:
        """Let these ranks leave their job, one after another."""
        for answer in answers:
            await self.stub.LeaveGroup(pb.LeaveGroupRequest(lease=answer.lease))

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

    def moved(switch: Switch) -> Switch:
        if not switch.p4runtime:
            return switch
        return dataclasses.replace(switch, p4runtime=f"127.0.0.1:{ports[switch.name]}", device_id=1)

    planes = (
        dataclasses.replace(plane, switches=tuple(map(moved, plane.switches))) for plane in topology.planes
    )
    return dataclasses.replace(topology, planes=tuple(planes))


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
    """Run a controller that has configured the switches."""
    moved = at_addresses(topology, {name: switch.port for name, switch in switches.items()})
    async with served(moved, **options) as (running, stub):
        yield World(next(iter(switches.values()), FakeSwitch()), moved, running, stub, switches)


def controller_for(switch: FakeSwitch, **options: Any) -> AbstractAsyncContextManager[World]:
    """Run a controller of two hosts that has configured the switch."""
    return controller_of(planes(2, ("ina", "tcp")), {"s-ina": switch}, **options)


@asynccontextmanager
async def new_world(
    hosts: int = 4, *, topology: Topology | None = None, **options: Any
) -> AsyncIterator[World]:
    """Run new switches under a new controller: one switch of some hosts, or those of a topology."""
    chosen = topology or planes(hosts, ("ina", "tcp"))
    async with running_switches(chosen) as switches, controller_of(chosen, switches, **options) as world:
        yield world


@asynccontextmanager
async def running_switch(**options: Any) -> AsyncIterator[FakeSwitch]:
    """Run a fake switch without a controller."""
    switch = FakeSwitch(**options)
    await switch.start()
    try:
        yield switch
    finally:
        await switch.stop()
