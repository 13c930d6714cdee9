# SPDX-License-Identifier: Apache-2.0
"""Random faults on every rail during a soak, and occasional restarts of the controller."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from functools import partial

from railweave.experiments.failover.kinds import KINDS
from railweave.experiments.supervisor import alongside
from railweave.topologies.lab import faults
from railweave.topologies.lab.faults import Fault
from railweave.topologies.lab.injection import Injection
from railweave.topologies.lab.lab import Lab
from railweave.topologies.model import Plane

INTERVAL_S = (1.0, 20.0)  # between two faults of a rail
CONTROLLER_INTERVAL_S = (60.0, 240.0)
# The logarithm is uniform. Outages are far below a call's deadline, because all rails may be down at once.
OUTAGE_S = (0.03, 3.0)

Draw = Callable[[random.Random], Fault]
Record = Callable[..., None]


async def inject(lab: Lab, seed: int, record: Record, none_stuck: asyncio.Event) -> None:
    """Inject faults until cancelled, then repair all remaining faults. `record` gets each fault and repair.

    No fault begins while a call is stuck (`none_stuck` is not set). A call that is delayed by fault after
    fault would look like a call that hangs.
    """

    async def again(rail: str, interval_s: tuple[float, float], draw: Draw) -> None:
        rng = random.Random(f"{seed}/{rail}")  # noqa: S311 - repeatable, not secret
        while True:
            await asyncio.sleep(rng.uniform(*interval_s))
            await none_stuck.wait()
            fault, outage_s = draw(rng), math.exp(rng.uniform(*map(math.log, OUTAGE_S)))
            async with Injection(lab, fault) as injection:
                record("fault", rail=rail, fault=fault.name, where=fault.where, outage_s=round(outage_s, 3))
                await injection.inject()
                await asyncio.sleep(outage_s)
                await injection.repair()
                record("repaired", rail=rail, fault=fault.name)

    rails = [again(plane.name, INTERVAL_S, partial(_any, plane)) for plane in lab.topology.planes]
    await alongside(again("", CONTROLLER_INTERVAL_S, lambda _: faults.controller_killed()), *rails)


def _any(plane: Plane, rng: random.Random) -> Fault:
    return rng.choice(KINDS).draw(plane, rng)
