# SPDX-License-Identifier: Apache-2.0
"""Fill a plane's switches for ATP, and print their counts.

This is a separate program, because the switches can be reached only from inside their network.

    python -m railweave.experiments.contenders.atp.configure TOPOLOGY PLANE JOBS SLOTS
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter

from railweave.controller.southbound import SwitchLink
from railweave.controller.state import SwitchState, difference
from railweave.experiments.contenders.atp import fabric
from railweave.p4src.artifacts import ATP, artifact
from railweave.p4src.config import CONFIG
from railweave.topologies.model import Switch
from railweave.topologies.serialize import load

DEADLINE_S = 20.0


async def fill(switch: Switch, state: SwitchState) -> Counter[str]:
    """Give a switch the program and the entries that it lacks. Return the number of packets by decision."""
    counts: asyncio.Future[Counter[str]] = asyncio.get_running_loop().create_future()

    async def connected() -> None:
        await link.write(difference(await link.read(), state))
        found: Counter[str] = Counter()
        for entry, packets in await link.packets("decide"):
            found[entry.action.name] += packets  # type: ignore[union-attr]
        counts.set_result(found)

    link = SwitchLink(switch, artifact(CONFIG["LANES"], program=ATP), connected)
    session = asyncio.create_task(link.run())
    try:
        return await asyncio.wait_for(counts, DEADLINE_S)
    finally:
        session.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await session


async def configure(path: str, plane_name: str, jobs: int, slots: int) -> Counter[str]:
    """Fill all switches of a plane. Return the sum of their counts."""
    plane = load(path).plane(plane_name)
    states = fabric.states(plane, range(jobs), slots)
    switches = [switch for switch in plane.switches if switch.p4runtime]
    counted = await asyncio.gather(*(fill(switch, states[switch.name]) for switch in switches))
    return sum(counted, Counter())


if __name__ == "__main__":
    json.dump(
        asyncio.run(configure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))), sys.stdout
    )
