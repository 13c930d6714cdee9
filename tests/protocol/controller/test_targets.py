# SPDX-License-Identifier: Apache-2.0
"""The controller on real P4Runtime servers: what it writes is accepted, read back equal, and kept."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from controller_world import World, at_address
from railweave.controller.server import ControllerOptions, serve
from railweave.p4src.artifacts import PROFILES
from railweave.topologies.planes import planes
from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc
from watcher import Watcher

HOSTS = 4


class Bmv2:
    """simple_switch_grpc without ports: only its control plane is wanted here."""

    def __init__(self) -> None:
        if shutil.which("simple_switch_grpc") is None:
            pytest.skip("simple_switch_grpc is not on PATH")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
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


TARGETS = {"bmv2": Bmv2}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Bmv2:
    return TARGETS[request.param]()


@asynccontextmanager
async def controlled(target: Bmv2, lanes: int) -> AsyncIterator[World]:
    topology = at_address(planes(HOSTS, ("ina", "tcp")), target.port)
    options = ControllerOptions("127.0.0.1:0", lanes)
    async with (
        serve(topology, options) as running,
        grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        yield World(target, topology, running, pb_grpc.ControllerStub(channel))


@asynccontextmanager
async def started(target: Bmv2) -> AsyncIterator[None]:
    await target.start()
    try:
        yield
    finally:
        await target.stop()


@pytest.mark.parametrize("lanes", PROFILES)
def test_what_is_written_is_read_back_and_taken_away(run, target: Bmv2, lanes: int) -> None:
    async def body() -> None:
        async with started(target), controlled(target, lanes) as world:
            (switch,) = world.running.fabric.switches()
            empty = await switch.link.read()
            assert empty == switch.wanted()
            answers = await world.join(HOSTS)
            assert not answers[0].refusals
            assert await switch.link.read() == switch.wanted()
            assert await switch.reconcile() == []
            await world.stub.SetLoss(pb.SetLossRequest(plane="ina", probability=0.5))
            assert await switch.reconcile() == []
            await world.stub.SetLoss(pb.SetLossRequest(plane="ina", probability=0))
            for answer in answers:
                await world.stub.LeaveGroup(pb.LeaveGroupRequest(lease=answer.lease))
            await world.running.fabric.settled()
            left = await switch.link.read()
            assert left.multicasts == empty.multicasts
            assert {entry.table for entry in left.entries - empty.entries} == {"members"}  # the note

    run(body())


def test_ten_controllers_leave_the_same_entries_and_replicas(run, target: Bmv2) -> None:
    async def body() -> None:
        async with started(target):
            async with controlled(target, 64) as world:
                answers = await world.join(HOSTS)
                (switch,) = world.running.fabric.switches()
                before = await switch.link.read()
            for _ in range(10):
                async with controlled(target, 64) as world:
                    for rank, answer in enumerate(answers):
                        rails = world.request(rank, HOSTS).rails
                        resume = pb.Resume(job="job", rank=rank, size=HOSTS, rails=rails, ina=answer.ina)
                        Watcher(world, answer, resume)
                    await world.watched("job", *range(HOSTS))
                    (switch,) = world.running.fabric.switches()
                    assert await switch.link.read() == before
                    assert world.running.fabric.groups.keys() == {answers[0].ina[0].group}

    run(body())


def test_a_switch_that_was_killed_is_as_before(run, target: Bmv2) -> None:
    async def body() -> None:
        async with started(target), controlled(target, 64) as world:
            answers = await world.join(HOSTS)
            (switch,) = world.running.fabric.switches()
            before = await switch.link.read()
            watcher = Watcher(world, answers[0])
            await world.watched("job", 0)
            await target.stop()
            await target.start()
            assert (await watcher.event()).WhichOneof("event") == "plane_down"
            assert (await watcher.event()).WhichOneof("event") == "plane_up"
            assert await switch.link.read() == before

    run(body())


def test_counters_have_the_programs_names(run, target: Bmv2) -> None:
    async def body() -> None:
        async with started(target), controlled(target, 64) as world:
            answer = await world.stub.GetSwitchCounters(pb.SwitchCountersRequest(plane="ina"))
            (counters,) = answer.switches
            assert (counters.plane, counters.name) == ("ina", "s-ina")
            names = {
                "result",
                "absorb",
                "duplicate",
                "reflect",
                "stale",
                "refused",
                "mismatch",
                "bad_version",
            }
            assert (
                names | {"members", "injected_drops_ingress", "injected_drops_egress"}
                <= counters.packets.keys()
            )
            assert set(counters.packets.values()) == {0}
            with pytest.raises(grpc.aio.AioRpcError, match="plane 'tcp' has no P4 switch; planes are"):
                await world.stub.GetSwitchCounters(pb.SwitchCountersRequest(plane="tcp"))

    run(body())
