# SPDX-License-Identifier: Apache-2.0
"""Controllers and switches restart. State is reconciled and does not grow, and serial numbers go on."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from controller_world import World, controller_for, new_world, running_switch
from fake_switch import FakeSwitch
from watcher import Watcher, refused, watched

from railweave.controller import fabric, managed
from railweave.controller.desired import Loss
from railweave.controller.errors import ControllerError
from railweave.controller.managed import ROUNDS_MARGIN
from railweave.controller.server import PlaneLoss
from railweave.controller.slots import FIRST_START
from railweave.p4src.config import CONFIG
from railweave.v1 import controller_pb2 as pb


async def test_what_others_have_changed_is_set_right_in_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed, "BELIEVED_S", 0)
    monkeypatch.setattr(fabric, "AUDIT_S", 0.01)
    await world.join(2)
    before = world.switch.snapshot()
    gone = next(iter(world.switch.entities))
    del world.switch.entities[gone]
    world.managed.losses["ingress", 1] = Loss(1, "ingress", 0.5)
    await world.managed.reconcile()  # an audit follows the writes, or has made them
    await world.settled(lambda: gone in world.switch.entities)
    assert world.switch.snapshot() != before  # with the loss
    del world.managed.losses["ingress", 1]
    await world.managed.reconcile()
    assert world.switch.snapshot() == before


async def test_what_was_written_is_not_read_again_at_once_nor_written_twice(world: World) -> None:
    await world.join(2)
    reads, writes = (world.switch.counts[name] for name in ("reads", "writes"))
    assert await world.managed.reconcile() == []
    await world.managed.audit()
    world.managed.losses["ingress", 1] = Loss(1, "ingress", 0.5)
    first, *others = await asyncio.gather(*(world.managed.reconcile() for _ in range(10)))
    assert len(first) == 1
    assert others == [[]] * 9  # requests that wait for each other are met together
    assert (world.switch.counts["reads"], world.switch.counts["writes"]) == (reads, writes + 1)


async def test_ranks_that_do_not_come_back_are_lost_and_their_entries_removed() -> None:
    async with running_switch() as switch:
        async with controller_for(switch) as world:
            answers = await world.join(2)
            await world.join(2, "gone")
            assert len(switch.multicasts()) == 3
        async with controller_for(switch, lease_s=0.5) as world:
            watcher = Watcher(world, answers[0], world.resume(0, answers[0]))
            await world.watched("job", 0)
            watcher.beat()
            assert await watcher.lost() == (1, "it has not come back to the restarted controller")
            await world.settled(lambda: set(switch.multicasts()) == {1})
            late = Watcher(world, answers[1], world.resume(1, answers[1]))
            await refused(late, grpc.StatusCode.NOT_FOUND)


async def test_a_claim_that_the_switch_does_not_confirm_is_not_believed() -> None:
    async with running_switch() as switch:
        async with controller_for(switch) as world:
            answers = await world.join(2)
            before = switch.snapshot()
        async with controller_for(switch) as world:
            for answer in answers:
                answer.ina[0].virtual_address = "10.1.255.77"
            watchers = [Watcher(world, a, world.resume(r, a)) for r, a in enumerate(answers)]
            paused = await watchers[0].paused(5)
            assert "switch s-ina holds something else for group 1" in paused.reason
            assert switch.snapshot() == before
            assert not world.running.fabric.groups
            await watchers[1].paused(7)
            moved = await watchers[1].moved()
            assert (moved.group, moved.resume_from) == (1, 5)
            assert world.running.fabric.groups.keys() == {moved.place.group}
            assert moved.place.group not in (0, 1)


def complete(switch: FakeSwitch, first_number: int, chunks: int) -> None:
    """Set the number of results of the group whose slots begin at `first_number`."""
    place = first_number // CONFIG["GROUP_STEP"] * CONFIG["OUTCOMES"] + CONFIG["OUTCOME_RESULT"]
    switch.cells["group_packets", place] = chunks


@pytest.mark.parametrize(
    ("packets", "rounds"),
    [(16384 * 1000, 1000), (16384 * 2**31, 3)],
    ids=["sums", "also multicast packets"],
)
async def test_serial_numbers_lie_beyond_what_the_counters_allow_also_after_a_restart(
    packets: int, rounds: int
) -> None:
    """Multicast packets must not advance serial numbers.

    Otherwise the numbers could pass those in unused slots, whose packets would be stale for ever.
    """
    async with running_switch() as switch:
        async with controller_for(switch, slots=8192) as world:
            answers = await world.join(2)
            assert switch.serial_starts() == [1, 1]
            switch.count("members", packets)
            complete(switch, first_number=0, chunks=16384 * rounds)
            await world.leave(answers)
            await world.settled(lambda: switch.serial_starts() == [])
        async with controller_for(switch, slots=8192) as world:
            await world.join(2)
            assert switch.serial_starts() == [1 + rounds + ROUNDS_MARGIN] * 2


async def test_a_group_that_ends_while_anothers_packets_are_counted_is_counted_too() -> None:
    """Otherwise the next group would begin at serial numbers that the registers have already seen.

    The switch would treat its packets as stale for ever.
    """
    async with new_world(hosts=2, slots=512) as world:
        one, two = [await world.join(2, job) for job in ("one", "two")]
        world.switch.count("members", packets=1024 * 1000)
        for first_number in (0, 1024):
            complete(world.switch, first_number, chunks=1024 * 1000)
        world.switch.before_counting = lambda: world.leave(two)
        await world.leave(one)
        await world.settled(lambda: world.switch.serial_starts() == [])
        for job in ("three", "four"):
            await world.join(2, job)
        assert world.switch.serial_starts() == [1 + 1000 + ROUNDS_MARGIN] * 4


async def test_groups_on_a_switch_that_lost_its_state_are_moved_to_where_they_were(world: World) -> None:
    watchers = await watched(world, 2)
    entries, pushes = len(world.switch.entities), world.switch.pushes
    await world.switch.restart(lose_state=True)
    for position, watcher in enumerate(watchers, start=70):
        paused = await watcher.paused(position)
        assert (paused.rail, paused.tree, paused.group) == ("ina", 0, 1)
        assert paused.reason == "switch s-ina was restarted and lost its state"
    for watcher in watchers:
        moved = await watcher.moved()
        assert (moved.group, moved.resume_from, moved.place.group) == (1, 70, 2)
    await world.running.fabric.settled()
    assert set(world.switch.multicasts()) == {1, 3}
    assert len(world.switch.entities) == entries
    assert world.switch.serial_starts() == [FIRST_START] * 2
    assert world.switch.pushes == pushes + 1


@pytest.mark.parametrize("room", [0, 2])
async def test_what_a_switch_has_lost_is_told_although_setting_it_up_fails_at_first(
    world: World, room: int
) -> None:
    watchers = await watched(world, 2)
    world.switch.room = room
    await world.switch.restart(lose_state=True)
    await world.settled(lambda: world.switch.refused > 0)
    world.switch.room = None
    for watcher in watchers:
        assert "was restarted and lost its state" in (await watcher.paused(3)).reason
    assert {(await watcher.moved()).resume_from for watcher in watchers} == {3}


async def test_who_writes_to_a_restarted_switch_before_it_is_set_up_does_not_hide_the_loss(
    world: World,
) -> None:
    """Restored entries do not restore the registers."""
    watchers = await watched(world, 2)
    async with world.managed._lock:
        early = asyncio.create_task(world.managed.reconcile())
        await world.switch.restart(lose_state=True)
        await world.settled(lambda: world.switch.pushes == 2 and world.managed.link.up)
    assert await early
    for watcher in watchers:
        assert "was restarted and lost its state" in (await watcher.paused(3)).reason
    assert {(await watcher.moved()).place.group for watcher in watchers} == {2}


async def test_a_lost_connection_alone_changes_nothing_and_tells_nobody(world: World) -> None:
    watchers = await watched(world, 2)
    before, written = world.switch.snapshot(), len(world.switch.updates)
    world.switch.gnmi.insert(0, grpc.StatusCode.UNAVAILABLE)  # finsy asks for the ports by gNMI
    await world.switch.restart(lose_state=False)
    await world.settled(lambda: world.managed.link.sessions == 2)
    assert len(world.switch.gnmi) == 1  # it was asked again
    await world.managed.reconcile()
    assert (world.switch.snapshot(), len(world.switch.updates)) == (before, written)
    watchers[0].call.cancel()
    assert (await watchers[1].lost())[0] == 0  # without an earlier event


async def test_a_group_that_ends_while_its_switch_is_away_is_cleaned_up_later(world: World) -> None:
    watchers = await watched(world, 2)
    await world.switch.stop()
    watchers[0].call.cancel()
    assert (await watchers[1].lost())[0] == 0
    assert len(world.switch.multicasts()) == 2
    await world.switch.start()
    await world.settled(lambda: set(world.switch.multicasts()) == {1})
    await world.settled(lambda: not world.managed.slots.taken)


async def test_a_program_that_the_switch_refuses_is_named() -> None:
    async with running_switch() as switch:
        switch.refusal = "no such extern"
        with pytest.raises(ControllerError, match=r"s-ina at 127.0.0.1:\d+ refuses .*no such extern: "):
            async with controller_for(switch, switch_deadline_s=1):
                pass
        switch.refusal = ""
        async with controller_for(switch):
            assert switch.pushes == 1


async def test_loss_is_injected_and_taken_back() -> None:
    async with new_world(losses=[PlaneLoss("ina", 0)]) as world:
        tables = [f"injector_{way}" for way in ("ingress", "egress")]
        half = pb.SetLossRequest(plane="ina", direction="both", probability=0.5)
        await world.stub.SetLoss(half)
        assert [len(world.switch.table(table)) for table in tables] == [4, 4]
        await world.stub.SetLoss(pb.SetLossRequest(plane="ina", direction="egress", port=1))
        assert [len(world.switch.table(table)) for table in tables] == [4, 3]
        for bad, text in (
            ({"plane": "tcp"}, "plane 'tcp': no P4 switch"),
            ({"plane": "ina", "switch_name": "x"}, "no P4 switch 'x'"),
            ({"plane": "ina", "port": 9}, "port 9: expected one of"),
            ({"plane": "ina", "probability": 1.5}, "expected 0 to 1"),
            ({"plane": "ina", "probability": float("nan")}, "expected 0 to 1"),
            ({"plane": "ina", "direction": "up"}, "ingress or egress or both"),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match=text):
                await world.stub.SetLoss(pb.SetLossRequest(**bad))


async def test_losses_are_set_only_where_the_controller_was_started_for_them(world: World) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="a controller with --loss") as refused:
        await world.stub.SetLoss(pb.SetLossRequest(plane="ina", probability=0.5))
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
