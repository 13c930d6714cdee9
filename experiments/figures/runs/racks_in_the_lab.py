# SPDX-License-Identifier: Apache-2.0
"""0 to 4 of 4 racks aggregate: in the lab, and simulated with the lab's packets, rates and token buckets."""

from __future__ import annotations

import asyncio
from pathlib import Path

from railweave.experiments import simulation
from railweave.experiments.figures.modules import Numbers, OnPhase, Options
from railweave.experiments.figures.runs import timed_calls
from railweave.experiments.program.testbed import Testbed
from railweave.experiments.simulation import Call, Fabric
from railweave.topologies.clos import mixed_racks
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.shaping import TokenBucket

RACKS, HOSTS = 4, 4
MESSAGE = 32 << 10  # of a ring


async def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the times by number of racks that aggregate, and the ratios of simulated and measured times."""
    rate, size = options["rate_bps"], options["size"]
    burst = TokenBucket.of(rate).burst_bytes
    fabric = Fabric(RACKS, HOSTS, rate, 0, 0, mtu=1500, chunk_bytes=1024, burst_bytes=burst)
    measured, simulated, wrong = {}, {}, 0
    async with simulation.simulator() as simulate:
        for ina in range(RACKS + 1):
            call = Call("composed", fabric, size, ina, message_bytes=MESSAGE)
            simulated[str(ina)] = (await simulate(call if ina else Call("ring", fabric, size))).seconds
    for ina in range(RACKS + 1):
        on_phase(f"{ina} racks aggregate")
        measured[str(ina)], bad = await asyncio.to_thread(_measure, ina, options, out)
        wrong += bad
    ratios = [simulated[ina] / measured[ina] for ina in measured]
    ends = {"least": min(ratios), "greatest": max(ratios)}
    return [{"measured_s": measured, "simulated_s": simulated, **ends, "wrong": float(wrong)}]


def _measure(ina: int, options: Options, out: Path) -> tuple[float, int]:
    topology = mixed_racks(RACKS, HOSTS, ina, rails=("ina",), rates=options["rate_bps"])
    with Testbed(topology, LabOptions(out)) as bed:
        return timed_calls.seconds(bed, options["size"], options["calls"])
