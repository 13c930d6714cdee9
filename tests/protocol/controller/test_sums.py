# SPDX-License-Identifier: Apache-2.0
"""Jobs with a netreduce rail. The switch has the ring of a job's connections exactly while the job runs."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
from controller_world import DEADLINE_S, World, controller_of, new_world, running_switches
from watcher import Watcher

from railweave.controller import tables
from railweave.controller.addresses import AddressPlan
from railweave.controller.desired import Ring
from railweave.topologies.clos import leaf_spine
from railweave.topologies.planes import planes
from railweave.v1 import controller_pb2 as pb

TOPOLOGY = planes(3, ("netreduce", "tcp"))
SLOTS = 64
NO_HEARTBEATS_S = 3 * DEADLINE_S  # a lease for tests that send no heartbeats


def request(world: World, rank: int, size: int = 3) -> pb.JoinGroupRequest:
    numbers = [1000 + 10 * rank, 1001 + 10 * rank, 1002 + 10 * rank]  # out, into, alias
    sums = world.offer(rank + 1, "netreduce", sum_queue_pairs=numbers)
    return world.request(rank, size, rails=[sums, world.offer(rank + 1, "tcp")])


async def join(world: World, size: int = 3) -> list[pb.JoinGroupResponse]:
    calls = (world.stub.JoinGroup(request(world, rank, size)) for rank in range(size))
    return list(await asyncio.gather(*calls))


def parts(world: World) -> dict[str, Ring]:
    """Return the ring in each switch that has it."""
    return {name: ring for name, s in world.running.fabric.ring_switches.items() for ring in s.rings}


def adders(world: World) -> set[str]:
    return {name for name, switch in world.switches.items() if switch.config and switch.table("deliveries")}


async def test_the_ring_is_in_the_switch_while_the_job_runs() -> None:
    async with new_world(topology=TOPOLOGY, slots=SLOTS) as world:
        empty = world.switch.snapshot()
        answers = await join(world)
        for answer in answers:
            (sums,) = answer.sums
            assert (sums.rail, sums.window_packets, sums.reason) == ("netreduce", SLOTS, "")
        nics = world.topology.plane("netreduce").nics
        ring = parts(world)["s-nr"]
        found = [
            (c.sender_port, c.sent_qp, c.first_psn, c.receiver_port, c.qp) for c in ring.part.contributors
        ]
        # Each rank sends to the alias of the next rank. Its PSNs begin at its own number.
        assert found == [
            (nics[n].port, 1002 + 10 * to, 1000 + 10 * n, nics[to].port, 1001 + 10 * to)
            for n, to in ((0, 1), (1, 2), (2, 0))
        ]
        assert len(world.switch.table("deliveries")) == 3
        report = (await world.stub.Explain(pb.ExplainRequest())).jobs[0]
        assert report.rails[0].sums.window_packets == SLOTS

        before, link = world.switch.snapshot(), world.running.fabric.ring_switches["s-nr"].link
        sessions = link.sessions
        await world.switch.restart(lose_state=False)
        await world.settled(lambda: link.sessions > sessions)
        assert world.switch.snapshot() == before
        await world.switch.restart(lose_state=True)
        await world.settled(lambda: bool(adders(world)) and len(world.switch.table("deliveries")) == 3)
        assert parts(world)["s-nr"].part == ring.part

        await world.leave(answers)
        await world.settled(lambda: not world.switch.table("deliveries"))
        assert empty <= world.switch.snapshot()  # the switch also has notes


async def test_a_restarted_controller_puts_the_ring_in_again() -> None:
    async with running_switches(TOPOLOGY) as switches:
        async with controller_of(TOPOLOGY, switches, slots=SLOTS) as world:
            answers = await join(world)
            before = parts(world)["s-nr"]
        async with controller_of(TOPOLOGY, switches, slots=SLOTS) as world:
            for rank, answer in enumerate(answers):
                rails = request(world, rank).rails
                Watcher(world, answer, pb.Resume(job="job", rank=rank, size=3, rails=rails))
            await world.settled(lambda: bool(parts(world)))
            again = parts(world)["s-nr"]
            assert again.part == before.part
            assert again.slots.start != before.slots.start or again.slots.base != before.slots.base


@pytest.mark.parametrize(
    ("slots", "reason"), [(0, "0 slots"), (16384, "16384 slots: expected a power of two up to 8192")]
)
async def test_ranks_are_told_why_nobody_adds(slots: int, reason: str) -> None:
    async with new_world(topology=TOPOLOGY, slots=slots) as world:
        for answer in await join(world):
            (sums,) = answer.sums
            assert sums.window_packets == 0
            assert reason in sums.reason
            assert not answer.refusals
        assert not world.switch.table("deliveries")


# --- trees of switches ---

RACKS = leaf_spine(2, 2, 2, rails=("netreduce", "tcp"))  # leaf1 and leaf2 of two hosts each, spine1, spine2


async def test_a_ring_over_racks_is_a_tree_of_switches() -> None:
    async with new_world(topology=RACKS, slots=SLOTS) as world:
        empty = {name: switch.snapshot() for name, switch in world.switches.items()}
        answers = await join(world, 4)
        assert {answer.sums[0].window_packets for answer in answers} == {SLOTS}
        plane = world.topology.plane("netreduce")
        trunks = {(t.lower, t.upper): t for t in plane.trunks}
        found = parts(world)
        (report,) = (await world.stub.Explain(pb.ExplainRequest())).jobs[0].rails[:1]
        spine, *leaves = report.adders
        assert (set(leaves), found.keys()) == ({"leaf1", "leaf2"}, {*leaves, spine})
        assert spine in ("spine1", "spine2")

        for leaf, ranks, before in (("leaf1", (0, 1), 3), ("leaf2", (2, 3), 1)):
            up, part = trunks[leaf, spine], found[leaf].part
            assert [c.first_psn for c in part.contributors] == [1000 + 10 * rank for rank in ranks]
            # The leaf's ranks get sums on two connections: between them, and from the other leaf.
            ports = {plane.nics[rank].port for rank in ranks}
            assert {copy.of.receiver_port for copy in part.down} == ports
            assert {copy.of.first_psn for copy in part.down} == {1000 + 10 * n for n in (ranks[0], before)}
            assert {copy.kept for copy in part.down} == {0, 2}
            assert part.up
            assert part.up.kept == 1
            assert part.up.of.sender_port == part.up.of.receiver_port == up.lower_port
            # The spine has the same link from the other end.
            (above,) = [c for c in found[spine].part.contributors if c.sender_port == up.upper_port]
            assert replace(part.up.of, sender_port=up.upper_port, receiver_port=up.upper_port) == above
        root = found[spine].part
        assert root.up is None
        assert root.answers == root.down
        assert [copy.kept for copy in root.down] == [1, 0]
        for name in found:
            assert await world.running.fabric.ring_switches[name].reconcile() == []

        await world.leave(answers)
        await world.settled(lambda: not adders(world))
        assert all(empty[name] <= switch.snapshot() for name, switch in world.switches.items())


async def test_ranks_of_one_rack_need_no_spine() -> None:
    async with new_world(topology=RACKS, slots=SLOTS) as world:
        await join(world, 2)
        assert adders(world) == {"leaf1"}
        assert parts(world)["leaf1"].part.up is None


@pytest.mark.parametrize("which", ["leaf", "spine"])
async def test_a_switch_that_starts_anew_gets_a_new_tree_with_all_others(which: str) -> None:
    """The new tree does not accept packets that are still under way in the old tree."""
    async with new_world(topology=RACKS, slots=SLOTS, lease_s=NO_HEARTBEATS_S) as world:
        await join(world, 4)
        before = parts(world)
        name = next(name for name in sorted(before) if name.startswith(which))
        await world.switches[name].restart(lose_state=True)

        def again() -> bool:
            now = parts(world)
            whole = len(now) == 3 and adders(world) == now.keys()
            return whole and all(now[each].group != before[each].group for each in now if each in before)

        await world.settled(again)
        now = parts(world)
        links = [{ring.part.up.of.qp for ring in of.values() if ring.part.up} for of in (before, now)]
        assert [len(each) for each in links] == [1, 1]
        assert links[0].isdisjoint(links[1])


async def test_a_ring_that_leaves_a_rack_twice_is_not_summed() -> None:
    """The switches do not sum such a ring, because its sums would not save traffic on the trunks."""
    async with new_world(topology=RACKS, slots=SLOTS) as world:
        requests = [request(world, rank, 4) for rank in range(4)]
        for one, other in ((requests[1], requests[2]), (requests[2], requests[1])):
            one.rails[0].address = world.topology.plane("netreduce").nics[other.rank].address
            one.rails[0].mac = world.topology.plane("netreduce").nics[other.rank].mac
        for answer in await asyncio.gather(*map(world.stub.JoinGroup, requests)):
            assert answer.sums[0].window_packets == 0
            assert re.search("the ring leaves the ranks at switch leaf[12] 2 times", answer.sums[0].reason)
        assert not adders(world)


async def test_a_ring_whose_spine_dies_goes_over_another_one() -> None:
    """Frames take the other spine, too. Without another spine the ring stays.

    In that case only the management of the spine may be dead.
    """
    async with new_world(topology=RACKS, slots=SLOTS, lease_s=NO_HEARTBEATS_S) as world:
        await join(world, 4)
        before = parts(world)
        (died,) = before.keys() - {"leaf1", "leaf2"}
        (other,) = {"spine1", "spine2"} - {died}
        await world.switches[died].stop()
        await world.settled(lambda: parts(world).keys() == {"leaf1", "leaf2", other})
        now = parts(world)
        await world.settled(lambda: {"leaf1", "leaf2", other} <= adders(world))
        towards = {
            (t.lower, t.lower_port) for t in world.topology.plane("netreduce").trunks if t.upper == died
        }
        for leaf in ("leaf1", "leaf2"):
            assert now[leaf].group != before[leaf].group
            assert now[leaf].part.up
            assert before[leaf].part.up
            assert now[leaf].part.up.of.qp != before[leaf].part.up.of.qp
            assert towards.isdisjoint((leaf, copy.of.receiver_port) for copy in now[leaf].part.copies)
            held = (await world.running.fabric.ring_switches[leaf].link.read()).entries
            ports = {dict(e.params).get("port") for e in held if e.table == "mac_table"}
            assert towards.isdisjoint((leaf, port) for port in ports)

        await world.switches[died].start()
        await world.settled(lambda: died not in adders(world))
        assert parts(world) == now
        await world.switches[other].stop()
        await world.settled(lambda: parts(world).keys() == {"leaf1", "leaf2", died})
        again = parts(world)
        await world.switches[died].stop()
        await world.settled(lambda: died in world.running.fabric.health.dead)
        assert parts(world) == again


async def test_no_frame_to_a_switch_is_forwarded_and_floods_make_no_loop() -> None:
    async with new_world(topology=RACKS, slots=SLOTS) as world:
        addresses = AddressPlan(world.topology.plane("netreduce")).switches.values()
        nowhere = {tables.mac_table(each.mac, tables.NOWHERE) for each in addresses}
        for ring_switch in world.running.fabric.ring_switches.values():
            assert nowhere <= (await ring_switch.link.read()).entries
        floods = {name: switch.multicasts()[tables.FLOOD_GROUP] for name, switch in world.switches.items()}
        copies = sum(map(len, floods.values()))
        assert copies == 4 + 2 * 3  # NICs, and both ends of the tree's three trunks
