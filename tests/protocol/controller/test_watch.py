# SPDX-License-Identifier: Apache-2.0
"""Watch: leases, the ends of groups, and their events."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from controller_world import World, new_world
from watcher import Watcher, refused, watched

from railweave.v1 import controller_pb2 as pb


async def test_a_broken_stream_is_a_lost_rank_and_every_peer_hears_at_once(world: World) -> None:
    watchers = await watched(world, 4)
    watchers[2].call.cancel()
    for rank in (0, 1, 3):
        assert await watchers[rank].lost() == (2, "its connection to the controller broke")
        await watchers[rank].ended()
    await world.settled(lambda: set(world.switch.multicasts()) == {1})
    assert len(await world.join(4)) == 4


async def test_a_lease_that_is_not_renewed_is_a_lost_rank() -> None:
    async with new_world(hosts=2, lease_s=0.3) as world:
        alive, silent = await watched(world, 2)

        async def beat() -> None:
            while True:
                alive.beat()
                await asyncio.sleep(0.05)

        beating = asyncio.create_task(beat())
        assert await alive.lost() == (1, "no heartbeat for 0.3 s")
        beating.cancel()
        await silent.ended()


async def test_no_lease_ends_by_time_in_which_the_controller_stood_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with new_world(hosts=2, lease_s=3) as world:
        staying, leaving = await watched(world, 2)
        loop = asyncio.get_running_loop()
        clock = loop.time
        monkeypatch.setattr(loop, "time", lambda: clock() + 8)
        await world.leave([leaving.answer])
        assert (await staying.event()).member_left.rank == 1


async def test_a_rank_that_never_watches_is_lost_too() -> None:
    async with new_world(hosts=2, lease_s=0.3) as world:
        answers = await world.join(2)
        watcher = Watcher(world, answers[0])
        assert (await watcher.lost())[0] == 1


async def test_a_rank_that_leaves_is_not_lost(world: World) -> None:
    staying, leaving = await watched(world, 2)
    await world.leave([leaving.answer])
    await leaving.ended()
    assert (await staying.event()).member_left.rank == 1
    assert len(world.switch.multicasts()) == 2  # the group lives until its last rank leaves
    await world.leave([staying.answer])
    await staying.ended()
    await world.settled(lambda: set(world.switch.multicasts()) == {1})


async def test_an_unknown_lease_is_refused(world: World) -> None:
    for lease in (0, 12345, 2**64 - 1):
        stranger = Watcher(world, pb.JoinGroupResponse(lease=lease))
        assert f"no lease {lease}" in await refused(stranger, grpc.StatusCode.NOT_FOUND)


async def test_a_second_stream_takes_the_first_ones_place(world: World) -> None:
    watchers = await watched(world, 2)
    lease = world.running.groups._leases[watchers[0].lease]
    before = lease.stream
    second = Watcher(world, pb.JoinGroupResponse(lease=lease.number))
    await world.settled(lambda: lease.stream is not before)
    watchers[0].call.cancel()
    watchers[1].call.cancel()
    assert (await second.lost())[0] == 1


async def test_what_went_down_with_a_stream_comes_again_with_the_next(world: World) -> None:
    """A rank may not have received an event that its lost stream has delivered."""
    one, two = await watched(world, 2)
    await world.switch.restart(lose_state=True)
    asked = [await two.paused(9), (await one.event()).group_paused]
    assert asked[0].group == asked[1].group
    again = Watcher(world, one.answer)
    assert (await again.event()).group_paused == asked[1]
    await again.reports(asked[1].group, 7)
    while not (event := await again.event()).HasField("group_moved"):
        assert event.group_paused == asked[1]  # sent again, because the rank's answer may be lost, too
    assert event.group_moved.resume_from == 7
    assert (await two.moved()).resume_from == 7
    last = Watcher(world, one.answer, acknowledged=event.sequence - 1)
    assert await last.event() == event
    one.call.cancel()
    two.call.cancel()
    assert (await last.lost())[0] == 1


async def test_an_answer_that_went_down_with_a_stream_is_asked_for_again(world: World) -> None:
    one, two = await watched(world, 2)
    await world.switch.restart(lose_state=True)
    await two.paused(9)
    asked = await one.event()
    again = Watcher(world, one.answer, acknowledged=asked.sequence)
    await again.paused(7)
    assert (await again.moved()).resume_from == 7


async def test_the_last_events_of_a_group_come_again_too(world: World) -> None:
    one, two = await watched(world, 2)
    two.call.cancel()
    lost = await one.event()
    assert lost.member_lost.rank == 1
    await one.ended()
    again = Watcher(world, one.answer)
    assert await again.event() == lost
    await again.ended()


async def test_events_that_no_controller_can_have_sent_are_refused() -> None:
    async with new_world(hosts=1) as world:
        resume = pb.Resume(job="job", size=1, rails=world.request(0, 1).rails)
        liar = Watcher(world, pb.JoinGroupResponse(lease=7), resume, acknowledged=2**64 - 1)
        why = await refused(liar, grpc.StatusCode.INVALID_ARGUMENT)
        assert "event 18446744073709551615: expected the last" in why
