# SPDX-License-Identifier: Apache-2.0
"""0 to 4 quarters of the racks aggregate, simulated with up to 1,024 hosts."""

from __future__ import annotations

from itertools import pairwise
from math import gcd
from pathlib import Path

from railweave.experiments import simulation
from railweave.experiments.figures.modules import Numbers, OnPhase, Options
from railweave.experiments.simulation import Call, Fabric

MESSAGE = 256 << 10  # of a ring
COLUMNS = 4  # of a long message (model.hpp)


async def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the times of all algorithms, and of the ring of racks for each number of upgraded racks."""
    racks, size = options["racks"], options["size"]
    fabric = Fabric(racks, options["hosts"] // racks)
    counts = [racks * quarter // 4 for quarter in range(5)]
    wanted = {str(ina): Call("composed", fabric, size, ina, message_bytes=MESSAGE) for ina in counts[1:]}
    wanted |= {kind: Call(kind, fabric, size) for kind in ("hierarchical", "tree")}
    found = {}
    async with simulation.simulator() as simulate:
        for what, call in {"0": Call("ring", fabric, size), **wanted}.items():
            on_phase(f"{what} racks aggregate" if what.isdecimal() else what)
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
        "gain_hierarchical": seconds["hierarchical"] / sweep[-1],
        "ring_model": sweep[0] / models["0"],
        "racks_model": sweep[-1] / models[str(racks)],
    }
    return [extra]


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
