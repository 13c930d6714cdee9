# SPDX-License-Identifier: Apache-2.0
"""Groups on two racks and two spines. They leave a dead switch, and all ranks resume on the same tree."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import grpc
import pytest
from controller_world import DEADLINE_S, World, controller_of, new_world, running_switches
from watcher import Watcher, watched

from railweave.controller import tables
from railweave.controller.quotas import Quota, Quotas
from railweave.controller.tables import SPREAD_BASE
from railweave.topologies.clos import fat_tree, leaf_spine
from railweave.v1 import controller_pb2 as pb

RANKS = 4
LEAF_SPINE = leaf_spine(racks=2, hosts=2, spines=2, rails=("ina", "tcp"))
ONE_SPINE = leaf_spine(racks=2, hosts=2, spines=1, rails=("ina", "tcp"))


@pytest.fixture
def world() -> AbstractAsyncContextManager[World]:
    return new_world(topology=LEAF_SPINE)


def roots(world: World, job: str = "job") -> list[str]:
    """Return the roots of a job's trees, in order."""
    group = next(group for group in world.running.groups.running() if group.job == job)
    return [tree.placed.tree.root.switch if tree.placed else "" for tree in group.trees]


def groups_in(world: World, name: str) -> set[int]:
    """Return the groups whose results a switch multicasts."""
    return {number - 1 for number in world.switches[name].multicasts() if number < SPREAD_BASE} - {0}


async def stall(world: World, watcher: Watcher, group: int, **told: bool) -> None:
    """Let a rank report that a group brings no results."""
    await world.stub.ReportStall(pb.ReportStallRequest(lease=watcher.lease, group=group, **told))


async def move(watchers: list[Watcher], *positions: int) -> list[pb.GroupMoved]:
    """Let every rank answer its pause. Return each rank's order to resume elsewhere."""
    for watcher, position in zip(watchers, positions, strict=True):
        await watcher.paused(position)
    return [await watcher.moved() for watcher in watchers]


async def test_a_job_gets_a_tree_per_spine(world: World) -> None:
    answers = await world.join(RANKS)
    assert roots(world) == ["spine1", "spine2"]
    for rank, answer in enumerate(answers):
        places = [(place.tree, place.slots, place.depth) for place in answer.ina]
        assert places == [(0, 256, 2), (1, 256, 2)]
        assert {place.child for place in answer.ina} == {rank % 2}
    one, two = (place.group for place in answers[0].ina)
    assert [groups_in(world, f"spine{i}") for i in (1, 2)] == [{one}, {two}]
    assert groups_in(world, "leaf1") == {one, two}


async def test_a_dead_spines_tree_moves_to_the_other_spine_until_it_comes_back(world: World) -> None:
    watchers = await watched(world, RANKS)
    await world.switches["spine1"].stop()
    moved = await move(watchers, 30, 10, 20, 40)
    assert {(m.resume_from, m.place.tree, m.place.rail) for m in moved} == {(10, 0, "ina")}
    assert roots(world) == ["spine2", "spine2"]
    await world.running.fabric.settled()
    assert groups_in(world, "leaf1") == groups_in(world, "spine2") == {2, moved[0].place.group}
    await world.switches["spine1"].start()
    await world.settled(lambda: not groups_in(world, "spine1"))
    await world.join(RANKS, "later")
    assert roots(world, "later") == ["spine1", "spine2"]
    watchers[0].call.cancel()
    assert (await watchers[1].lost())[0] == 0  # without an earlier event of the other tree


async def test_without_another_tree_a_silent_switch_is_waited_for() -> None:
    """Only the switch's management may be dead, so ranks go on until results stop."""
    async with new_world(topology=ONE_SPINE) as world:
        watchers = await watched(world, RANKS)
        await world.switches["spine1"].stop()
        await world.settled(lambda: "spine1" in world.running.fabric.health.dead)
        await stall(world, watchers[1], 1, first_switch_ok=True)
        for position, watcher in enumerate(watchers):
            paused = await watcher.paused(position)
            assert paused.reason == "rank 1 (h2) gets no answer from its root"
        for watcher in watchers:
            down = await watcher.told("plane_down")
            assert (down.plane, "reaches all of leaf1, leaf2" in down.reason) == ("ina", True)
        await world.switches["spine1"].restart(lose_state=True)
        for watcher in watchers:
            assert (await watcher.moved()).resume_from == 0
            assert (await watcher.told("plane_up")).plane == "ina"
        assert roots(world) == ["spine1"]


async def test_a_link_that_a_rank_reports_is_kept_off() -> None:
    async with new_world(topology=LEAF_SPINE, suspect_s=3600) as world:
        watchers = await watched(world, RANKS)
        await stall(world, watchers[3], 2, first_switch_ok=True)
        moved = await move(watchers, 5, 5, 5, 5)
        assert {m.place.tree for m in moved} == {1}
        assert roots(world) == ["spine1", "spine1"]
        await world.join(RANKS, "other")
        assert roots(world, "other") == ["spine1"]
        await world.running.fabric.settled()
        flood = {name: switch.multicasts()[1] for name, switch in world.switches.items()}
        joined = [flood["leaf2"] & {(4, 0)}, flood["spine2"] & {(2, 0)}]
        assert joined == [set(), set()]  # broadcasts avoid the switch, too


@pytest.mark.parametrize("suspect_s", [0.2, 3600])
async def test_where_no_other_link_is_left_a_suspected_one_is_tried_again_soon(suspect_s: float) -> None:
    async with new_world(topology=ONE_SPINE, suspect_s=suspect_s) as world:
        watchers = await watched(world, RANKS)
        group = 1
        for position in (4, 7):
            await stall(world, watchers[0], group)
            for watcher in watchers:
                paused = await watcher.paused(position)
                assert paused.reason == "rank 0 (h1) gets no answer from switch leaf1"
            for watcher in watchers:
                assert "h1 and leaf1" in (await watcher.told("plane_down")).reason
                moved = await watcher.moved()
                assert moved.resume_from == position
                assert (await watcher.told("plane_up")).plane == "ina"
            group = moved.place.group


async def test_a_suspicion_alone_refuses_no_job() -> None:
    async with new_world(topology=LEAF_SPINE, suspect_s=3600) as world:
        watchers = await watched(world, RANKS)
        await stall(world, watchers[0], 1)
        await watchers[0].paused(1)
        watchers[0].call.cancel()
        await world.settled(lambda: not world.running.groups.running())
        assert world.running.fabric.health.suspects("ina") == {frozenset({"h1", "leaf1"})}
        await world.join(RANKS, "later")
        assert roots(world, "later") == ["spine1", "spine2"]


async def test_a_tree_without_room_moves_when_another_job_ends() -> None:
    """Two jobs use two racks and one spine each. One of the spines dies."""
    topology = leaf_spine(racks=4, hosts=1, spines=2, rails=("ina", "tcp"))
    async with new_world(topology=topology, quotas=Quotas(Quota(slots=8192, trees=1))) as world:

        async def begin(job: str, *hosts: int) -> list[Watcher]:
            requests = [
                world.request(rank, 2, job, rails=[world.offer(host)]) for rank, host in enumerate(hosts)
            ]
            answers = await asyncio.gather(*map(world.stub.JoinGroup, requests))
            return [Watcher(world, answer) for answer in answers]

        stays, leaves = await begin("stays", 1, 2), await begin("leaves", 3, 4)
        assert [roots(world, job) for job in ("stays", "leaves")] == [["spine1"], ["spine2"]]
        await world.switches["spine1"].stop()
        for watcher in stays:
            await watcher.paused(8)
        for watcher in stays:
            reason = (await watcher.told("plane_down")).reason
            assert "no 8192 slots in a row are free on switch spine2" in reason
        await world.leave(watcher.answer for watcher in leaves)
        assert {(await watcher.moved()).resume_from for watcher in stays} == {8}
        assert roots(world, "stays") == ["spine2"]


async def test_a_wrong_sum_is_made_again_in_other_slots_of_the_same_switches(world: World) -> None:
    watchers = await watched(world, RANKS)
    before = groups_in(world, "spine1")
    await stall(world, watchers[2], 1, first_switch_ok=True, root_ok=True, spoilt=True)
    moved = await move(watchers, 7, 7, 6, 7)
    assert {(m.resume_from, m.place.tree) for m in moved} == {(6, 0)}
    assert roots(world) == ["spine1", "spine2"]
    assert not before & groups_in(world, "spine1")


async def test_a_late_rank_is_no_dead_path(world: World) -> None:
    watchers = await watched(world, RANKS)
    for group in (1, 2):
        await stall(world, watchers[0], group, first_switch_ok=True, root_ok=True)
    watchers[0].call.cancel()
    assert (await watchers[1].lost())[0] == 0  # without an earlier pause


async def test_a_rank_that_does_not_answer_is_lost() -> None:
    async with new_world(topology=LEAF_SPINE, lease_s=0.5) as world:
        watchers = await watched(world, RANKS)
        await world.switches["spine1"].stop()
        for watcher in watchers[:3]:
            await watcher.paused(1)
            watcher.beat()
        assert (await watchers[0].lost())[0] == 3


async def test_a_rank_that_dies_in_the_middle_of_a_move_ends_the_job(world: World) -> None:
    watchers = await watched(world, RANKS)
    await world.switches["spine1"].stop()
    await watchers[0].paused(1)
    watchers[2].call.cancel()
    assert (await watchers[0].lost())[0] == 2
    await world.settled(lambda: not groups_in(world, "leaf1") and not groups_in(world, "spine2"))
    assert (await world.join(RANKS))[0].ina


async def test_a_second_death_during_a_move_moves_again() -> None:
    topology = leaf_spine(racks=2, hosts=2, spines=3, rails=("ina", "tcp"))
    async with new_world(topology=topology) as world:
        watchers = await watched(world, RANKS)
        await world.switches["spine1"].stop()
        for watcher in watchers:
            await watcher.paused(3)
        await world.switches["spine2"].stop()
        for watcher in watchers:
            events = [await watcher.event() for _ in range(2)]
            kinds = {event.WhichOneof("event") for event in events}
            assert kinds == {"group_moved", "group_paused"}
            paused = next(e.group_paused for e in events if e.HasField("group_paused"))
            await watcher.reports(paused.group, 4)
        for watcher in watchers:
            assert (await watcher.moved()).resume_from in (3, 4)
        await world.settled(lambda: roots(world) == ["spine3"] * 3)


async def test_a_controller_that_dies_in_the_middle_of_a_move_is_followed_by_one_that_ends_it() -> None:
    """Two ranks have moved, two have not. The next controller pauses all, and moves them together."""
    async with running_switches(LEAF_SPINE) as switches:
        async with controller_of(LEAF_SPINE, switches) as world:
            watchers = await watched(world, RANKS)
            answers = [watcher.answer for watcher in watchers]
            await switches["spine1"].stop()
            moved = await move(watchers, 6, 6, 6, 6)
        for rank in (0, 1):
            answers[rank].ina[0].CopyFrom(moved[rank].place)
        await switches["spine1"].start()
        async with controller_of(LEAF_SPINE, switches, lease_s=3) as world:
            watchers = [
                Watcher(world, a, world.resume(rank, a, RANKS, [1] if rank > 1 else []))
                for rank, a in enumerate(answers)
            ]
            for rank, watcher in enumerate(watchers):
                paused = await watcher.paused(10 + rank)
                assert paused.group == (1 if rank > 1 else moved[rank].place.group)
                assert "restarted while the group was being moved" in paused.reason
            last = [await watcher.moved() for watcher in watchers]
            assert {m.resume_from for m in last} == {10}
            (number,) = {m.place.group for m in last}
            assert number > moved[0].place.group

            def swept() -> bool:
                for watcher in watchers:
                    watcher.beat()  # leases must outlive the claims, which close after one lease time
                return groups_in(world, "leaf1") == {2, number}

            await world.settled(swept)


async def test_a_controller_starts_while_a_spine_is_dead(caplog: pytest.LogCaptureFixture) -> None:
    """Groups move to the other spine. New jobs get the other spine, and later both spines."""
    async with running_switches(LEAF_SPINE) as switches:
        async with controller_of(LEAF_SPINE, switches) as world:
            answers = await world.join(RANKS)
        await switches["spine1"].stop()
        async with controller_of(LEAF_SPINE, switches, switch_deadline_s=1.5) as world:
            assert "spine1 at 127.0.0.1" in caplog.text
            watchers = [Watcher(world, a, world.resume(rank, a, RANKS)) for rank, a in enumerate(answers)]
            await move(watchers, 6, 6, 6, 6)
            assert roots(world) == ["spine2"] * 2
            assert (await world.join(RANKS, "later"))[0].ina
            assert roots(world, "later") == ["spine2"]
            await switches["spine1"].start()
            spine = next(s for s in world.running.fabric.switches() if s.name == "spine1")
            await asyncio.wait_for(spine.ready.wait(), DEADLINE_S)
            await world.join(RANKS, "last")
            assert sorted(roots(world, "last")) == ["spine1", "spine2"]
            await world.running.fabric.settled()
            flooded = [switch.multicasts()[tables.FLOOD_GROUP] for switch in switches.values()]
            assert sum(map(len, flooded)) == 2 * 3 + RANKS  # two ends of the tree's three trunks, and hosts


async def test_controllers_leave_the_trees_of_three_levels_as_they_are() -> None:
    topology = fat_tree(pods=2, edges=2, aggs=2, cores=2, hosts=1, rails=("ina", "tcp"))
    async with running_switches(topology) as switches:
        async with controller_of(topology, switches) as world:
            answers = await world.join(RANKS)
            assert {place.depth for answer in answers for place in answer.ina} == {3}
            await world.running.fabric.settled()
            before = {name: switch.snapshot() for name, switch in switches.items()}
        written = {name: (len(switch.updates), switch.pushes) for name, switch in switches.items()}
        for _ in range(2):
            async with controller_of(topology, switches) as world:
                watchers = [Watcher(world, a, world.resume(rank, a, RANKS)) for rank, a in enumerate(answers)]
                await world.watched("job", *range(RANKS))
                assert world.running.fabric.groups.keys() == {p.group for p in answers[0].ina}
                assert all(not watcher.call.done() for watcher in watchers)
        assert {name: switch.snapshot() for name, switch in switches.items()} == before
        assert {name: (len(switch.updates), switch.pushes) for name, switch in switches.items()} == written


async def test_reports_of_groups_that_a_rank_is_not_in_are_refused(world: World) -> None:
    watchers = await watched(world, RANKS)
    position, stalled = pb.ReportPositionRequest, pb.ReportStallRequest
    unknown = [(watchers[0].lease, group) for group in (0, 3, 99)] + [(77, 1)]
    for lease, group in unknown:
        for call in (
            world.stub.ReportPosition(position(lease=lease, group=group)),
            world.stub.ReportStall(stalled(lease=lease, group=group)),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() == grpc.StatusCode.NOT_FOUND
