# SPDX-License-Identifier: Apache-2.0
"""Faults at random on every rail for as long as it runs, and now and then a restart of the controller."""

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

CALM_S = (1.0, 20.0)  # between two faults of a rail
OUTAGE_S = (
    0.03,
    3.0,
)  # short ones are as likely as long ones; far below a call's deadline, on all rails at once
CONTROLLER_CALM_S = (60.0, 240.0)
CONTROLLER_OUTAGE_S = (0.0, 2.0)

Tell = Callable[..., None]


async def storm(lab: Lab, seed: int, tell: Tell, fair: asyncio.Event) -> None:
    """Let faults strike until cancelled, and then undo what is left; `tell` hears of each.

    No fault begins while it would not be `fair`: a call that is begun anew with every fault of its rails, and
    so never ends, looks like one that hangs.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for plane in lab.topology.planes:
                group.create_task(_rail(lab, plane, _rng(seed, plane.name), tell, fair))
            group.create_task(_controller(lab, _rng(seed, CONTROLLER_NODE), tell, fair))
    except* LabError as failed:
        first = failed
    else:
        return
    raise LabError(f"the faults have ended: {_flat(first)}")


def _flat(group: BaseExceptionGroup[LabError]) -> str:
    return "; ".join(_flat(e) if isinstance(e, BaseExceptionGroup) else str(e) for e in group.exceptions)


def _rng(seed: int, name: str) -> random.Random:
    return random.Random(f"{seed}/{name}")  # noqa: S311 - to be repeated, not secret


async def _rail(lab: Lab, plane: Plane, rng: random.Random, tell: Tell, fair: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(rng.uniform(*CALM_S))
        await fair.wait()
        kind = rng.choice(KINDS)
        fault = kind.draw(plane, rng)
        outage_s = math.exp(rng.uniform(*map(math.log, OUTAGE_S)))
        async with Injection(lab, fault) as injection:
            tell("fault", rail=plane.name, fault=fault.name, where=fault.where, outage_s=round(outage_s, 3))
            await injection.strike()
            await asyncio.sleep(outage_s)
            await injection.repair()
            tell("repaired", rail=plane.name, fault=fault.name)


async def _controller(lab: Lab, rng: random.Random, tell: Tell, fair: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(rng.uniform(*CONTROLLER_CALM_S))
        await fair.wait()
        outage_s = rng.uniform(*CONTROLLER_OUTAGE_S)
        tell("fault", rail="", fault="controller killed", where=CONTROLLER_NODE, outage_s=round(outage_s, 3))
        await lab.kill(CONTROLLER_NODE)
        await asyncio.sleep(outage_s)
        await lab.revive(CONTROLLER_NODE)
        tell("repaired", rail="", fault="controller killed")
