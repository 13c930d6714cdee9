# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime server under finsy, as controllers use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import finsy as fy
import pytest
from p4runtime_clients import DEVICE, JSON, P4INFO, A, B, Server, to_port

from railweave.switch.p4runtime.service import API_VERSION


async def read(switch: fy.Switch, *patterns: fy.P4Entity) -> list[fy.P4Entity]:
    return [entity async for entity in switch.read(list(patterns))]


async def test_a_controller_loads_a_program_and_reads_back_what_it_wrote(server: Server) -> None:
    async with server.finsy() as switch:
        assert switch.is_primary
        assert str(switch.p4runtime_version).endswith(API_VERSION)
        entries = [
            to_port(1),
            fy.P4TableEntry(
                "acl",
                match=fy.P4TableMatch(source=(1, 0xFF), type=(0, 0x800), port=5),
                action=fy.P4TableAction("paint", color=7),
                priority=9,
                metadata=b"mine",
            ),
            fy.P4TableEntry(
                "routes",
                match=fy.P4TableMatch(destination="10.0.0.0/8"),
                action=fy.P4TableAction("next_hop", port=2, destination=B),
            ),
            fy.P4MulticastGroupEntry(4, replicas=[(1, 1), (2, 2)]),
            fy.P4CloneSessionEntry(5, replicas=[3]),
        ]
        await switch.insert(entries)
        found = await read(switch, fy.P4TableEntry(), fy.P4MulticastGroupEntry(), fy.P4CloneSessionEntry())
        constant = [e for e in found if isinstance(e, fy.P4TableEntry) and e.table_id == "painted"]
        assert len(constant) == 2
        assert all(entry.is_const for entry in constant)
        encoded = sorted(str(e.encode(switch.p4info)) for e in found if e not in constant)
        assert encoded == sorted(str(e.encode(switch.p4info)) for e in entries)

        await switch.modify([to_port(9)])
        assert await read(switch, fy.P4TableEntry("bridge")) == [to_port(9)]
        # finsy 0.30 leaves groups behind where a program has constant tables (`delete_many` skips them).
        await switch.delete_all()
        await switch.delete([fy.P4MulticastGroupEntry(4), fy.P4CloneSessionEntry(5)])
        assert len(await read(switch, fy.P4TableEntry(), fy.P4MulticastGroupEntry())) == len(constant)
    [pipeline] = server.pipelines
    assert pipeline.tables.entries("RouterIngress.bridge") == []


async def test_entries_take_effect_on_packets_and_packets_on_counters(server: Server) -> None:
    frame = A.to_bytes(6, "big") + B.to_bytes(6, "big") + b"\x12\x34" + bytes(50)
    async with server.finsy() as switch:
        [pipeline] = server.pipelines
        await switch.insert([to_port(7)])
        assert pipeline.inject(3, frame) == [(7, frame)]
        [hit] = await read(switch, fy.P4DirectCounterEntry(table_entry=fy.P4TableEntry("bridge")))
        [cell] = await read(switch, fy.P4CounterEntry("arrivals", index=3))
        assert isinstance(hit, fy.P4DirectCounterEntry)
        assert isinstance(cell, fy.P4CounterEntry)
        assert (hit.packet_count, hit.byte_count) == (cell.packet_count, cell.byte_count) == (1, 64)
        assert len(await read(switch, fy.P4CounterEntry("arrivals"))) == 16

        [register] = await read(switch, fy.P4RegisterEntry("last_source", index=3))
        assert isinstance(register, fy.P4RegisterEntry)
        assert register.data == B
        await switch.modify([fy.P4RegisterEntry("last_source", index=3, data=(1 << 48) - 1)])
        assert pipeline.arrays.register("RouterIngress.last_source", 3) == (1 << 48) - 1

        await switch.modify(
            [fy.P4TableEntry("bridge", action=fy.P4TableAction("to_port", port=5), is_default_action=True)]
        )
        assert pipeline.inject(3, frame[6:] + bytes(6)) == [(5, frame[6:] + bytes(6))]
        await switch.modify([fy.P4TableEntry("bridge", is_default_action=True)])
        assert pipeline.inject(3, frame[6:] + bytes(6)) == []


async def test_a_controller_comes_back_to_the_same_program_and_entries(server: Server) -> None:
    for _ in range(3):
        async with server.finsy() as switch:
            assert switch.is_primary
            await switch.modify([to_port(1)], strict=False)
            if not await read(switch, fy.P4TableEntry("bridge")):
                await switch.insert([to_port(1)])
    assert len(server.pipelines) == 1


async def test_a_restarted_switch_gets_its_program_again(server: Server) -> None:
    ready = asyncio.Queue[bool]()

    async def on_ready(switch: fy.Switch) -> None:
        await switch.insert([to_port(1)])
        ready.put_nowait(True)

    async with fy.Controller(
        [
            fy.Switch(
                "s1",
                server.address,
                fy.SwitchOptions(P4INFO, JSON, device_id=DEVICE, ready_handler=on_ready),
            )
        ]
    ):
        await ready.get()
        await server.stop()
        await server.start()
        await ready.get()
    assert len(server.pipelines) == 2


async def test_the_second_controller_is_backup_and_takes_over(server: Server) -> None:
    async with server.finsy(initial_election_id=9) as second:
        promoted = asyncio.Event()
        async with server.finsy(initial_election_id=10) as first:
            await until(lambda: not second.is_primary)
            assert first.is_primary
            with pytest.raises(fy.P4ClientError) as refused:
                await second.insert([to_port(2)])
            assert refused.value.code == fy.GRPCStatusCode.PERMISSION_DENIED
            second.ee.add_listener(fy.SwitchEvent.BECOME_PRIMARY, lambda *_: promoted.set())
        await promoted.wait()
        await second.insert([to_port(2)])


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)
