# SPDX-License-Identifier: Apache-2.0
"""Planes of in-network algorithms: jobs, their entries and registers, on the embedded switch."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from controller_world import World, at_address, served
from free_ports import free_port
from test_targets import Embedded, started

from railweave.commands.why import _in_network
from railweave.controller.errors import Refused, SwitchUnavailable
from railweave.controller.server import PlaneLoss
from railweave.sdk import AlgorithmError
from railweave.sdk.check import frames
from railweave.sdk.plane import Program
from railweave.topologies.planes import planes
from railweave.v1 import controller_pb2 as pb

RANKS, LANES = 2, 256
RAILS = ("sum", "tcp")


class Ranks(World):
    """The ranks of jobs on the planes `sum` and `tcp`."""

    def request(self, rank: int, size: int, job: str = "job", **changes: Any) -> pb.JoinGroupRequest:
        rails = [self.offer(rank + 1, plane) for plane in RAILS]
        return super().request(rank, size, job, **{"rails": rails, **changes})

    def resume(self, rank: int, answer: pb.JoinGroupResponse, size: int = 2, paused: Any = ()) -> pb.Resume:
        rails = self.request(rank, size).rails
        return pb.Resume(job="job", rank=rank, size=size, rails=rails, algorithms=answer.algorithms)

    def send(self, target: Embedded, rank: int, number: int, value: int) -> list[tuple[int, int]]:
        """Send the packet of chunk 1 of a job. Return the ports and numbers of the frames that come out."""
        nics = self.topology.plane("sum").nics
        port = Program(self.topology.plane("sum"))._algorithm.manifest.rank_port(number)
        packet = struct.pack(f"!I{LANES}i", 1, *[value] * LANES)
        frame = frames.pack(nics[rank], port, nics[1 - rank], port, packet)
        out = target.pipeline.inject(nics[rank].port, frame)
        return [(to, struct.unpack_from("!i", frames.unpack(copy).datagram, 4)[0]) for to, copy in out]

    async def state(self) -> Any:
        (switch,) = self.running.fabric.algorithm_switches("sum")
        return await switch.link.read()

    def wanted(self, jobs: int) -> Any:
        return Program(self.topology.plane("sum")).wanted(jobs)["s-alg0"]


@pytest.fixture
def target() -> Iterator[Embedded]:
    with free_port() as port:
        yield Embedded(port)


@asynccontextmanager
async def controlled(target: Embedded, **options: Any) -> AsyncIterator[Ranks]:
    topology = at_address(planes(RANKS, RAILS), target.port)
    async with served(topology, **options) as (running, stub):
        yield Ranks(target, topology, running, stub)  # type: ignore[arg-type]


async def test_jobs_get_numbers_and_the_switch_is_cleared_when_none_runs(target: Embedded) -> None:
    async with started(target), controlled(target) as world:
        assert await world.state() == world.wanted(0)
        first, second = await world.join(RANKS, "first"), await world.join(RANKS, "second")
        job = pb.AlgorithmJob(rail="sum", algorithm="sum", number=0, lanes=LANES)
        assert [list(answer.algorithms) for answer in first] == [[job]] * RANKS
        assert second[0].algorithms[0].number == 1
        assert await world.state() == world.wanted(2)
        assert world.send(target, 0, 0, 3) == []
        assert sorted(world.send(target, 1, 0, 4)) == [(1, 7), (2, 7)]
        await world.leave(first)
        third = await world.join(RANKS, "third")
        assert third[0].algorithms[0].number == 2  # the registers of job 0 are not empty
        await world.leave([*second, *third])
        await world.running.fabric.settled()
        assert await world.state() == world.wanted(0)
        again = await world.join(RANKS, "again")
        assert again[0].algorithms[0].number == 0
        assert world.send(target, 0, 0, 3) == []  # the registers are empty
        assert sorted(world.send(target, 1, 0, 5)) == [(1, 8), (2, 8)]


async def test_a_job_goes_on_under_another_controller(target: Embedded) -> None:
    async with started(target):
        async with controlled(target) as world:
            await world.leave(await world.join(RANKS, "ended"))
            await world.running.fabric.settled()
            other, answers = await world.join(RANKS, "other"), await world.join(RANKS)
            assert (other[0].algorithms[0].number, answers[0].algorithms[0].number) == (0, 1)
            assert world.send(target, 0, 1, 3) == []
        async with controlled(target, lease_s=0.5) as world:
            assert await world.state() == world.wanted(2)
            calls = []
            for rank, answer in enumerate(answers):
                calls.append(world.stub.Watch())
                resume = world.resume(rank, answer)
                await calls[-1].write(pb.Heartbeat(lease=answer.lease, resume=resume))
            await world.watched("job", 0, 1)
            plane = world.running.fabric.algorithms["sum"]
            await world.settled(lambda: plane._running == {1})
            assert sorted(world.send(target, 1, 1, 4)) == [(1, 7), (2, 7)]
            newest = await world.join(RANKS, "newest")
            assert newest[0].algorithms[0].number == 2
            for call in calls:
                call.cancel()


async def test_a_job_that_ends_clears_nothing_that_may_be_claimed(target: Embedded) -> None:
    async with started(target):
        async with controlled(target) as world:
            await world.join(RANKS)
        async with controlled(target) as world:
            await world.leave(await world.join(RANKS, "short"))
            await world.running.fabric.settled()
            assert await world.state() == world.wanted(2)


async def test_a_step_that_fails_is_named_and_repeated(
    target: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise SwitchUnavailable("it is tested")

    async with started(target), controlled(target) as world:
        plane = world.running.fabric.algorithms["sum"]
        nics = dict(enumerate(world.topology.plane("sum").nics))
        with monkeypatch.context() as broken:
            broken.setattr(plane.switches[0].link, "write", fail)
            with pytest.raises(SwitchUnavailable, match="it is tested"):
                await plane.begin(nics)
        with monkeypatch.context() as broken:
            broken.setattr(plane.switches[0].link, "wipe", fail)
            assert await plane.begin(nics) == 1  # its registers are clean
            plane.end(1)
            await world.running.fabric.settled()
            assert await world.state() == world.wanted(2)
        assert await plane.begin(nics) == 0
        assert await world.state() == world.wanted(1)


async def test_entries_that_nobody_claims_are_cleared(target: Embedded) -> None:
    async with started(target):
        async with controlled(target) as world:
            await world.join(RANKS)
        async with controlled(target, lease_s=0.1) as world:
            await world.settled(lambda: world.running.fabric.algorithms["sum"]._used == 0)
            await world.running.fabric.settled()
            assert await world.state() == world.wanted(0)


async def test_a_job_whose_ranks_are_in_another_order_runs_without_the_rail(target: Embedded) -> None:
    async with started(target), controlled(target) as world:
        swapped = [[world.offer(host, plane) for plane in RAILS] for host in (2, 1)]
        calls = [
            world.stub.JoinGroup(world.request(rank, RANKS, rails=rails))
            for rank, rails in enumerate(swapped)
        ]
        for answer in [await call for call in calls]:
            assert not answer.algorithms
            assert "ranks on h2, h1: expected rank 0 on h1" in answer.refusals[0].reason


async def test_limits_faults_and_reports(target: Embedded) -> None:
    async with started(target), controlled(target, losses=[PlaneLoss("sum", 0.5)]) as world:
        answers = await world.join(RANKS)
        state = await world.state()
        assert state.entries > world.wanted(1).entries  # of the losses
        (job,) = (await world.stub.Explain(pb.ExplainRequest())).jobs
        assert job.rails[0].algorithm == answers[0].algorithms[0]
        assert _in_network(job.rails[0]) == [f"sum, job 0, {LANES} lanes"]
        counters = await world.stub.GetSwitchCounters(pb.SwitchCountersRequest(plane="sum"))
        assert dict(counters.switches[0].packets) == {"member": 0}
        plane = world.running.fabric.algorithms["sum"]
        nics = dict(enumerate(world.topology.plane("sum").nics))
        for number, words in ((0, "job 0 of the algorithm runs already"), (2**32 - 1, "job 16 of sum")):
            with pytest.raises(Refused, match=words):
                await plane.begin(nics, number)
        await target.stop()
        await world.settled(lambda: not plane.switches[0].link.up)
        with pytest.raises(SwitchUnavailable):
            await plane.begin(nics)


async def test_a_rail_of_an_algorithm_needs_its_plane(target: Embedded) -> None:
    async with started(target), controlled(target) as world:
        rails = [replace_kind(world.offer(1, "tcp")), world.offer(1, "sum")]
        with pytest.raises(grpc.aio.AioRpcError, match="kind algorithm on plane 'tcp' of kind tcp"):
            await world.stub.JoinGroup(world.request(0, RANKS, rails=rails))


def replace_kind(offer: pb.RailOffer) -> pb.RailOffer:
    changed = pb.RailOffer(kind="algorithm")
    offer.ClearField("kind")
    changed.MergeFrom(offer)
    return changed


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("atp", "a rail with atp, which has a parameter server"),
        ("mink", "a rail with mink, which has mink: expected the operation sum"),
        ("thc", "a rail with thc, which sums float32: expected int32"),
        ("none", "algorithm 'none'"),
    ],
)
def test_algorithms_that_no_rail_can_use_are_named(algorithm: str, words: str) -> None:
    (plane,) = planes(RANKS, ["sum"]).planes
    with pytest.raises(AlgorithmError, match=words):
        Program(replace(plane, algorithm=algorithm))
