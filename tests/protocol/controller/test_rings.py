# SPDX-License-Identifier: Apache-2.0
"""Rings of RDMA connections in the fake switch's tables. protocol/sum_schedules.py has the real program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from controller_world import DEADLINE_S, running_switch
from dataplane.inprocess import InProcessSwitch
from dataplane.ring import Ring as PacketRing
from dataplane.ring import ring_members
from fake_switch import FakeSwitch

from railweave.controller import desired, tables
from railweave.controller.errors import Refused
from railweave.controller.ring_trees import Part, alone
from railweave.controller.rings import RingSwitch
from railweave.controller.slots import Serials, SlotRange
from railweave.controller.tables import Connection, Endpoint
from railweave.p4src.artifacts import NETREDUCE, artifact
from railweave.p4src.config import CONFIG
from railweave.topologies.model import Nic, Plane, Switch

LANES = 64
WINDOW = 16


def part(ring: PacketRing) -> Part:
    """Convert a ring to the controller's form."""
    ends = {m.number: Endpoint(m.mac, m.ip, m.udp_port) for m in ring.members}
    return alone(
        [
            Connection(
                *(ends[m.number], m.port, ends[ring.next(m).number], ring.next(m).port),
                *(m.sent_qp, m.qp, m.first_psn),
            )
            for m in ring.members
        ]
    )


def new_ring(count: int = 3, qp: int = 0) -> PacketRing:
    members = (replace(m, qp=m.qp + qp) for m in ring_members(count))
    return PacketRing(InProcessSwitch(), tuple(members))


def plane(port: int) -> Plane:
    nics = (Nic(f"h{n}", f"h{n}-rdma", f"10.2.0.{n}", f"02:00:00:02:00:0{n}", "s", n) for n in range(1, 5))
    return Plane("rdma", "rdma", "10.2.0.0/16", 0, (Switch("s", f"127.0.0.1:{port}"),), tuple(nics))


@asynccontextmanager
async def managed(fake: FakeSwitch) -> AsyncIterator[RingSwitch]:
    """Run the controller's connection to the fake switch."""
    there = plane(fake.port)
    program = artifact(LANES, program=NETREDUCE)
    switch = RingSwitch(there, there.switches[0], program)
    task = asyncio.create_task(switch.link.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await switch.ready.wait()
        yield switch
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_rings_come_and_go_and_no_epoch_is_used_twice_on_a_slot() -> None:
    async with running_switch() as fake, managed(fake) as switch:
        empty = fake.snapshot()
        first = await switch.add(part(new_ring()), WINDOW)
        second = await switch.add(part(new_ring(4, qp=64)), 4 * WINDOW)
        assert len(fake.table("connections")) == len(fake.table("deliveries")) == 7
        assert fake.multicasts()[tables.multicast_id(first.group)] == {(2, 0), (3, 1), (1, 2)}
        assert first.slots.start == second.slots.start == 1
        assert second.header_base == first.header_base + first.header_cells
        assert await switch.reconcile() == []

        await switch.remove(first.group)
        third = await switch.add(part(new_ring()), WINDOW)
        assert (third.slots.base, third.slots.start, third.header_base) == (first.slots.base, 2, 0)
        assert third.group != first.group
        for ring in (second, third):
            await switch.remove(ring.group)
        assert not fake.table("deliveries")
        assert len(fake.table("connections")) == 2  # both entries are notes
        assert empty <= fake.snapshot()


async def test_a_new_controller_removes_the_old_ones_rings_and_goes_beyond_their_epochs() -> None:
    async with running_switch() as fake:
        async with managed(fake) as switch:
            old = await switch.add(part(new_ring()), WINDOW)
            await switch.remove(old.group)
            old = await switch.add(part(new_ring()), WINDOW)
        assert old.slots.start == 2
        async with managed(fake) as switch:
            assert not switch.rings
            assert not fake.table("deliveries")
            assert fake.pushes == 1
            new = await switch.add(part(new_ring()), WINDOW)
            assert (new.slots.base, new.slots.start) == (old.slots.base, 3)


async def test_what_does_not_fit_is_refused_and_leaves_nothing() -> None:
    wide = CONFIG["SLOTS"] // 2
    async with running_switch() as fake, managed(fake) as switch:

        async def refuse(ring: Part, window: int, message: str) -> None:
            with pytest.raises(Refused, match=message):
                await switch.add(ring, window)

        await refuse(alone(()), WINDOW, "0 connections: expected 1 to 31")
        await refuse(part(new_ring()), 8, "a window of 8 packets: expected 16 at least")
        await refuse(part(new_ring()), 2 * wide, f"{2 * wide} slots: expected a power of two up to {wide}")
        await refuse(part(new_ring(5)), wide, f"{10 * wide} header cells in a row are not free")
        await switch.add(part(new_ring()), wide)
        await refuse(part(new_ring()), WINDOW, "switch s sums one of these connections already")
        await refuse(part(new_ring(qp=64)), WINDOW, "no 16 slots in a row are free on switch s")
        assert len(switch.rings) == 1
        assert len(fake.table("connections")) == 3


def test_notes_match_no_packet_and_read_back() -> None:
    note = tables.connections_serials(Serials(1024, 512, 99))
    assert dict(note.match)["ingress_port"] == 0
    assert tables.read_connections(note) == Serials(1024, 512, 99)
    ring = desired.Ring(5, part(new_ring()), SlotRange(16, 16, 3), 0)
    found = {tables.read_connections(entry) for entry in desired.ring(ring).entries}
    assert found == {None, Serials(16, 16, 4)}
