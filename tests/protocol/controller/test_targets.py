# SPDX-License-Identifier: Apache-2.0
"""The controller on real P4Runtime servers. They accept and keep its writes, and return them unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc
import pytest
from controller_world import World, at_address, served
from dataplane.packets import Chunk, Station, children, frame
from finsy.proto import p4r_grpc
from free_ports import free_port
from vectors import bmv2
from watcher import Watcher

from railweave.controller.server import PlaneLoss
from railweave.controller.tables import ip_number, virtual_mac
from railweave.p4src.artifacts import JUMBO_LANES, JUMBO_MTU
from railweave.switch.p4runtime.service import Service
from railweave.switch.pipeline import Pipeline
from railweave.topologies.planes import planes
from railweave.v1 import controller_pb2 as pb

HOSTS = 4


class Bmv2:
    """simple_switch_grpc without ports. The tests only use its control plane."""

    def __init__(self, port: int) -> None:
        if shutil.which("simple_switch_grpc") is None:
            pytest.skip("simple_switch_grpc is not on PATH")
        self.port = port
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = ["simple_switch_grpc", "--no-p4", "--device-id", "1", "--"]
        command += ["--grpc-server-addr", f"127.0.0.1:{self.port}"]
        self._process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    async def stop(self) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


class Embedded:
    """The P4Runtime server of this project with its engine, without ports."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.pipelines: list[Pipeline] = []
        self._server: grpc.aio.Server | None = None

    @property
    def pipeline(self) -> Pipeline:
        return self.pipelines[-1]

    async def start(self) -> None:
        self._server = grpc.aio.server(
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)]
        )
        p4r_grpc.add_P4RuntimeServicer_to_server(Service(1, self.pipelines.append), self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server:
            await self._server.stop(None)


Target = Embedded | Bmv2
TARGETS: dict[str, type[Target]] = {"embedded": Embedded, "bmv2": Bmv2}


@pytest.fixture(params=["embedded", pytest.param("bmv2", marks=bmv2.ALONE)])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with free_port() as port:
        yield TARGETS[request.param](port)


@asynccontextmanager
async def controlled(target: Target, lanes: int = 64) -> AsyncIterator[World]:
    topology = at_address(planes(HOSTS, ("ina", "tcp")).with_mtu(JUMBO_MTU), target.port)
    async with served(topology, lanes=lanes, losses=[PlaneLoss("ina", 0)]) as (running, stub):
        yield World(target, topology, running, stub)


@asynccontextmanager
async def started(target: Target) -> AsyncIterator[None]:
    await target.start()
    try:
        yield
    finally:
        await target.stop()


@pytest.mark.parametrize("lanes", [JUMBO_LANES, 32])
async def test_what_is_written_is_read_back_and_taken_away(target: Target, lanes: int) -> None:
    if isinstance(target, Bmv2) and lanes == JUMBO_LANES:
        pytest.skip("BMv2 takes longer to load it than the controller waits; its labs have 64 lanes")
    async with started(target), controlled(target, lanes) as world:
        switch = world.managed
        empty = await switch.link.read()
        assert empty == switch.wanted()
        answers = await world.join(HOSTS)
        assert not answers[0].refusals
        assert await switch.link.read() == switch.wanted()
        assert await switch.reconcile() == []
        await world.stub.SetLoss(pb.SetLossRequest(plane="ina", probability=0.5))
        assert await switch.reconcile() == []
        await world.stub.SetLoss(pb.SetLossRequest(plane="ina", probability=0))
        await world.leave(answers)
        await world.running.fabric.settled()
        left = await switch.link.read()
        assert left.multicasts == empty.multicasts
        assert {entry.table for entry in left.entries - empty.entries} == {"members"}  # the note


async def test_a_restarted_controller_keeps_the_group_and_a_restarted_switch_moves_it(target: Target) -> None:
    async with started(target):
        async with controlled(target) as world:
            answers = await world.join(HOSTS)
            before = await world.managed.link.read()
        async with controlled(target) as world:
            watchers = [Watcher(world, a, world.resume(rank, a, HOSTS)) for rank, a in enumerate(answers)]
            await world.watched("job", *range(HOSTS))
            assert await world.managed.link.read() == before
            assert world.running.fabric.groups.keys() == {1}
            await target.stop()
            await target.start()
            for watcher in watchers:
                await watcher.paused(0)
            for watcher in watchers:
                assert (await watcher.moved()).place.group == 2
            await world.running.fabric.settled()
            after = await world.managed.link.read()
            assert after == world.managed.wanted()
            assert len(after.entries) == len(before.entries)
            assert {multicast.group for multicast in after.multicasts} == {1, 3}


async def test_counters_have_the_programs_names(target: Target) -> None:
    async with started(target), controlled(target) as world:
        answer = await world.stub.GetSwitchCounters(pb.SwitchCountersRequest(plane="ina"))
        (counters,) = answer.switches
        assert (counters.plane, counters.name) == ("ina", "s-ina")
        outcomes = {"result", "absorb", "duplicate", "reflect", "stale", "refused", "mismatch", "bad_version"}
        tables = {"members", "injected_drops_ingress", "injected_drops_egress"}
        assert outcomes | tables <= counters.packets.keys()
        assert set(counters.packets.values()) == {0}
        with pytest.raises(grpc.aio.AioRpcError, match="plane 'tcp' has no P4 switch: expected one of"):
            await world.stub.GetSwitchCounters(pb.SwitchCountersRequest(plane="tcp"))


@pytest.mark.parametrize("target", ["embedded"], indirect=True)
async def test_the_switch_answers_for_the_group_and_counts_what_it_does(target: Embedded) -> None:
    """JoinGroup writes entries to the engine over P4Runtime. The controller reads the engine's counters."""
    async with started(target), controlled(target) as world:
        (ina,) = (await world.join(HOSTS))[0].ina
        mac = bytes.fromhex("020000010001")
        who_has = bytes(6) + ip_number(ina.virtual_address).to_bytes(4, "big")
        request = b"\xff" * 6 + mac + bytes.fromhex("0806 0001 0800 06 04 0001") + mac + bytes([10, 1, 0, 1])
        ((port, reply),) = target.pipeline.inject(1, (request + who_has).ljust(60, b"\0"))
        assert (port, reply[:6]) == (1, mac)
        owner = reply[22:28]
        assert int.from_bytes(owner, "big") == virtual_mac(ip_number(ina.virtual_address))
        for host in range(1, HOSTS + 1):
            packet = contribution(host, ina, lanes=[host] * 64)
            copies = target.pipeline.inject(host, packet)
        assert sorted(port for port, _ in copies) == [1, 2, 3, 4]
        assert {copy[58:] for _, copy in copies} == {struct.pack("!64i", *[1 + 2 + 3 + 4] * 64)}
        answer = await world.stub.GetSwitchCounters(pb.SwitchCountersRequest())
        packets = answer.switches[0].packets
        assert (packets["absorb"], packets["result"], packets["members"]) == (3, 1, 4)


def contribution(host: int, ina: pb.InaGroup, lanes: list[int]) -> bytes:
    """Return the first packet of host h1, h2, …"""
    address = ip_number(ina.virtual_address)
    chunk = Chunk(group=ina.group, child=host - 1, lanes=tuple(lanes))
    return frame(children(host)[-1], Station(address, virtual_mac(address)), chunk.pack())
