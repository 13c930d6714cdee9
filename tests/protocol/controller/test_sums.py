# SPDX-License-Identifier: Apache-2.0
"""Jobs with a netreduce rail: the ring of their connections is in the switch exactly while they run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from controller_world import DEADLINE_S, World, controller_of, running_switches
from watcher import Watcher

from railweave.controller.quotas import Quota, Quotas
from railweave.controller.rings import RingSwitch
from railweave.topologies.model import Topology
from railweave.topologies.planes import planes
from railweave.v1 import controller_pb2 as pb

TOPOLOGY = planes(3, ("netreduce", "tcp"))
SLOTS = 64


def request(world: World, rank: int, job: str = "job", **changes: Any) -> pb.JoinGroupRequest:
    numbers = [1000 + 10 * rank, 1001 + 10 * rank, 1002 + 10 * rank]  # out, into, alias
    sums = world.offer(rank + 1, "netreduce", sum_queue_pairs=numbers, **changes)
    rails = [sums, world.offer(rank + 1, "tcp")]
    return pb.JoinGroupRequest(job=job, rank=rank, size=3, rails=rails, deadline_s=DEADLINE_S)


def resume(world: World, rank: int) -> pb.Resume:
    return pb.Resume(job="job", rank=rank, size=3, rails=request(world, rank).rails)


def of(world: World) -> RingSwitch:
    return world.running.fabric.ring_switches["netreduce"]


async def join(world: World, job: str = "job") -> list[pb.JoinGroupResponse]:
    calls = (world.stub.JoinGroup(request(world, rank, job)) for rank in range(3))
    return list(await asyncio.gather(*calls))


async def test_the_ring_is_in_the_switch_while_the_job_runs() -> None:
    async with (
        running_switches(TOPOLOGY) as switches,
        controller_of(TOPOLOGY, switches, slots=SLOTS) as world,
    ):
        empty = world.switch.snapshot()
        answers = await join(world)
        for answer in answers:
            (sums,) = answer.sums
            assert (sums.rail, sums.window_packets, sums.reason) == ("netreduce", SLOTS, "")
        nics = world.topology.plane("netreduce").nics
        (ring,) = of(world).rings
        found = [(c.sender_port, c.sent_qp, c.first_psn, c.receiver_port, c.qp) for c in ring.connections]
        # From each rank's port, to the number that the next rank lends, counted from the own number.
        assert found == [
            (nics[n].port, 1002 + 10 * to, 1000 + 10 * n, nics[to].port, 1001 + 10 * to)
            for n, to in ((0, 1), (1, 2), (2, 0))
        ]
        assert len(world.switch.table("deliveries")) == 3
        assert await of(world).reconcile() == []
        report = (await world.stub.Explain(pb.ExplainRequest())).jobs[0]
        assert report.rails[0].sums.window_packets == SLOTS

        for answer in answers:
            await world.stub.LeaveGroup(pb.LeaveGroupRequest(lease=answer.lease))
        await world.settled(lambda: not world.switch.table("deliveries"))
        assert empty <= world.switch.snapshot()  # beside notes


async def test_a_switch_that_starts_anew_gets_the_ring_again() -> None:
    async with (
        running_switches(TOPOLOGY) as switches,
        controller_of(TOPOLOGY, switches, slots=SLOTS) as world,
    ):
        await join(world)
        (before,) = of(world).rings
        await world.switch.restart(lose_state=True)
        await world.settled(
            lambda: world.switch.config is not None and len(world.switch.table("deliveries")) == 3
        )
        (again,) = of(world).rings
        assert again.connections == before.connections


async def test_a_restarted_controller_puts_the_ring_in_again() -> None:
    async with running_switches(TOPOLOGY) as switches:
        async with controller_of(TOPOLOGY, switches, slots=SLOTS) as world:
            answers = await join(world)
            (before,) = of(world).rings
        async with controller_of(TOPOLOGY, switches, slots=SLOTS) as world:
            streams = [Watcher(world, answer, resume(world, rank)) for rank, answer in enumerate(answers)]
            await world.settled(lambda: bool(of(world).rings))
            (again,) = of(world).rings
            assert again.connections == before.connections
            assert again.slots.start != before.slots.start or again.slots.base != before.slots.base
            del streams


@pytest.mark.parametrize(
    ("topology", "options", "reason"),
    [
        (TOPOLOGY, {"quotas": Quotas(Quota(0))}, "0 slots"),
        (TOPOLOGY, {"slots": 16384}, "16384 slots: expected a power of two up to 8192"),
    ],
)
async def test_ranks_are_told_why_nobody_adds(topology: Topology, options: Any, reason: str) -> None:
    async with running_switches(topology) as switches, controller_of(topology, switches, **options) as world:
        for answer in await join(world):
            (sums,) = answer.sums
            assert sums.window_packets == 0
            assert reason in sums.reason
            assert not answer.refusals
        assert not world.switch.table("deliveries")
