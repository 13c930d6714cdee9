# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime server with finsy as its client, as controllers use it."""

from __future__ import annotations

import asyncio

import finsy as fy
from p4runtime_clients import DEVICE, JSON, P4INFO, Server, to_port


async def read(switch: fy.Switch, *patterns: fy.P4Entity) -> list[fy.P4Entity]:
    return [entity async for entity in switch.read(list(patterns))]


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
