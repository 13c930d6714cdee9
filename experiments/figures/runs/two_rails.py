# SPDX-License-Identifier: Apache-2.0
"""A model's gradients among nodes with two rails, simulated: Gloo's ring, two rings, a tree and a ring.

Each contender is simulated with one size, close to a DDP bucket. The time of a step's messages is
proportional to their size. The shares let both rails finish at the same time, as computed from the time of
each rail alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from railweave.experiments import simulation
from railweave.experiments.figures import models
from railweave.experiments.figures.modules import Numbers, OnPhase, Options
from railweave.experiments.simulation import Call, Fabric

MOST_PER_RACK = 16
PARTS = 2  # segments that Gloo's ring has in flight; Nezha's rails over TCP are Gloo's


async def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the times of calls and steps, by contender."""
    async with simulation.simulator() as simulate:
        times = await _times(options, simulate, on_phase)
    model = models.load()[options["model"]]
    scale = sum(model.buckets()) / options["size"]
    call_s = {who: scale * time for who, time in times.items()}
    step_s = {who: model.compute_s + time for who, time in call_s.items()}
    return [{"nodes": options["nodes"], "call_s": call_s, "step_s": step_s}]


async def _times(options: Options, simulate: simulation.Simulate, on_phase: OnPhase) -> dict[str, float]:
    """Return the time of a call by contender."""
    size, per_rack = options["size"], min(options["nodes"], MOST_PER_RACK)
    fabric = Fabric(options["nodes"] // per_rack, per_rack)
    ring, tree = Call("ring", fabric, size, parts=PARTS), Call("tree", fabric, size)

    async def time(what: str, *calls: Call) -> float:
        on_phase(what)
        return (await simulate(*calls)).seconds

    one_ring, one_tree = await time("Gloo's ring", ring), await time("a tree", tree)
    half, part = replace(ring, size_bytes=size // 2), share(one_tree, one_ring, size)
    both = replace(tree, size_bytes=part), replace(ring, size_bytes=size - part)
    return {
        "gloo": one_ring,
        "tcp+tcp": await time("two rings", half, half),
        "ina+tcp": await time("a tree and a ring", *both),
    }


def share(one_s: float, other_s: float, size: int) -> int:
    """Return the bytes of the first of two rails, from the time that each rail needs for the whole tensor."""
    return round(size * other_s / (one_s + other_s))
