# SPDX-License-Identifier: Apache-2.0
"""0 to 4 quarters of the racks aggregate: in the lab, and simulated with up to 1,024 hosts."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import pairwise
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

import railweave
from railweave.experiments import simulation, statistics
from railweave.experiments.figures import Experiment, OnPhase, key_of, run_by
from railweave.experiments.program.testbed import Testbed
from railweave.experiments.records import SKIPPED, Record
from railweave.experiments.simulation import Call, Fabric
from railweave.topologies.clos import mixed_racks
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.shaping import TokenBucket

MIB = 1 << 20
LAB_RATE_BPS, LAB_BYTES, LAB_RACKS, LAB_HOSTS = 10_000_000, 4 * MIB, 4, 4
SIZES = {64: 16 * MIB, 256: 4 * MIB, 1024: 4 * MIB}  # by hosts: more hosts send more packets
LAB_MESSAGE, MESSAGE = 32 << 10, 256 << 10  # of a ring
COLUMNS = 4  # of a long message (model.hpp)
RACKS = {64: 4, 256: 16, 1024: 64}
LAB = "lab and simulation, 16 hosts"


def plan(quick: bool) -> list[Experiment]:
    """Return the lab's experiment, and one per number of hosts."""
    calls = 2 if quick else 4
    lab = {"rate_bps": LAB_RATE_BPS, "size": LAB_BYTES, "calls": calls}
    found = [Experiment(LAB, key_of(LAB, lab), 70 + 50 * calls, partial(_compare, lab))]
    for hosts, racks in RACKS.items():
        if hosts > 64 and quick:
            break
        options = {"hosts": hosts, "racks": racks, "size": SIZES[hosts]}
        name = f"{hosts} hosts"
        found.append(Experiment(name, key_of(name, options), hosts, partial(_sweep, name, options)))
    return found


def calls(comm: railweave.Communicator, size_bytes: int, count: int) -> tuple[list[float], int]:
    """Return the seconds of each call after a first one, and the wrong elements of all."""
    own = np.full(size_bytes // 4, 1 + comm.rank, np.int32)
    exact = comm.world_size * (comm.world_size + 1) // 2
    times, wrong = [], 0
    for _ in range(1 + count):
        comm.barrier()
        begin = time.monotonic()
        got = comm.all_reduce(own)
        times.append(time.monotonic() - begin)
        wrong += int(np.count_nonzero(got != exact))
    return times[1:], wrong


async def _compare(options: dict[str, Any], out: Path, on_phase: OnPhase) -> list[Record]:
    """Return the times of 0 to 4 racks that aggregate, in the lab and simulated with the lab's packets."""
    if missing := simulation.obstacle():
        return [run_by(LAB, options, 0, contender="ns-3", status=SKIPPED, error=missing)]
    rate = options["rate_bps"]
    burst = TokenBucket.of(rate).burst_bytes
    fabric = Fabric(LAB_RACKS, LAB_HOSTS, rate, 0, 0, mtu=1500, chunk_bytes=1024, burst_bytes=burst)
    measured, simulated, wrong = {}, {}, 0
    async with simulation.simulator() as simulate:
        for ina in range(LAB_RACKS + 1):
            simulated[str(ina)] = (await simulate(_call(fabric, ina, options["size"], LAB_MESSAGE))).seconds
    for ina in range(LAB_RACKS + 1):
        on_phase(f"{LAB}: {ina} racks aggregate")
        measured[str(ina)], bad = await asyncio.to_thread(_measure, ina, options, out)
        wrong += bad
    ratios = [simulated[ina] / measured[ina] for ina in measured]
    extra = {
        "measured_s": measured,
        "simulated_s": simulated,
        "least": min(ratios),
        "greatest": max(ratios),
        "wrong": float(wrong),
    }
    return [run_by(LAB, options, 0, contender="railweave", extra=extra)]


def _measure(ina: int, options: dict[str, Any], out: Path) -> tuple[float, int]:
    topology = mixed_racks(LAB_RACKS, LAB_HOSTS, ina, rails=("ina",), rates=options["rate_bps"])
    with Testbed(topology, LabOptions(out)) as bed:
        values = bed.run(calls, options["size"], options["calls"]).wait().values
    slowest = [max(times) for times in zip(*(own for own, _ in values), strict=True)]
    return statistics.median(slowest), sum(count for _, count in values)


def _call(fabric: Fabric, ina: int, size: int, message: int) -> Call:
    """Return the call of a fabric in which `ina` racks aggregate."""
    if not ina:
        return Call("ring", fabric, size)
    return Call("composed", fabric, size, ina, message_bytes=message)


async def _sweep(name: str, options: dict[str, Any], out: Path, on_phase: OnPhase) -> list[Record]:
    """Return the times of all algorithms, and of the ring of racks for each number of upgraded racks."""
    if missing := simulation.obstacle():
        return [run_by(name, options, 0, contender="ns-3", status=SKIPPED, error=missing)]
    racks, size = options["racks"], options["size"]
    fabric = Fabric(racks, options["hosts"] // racks)
    counts = [racks * quarter // 4 for quarter in range(5)]
    wanted = {str(ina): _call(fabric, ina, size, MESSAGE) for ina in counts}
    wanted |= {kind: Call(kind, fabric, size) for kind in ("hierarchical", "tree")}
    found = {}
    async with simulation.simulator() as simulate:
        for what, call in wanted.items():
            on_phase(f"{name}: {f'{what} racks aggregate' if what.isdecimal() else what}")
            found[what] = await simulate(call)
    seconds = {what: done.seconds for what, done in found.items()}
    models = {str(ina): model_s(fabric, ina, size) for ina in counts}
    sweep = [seconds[str(ina)] for ina in counts]
    extra = {
        "seconds": seconds,
        "model_s": models,
        "events": {what: done.events for what, done in found.items()},
        "wall_s": {what: done.wall_s for what, done in found.items()},
        "rises": float(sum(after > before for before, after in pairwise(sweep))),
        "gain": sweep[0] / sweep[-1],
        "gain_first": sweep[0] / sweep[1],
        "gain_hierarchical": seconds["hierarchical"] / sweep[-1],
        "gain_model": models["0"] / models[str(racks)],
        "ring_model": sweep[0] / models["0"],
        "racks_model": sweep[-1] / models[str(racks)],
    }
    return [run_by(name, options, 0, contender="simulated", extra=extra)]


def members(fabric: Fabric, ina: int) -> int:
    """Return the members of the ring: the racks that aggregate, and the hosts of all other racks."""
    return ina + (fabric.racks - ina) * fabric.hosts


def model_s(fabric: Fabric, ina: int, size_bytes: int) -> float:
    """Return Rina's 2(L-1)(M/(L B) + a), where a is a message's latency over the mean number of links.

    A ring with racks carries long messages as four columns. Each column hides the latency of the others.
    """
    around = members(fabric, ina)
    message = size_bytes / around
    columns = gcd(fabric.hosts, COLUMNS) if ina and message >= 2 * fabric.mtu else 1
    packet_s = 8 * min(message, fabric.mtu) / fabric.rate_bps
    across = fabric.racks / around  # the part of the messages that leave a rack
    links = 2 + 2 * across
    latency_s = fabric.message_s + links * fabric.delay_s + (links - 1) * packet_s
    message_s = 8 * message / fabric.rate_bps
    return 2 * (around - 1) * max(message_s, message_s / columns + latency_s)
