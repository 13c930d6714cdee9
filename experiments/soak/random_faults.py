# SPDX-License-Identifier: Apache-2.0
"""Random faults on every rail during a soak, and occasional restarts of the controller."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable

from railweave.experiments.failover.kinds import KINDS
from railweave.topologies.errors import LabError
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.namespaces import CONTROLLER_NODE
from railweave.topologies.model import Plane

INTERVAL_S = (1.0, 20.0)  # between two faults of a rail
# The logarithm is uniform. All rails may be down at once, so this is far below a call's deadline.
OUTAGE_S = (0.03, 3.0)
CONTROLLER_INTERVAL_S = (60.0, 240.0)
CONTROLLER_OUTAGE_S = (0.0, 2.0)

Record = Callable[..., None]


async def inject(lab: Lab, seed: int, record: Record, none_stuck: asyncio.Event) -> None:
    """Inject faults until cancelled, then repair the last ones; `record` gets each fault and repair.

    No fault begins unless `none_stuck` is set: a call that every fault delays further could not be told from
    one that hangs.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for plane in lab.topology.planes:
                group.create_task(_rail(lab, plane, _rng(seed, plane.name), record, none_stuck))
            group.create_task(_controller(lab, _rng(seed, CONTROLLER_NODE), record, none_stuck))
    except* LabError as failed:
        first = failed
    else:
        return
    raise LabError(f"the faults have ended: {_flat(first)}")


def _flat(group: BaseExceptionGroup[LabError]) -> str:
    return "; ".join(_flat(e) if isinstance(e, BaseExceptionGroup) else str(e) for e in group.exceptions)


def _rng(seed: int, name: str) -> random.Random:
    return random.Random(f"{seed}/{name}")  # noqa: S311 - repeatable, not secret


async def _rail(
    lab: Lab, plane: Plane, rng: random.Random, record: Record, none_stuck: asyncio.Event
) -> None:
    while True:
        await asyncio.sleep(rng.uniform(*INTERVAL_S))
        await none_stuck.wait()
        kind = rng.choice(KINDS)
        fault = kind.draw(plane, rng)
        outage_s = math.exp(rng.uniform(*map(math.log, OUTAGE_S)))
        async with Injection(lab, fault) as injection:
            record("fault", rail=plane.name, fault=fault.name, where=fault.where, outage_s=round(outage_s, 3))
            await injection.inject()
            await asyncio.sleep(outage_s)
            await injection.repair()
            record("repaired", rail=plane.name, fault=fault.name)


async def _controller(lab: Lab, rng: random.Random, record: Record, none_stuck: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(rng.uniform(*CONTROLLER_INTERVAL_S))
        await none_stuck.wait()
        outage_s = rng.uniform(*CONTROLLER_OUTAGE_S)
        record(
            "fault", rail="", fault="controller killed", where=CONTROLLER_NODE, outage_s=round(outage_s, 3)
        )
        await lab.kill(CONTROLLER_NODE)
        await asyncio.sleep(outage_s)
        await lab.revive(CONTROLLER_NODE)
        record("repaired", rail="", fault="controller killed")
