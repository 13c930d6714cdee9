# SPDX-License-Identifier: Apache-2.0
"""JoinGroup and LeaveGroup: admissions, answers and refusals, and the contents of the switch."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from controller_world import World, new_world

from railweave.protocol import PROTOCOL
from railweave.v1 import controller_pb2 as pb

Status = grpc.StatusCode


async def refused(call: asyncio.Future[pb.JoinGroupResponse], status: grpc.StatusCode, text: str) -> None:
    """Check that the call fails with this status, and with this text in its message."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() == status, caught.value.details()
    assert text in caught.value.details()


async def test_a_group_gets_its_entries_and_leaves_none_behind(world: World) -> None:
    answers = await world.join(4)
    assert [answer.ina[0].child for answer in answers] == [0, 1, 2, 3]
    assert {len(answer.members) for answer in answers} == {4}
    assert [m.rails[0].address for m in answers[0].members] == [f"10.1.0.{i}" for i in (1, 2, 3, 4)]
    (ina,) = answers[1].ina
    assert (ina.rail, ina.slots, ina.lanes, ina.depth, ina.udp_port) == ("ina", 512, 64, 1, 5257)
    assert len({answer.lease for answer in answers}) == 4
    assert len(world.switch.serial_starts()) == 4
    assert world.switch.multicasts()[2] == {(1, 1), (2, 2), (3, 3), (4, 4)}
    await world.leave(answers)
    await world.settled(lambda: set(world.switch.multicasts()) == {1})
    assert world.switch.serial_starts() == []
    assert not world.switch.table("replicas")
    assert len(world.switch.table("virtual_addresses")) == 1


async def test_a_job_that_is_formed_again_at_once_has_another_number_and_secret() -> None:
    """The ranks of a formation share a secret that nobody else can know."""
    async with new_world(hosts=2, slots=8192) as world:  # one group fills the switch
        numbers, secrets = set(), set()
        for _ in range(2):  # each time the same job, ranks, addresses and ports
            answers = await world.join(2)
            assert not answers[0].refusals
            numbers.add(answers[0].ina[0].group)
            (secret,) = {answer.secret for answer in answers}
            secrets.add(secret)
            await world.leave(answers)
        assert len(numbers) == len(secrets) == 2
        assert {len(secret) for secret in secrets} == {32}


@pytest.mark.parametrize("protocol", [0, PROTOCOL + 1])
async def test_a_rank_of_another_build_is_refused_and_those_who_wait_for_it_learn_why(
    world: World, protocol: int
) -> None:
    waiting = asyncio.ensure_future(world.stub.JoinGroup(world.request(0, 2)))
    await world.waits("job", 0)
    expected = f"rank 1 has version {protocol} of the ranks' protocol: expected version {PROTOCOL}"
    for call in (world.stub.JoinGroup(world.request(1, 2, protocol=protocol)), waiting):
        await refused(call, Status.INVALID_ARGUMENT, expected)


async def test_a_rank_joins_once(world: World) -> None:
    first = world.stub.JoinGroup(world.request(0, 2))
    await world.waits("job", 0)
    again = world.stub.JoinGroup(world.request(0, 2))
    await refused(again, Status.ALREADY_EXISTS, "rank 0 of job 'job' has joined before")
    await world.stub.JoinGroup(world.request(1, 2))
    assert (await first).ina


async def test_ranks_that_disagree_are_all_told_what_each_said(world: World) -> None:
    waiting = [world.stub.JoinGroup(world.request(rank, 4)) for rank in (0, 1)]
    await world.waits("job", 0, 1)
    odd = world.stub.JoinGroup(world.request(3, 5, rails=[world.offer(4)]))
    for call in (*waiting, odd):
        await refused(call, Status.INVALID_ARGUMENT, " has 4, rank 3 has 5: expected the same on all ranks")
    assert len(await world.join(4)) == 4


async def test_a_rank_that_goes_away_while_waiting_can_come_again(world: World) -> None:
    first = world.stub.JoinGroup(world.request(0, 2))
    await world.waits("job", 0)
    first.cancel()
    await world.waits("job")
    assert len(await world.join(2)) == 2


async def test_a_rank_that_is_restarted_while_its_group_is_made_can_come_again(world: World) -> None:
    async with world.managed._lock:  # the controller cannot make the group while the lock is held
        first, second = (world.stub.JoinGroup(world.request(rank, 2)) for rank in (0, 1))
        await world.waits("job", 0, 1)
        second.cancel()
        await refused(first, Status.DEADLINE_EXCEEDED, "rank 1 went away while the group was forming")
        again = world.stub.JoinGroup(world.request(1, 2))
        await world.waits("job", 1)
    answers = [await world.stub.JoinGroup(world.request(0, 2)), await again]
    assert {len(answer.ina) for answer in answers} == {1}


async def test_hostile_requests_hurt_nobody(world: World) -> None:
    waiting = world.stub.JoinGroup(world.request(0, 2))
    await world.waits("job", 0)
    for bad, status, text in (
        (world.request(9, 2), Status.INVALID_ARGUMENT, "expected"),
        (world.request(1, 2, job="x" * 10**6), Status.RESOURCE_EXHAUSTED, "larger than max"),
    ):
        await refused(world.stub.JoinGroup(bad), status, text)
    for lease in (0, 7, 2**64 - 1):
        call = world.stub.LeaveGroup(pb.LeaveGroupRequest(lease=lease))
        await refused(call, Status.NOT_FOUND, f"no lease {lease}")
    await world.stub.JoinGroup(world.request(1, 2))
    assert (await waiting).ina


async def test_a_job_of_which_no_rail_fits_is_refused_by_the_limits_name() -> None:
    async with new_world(hosts=2, slots=8192) as world:
        assert not (await world.join(2, "first"))[0].refusals
        requests = [world.request(r, 2, "second", rails=[world.offer(r + 1)]) for r in (0, 1)]
        full = "no 8192 slots in a row are free on switch s-ina, where 1 groups hold 8192 of 8192"
        for call in [world.stub.JoinGroup(request) for request in requests]:
            await refused(call, Status.RESOURCE_EXHAUSTED, f"correct the causes: ina: {full}")


async def test_many_jobs_share_a_switch_without_a_common_number_or_address() -> None:
    async with new_world(hosts=4, slots=64) as world:
        answers = await asyncio.gather(*(world.join(4, f"job{i}") for i in range(20)))
        (places,) = zip(*(job[0].ina for job in answers), strict=True)
        assert len({place.group for place in places}) == 20
        assert len({place.virtual_address for place in places}) == 20
        assert len(world.switch.table("replicas")) == 80


async def test_a_switch_that_is_gone_or_full_costs_the_rail_only(world: World) -> None:
    world.switch.room = 0
    answers = await world.join(2, "a")
    assert "table full" in answers[0].refusals[0].reason
    world.switch.room = None
    assert (await world.join(2, "b"))[0].ina
    await world.switch.stop()
    await world.settled(lambda: not world.managed.link.up)
    answers = await world.join(2, "c")
    assert "s-ina at 127.0.0.1" in answers[0].refusals[0].reason
    assert not answers[0].ina
