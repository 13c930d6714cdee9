# SPDX-License-Identifier: Apache-2.0
"""GPT-2's gradients among up to 128 nodes with two rails, simulated: Gloo's ring, two rings, ring and tree.

Each contender is simulated with two sizes; messages of other sizes lie on the line through both. Shares
follow from the lines of the rails alone, as in the striper: both rails end together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from railweave.experiments import simulation
from railweave.experiments.figures import Experiment, OnPhase, key_of, models, run_by
from railweave.experiments.records import SKIPPED, Record
from railweave.experiments.simulation import Call, Fabric
from railweave.hosts.striping.costs import Line

MIB = 1 << 20
SIZES = (8 * MIB, 16 * MIB)
MOST_PER_RACK = 16
PARTS = 2  # segments that Gloo's ring has in flight; Nezha's rails over TCP are Gloo's


def plan(quick: bool) -> list[Experiment]:
    """Return an experiment per number of nodes."""
    counts = (8, 32) if quick else (8, 16, 32, 64, 128)
    return [
        Experiment(_name(nodes), key_of(_name(nodes), options), 10 + 1.5 * nodes, partial(_run, options))
        for nodes in counts
        for options in [{"nodes": nodes, "sizes": SIZES, "model": "GPT-2"}]
    ]


def _name(options_or_nodes: int) -> str:
    return f"two rails, {options_or_nodes} nodes"


async def _run(options: dict[str, Any], out: Path, on_phase: OnPhase) -> list[Record]:
    name = _name(options["nodes"])
    if missing := simulation.obstacle():
        return [run_by(name, options, 0, contender="ns-3", status=SKIPPED, error=missing)]
    async with simulation.simulator() as simulate:
        lines = await _lines(options, simulate, lambda what: on_phase(f"{name}: {what}"))
    (model,) = [
        each for each in models.load(Path(__file__).parents[1] / "N7") if each.name == options["model"]
    ]
    call_s = {who: sum(cost.time_s(size) for size in model.buckets()) for who, cost in lines.items()}
    step_s = {who: model.compute_s + time for who, time in call_s.items()}
    extra: dict[str, Any] = {"nodes": options["nodes"], "call_s": call_s, "step_s": step_s}
    for who in ("tcp+tcp", "ina+tcp"):
        extra[f"calls_{who}"] = call_s["gloo"] / call_s[who]
        extra[f"steps_{who}"] = step_s["gloo"] / step_s[who]
    return [run_by(name, options, 0, contender="simulated", extra=extra)]


async def _lines(
    options: dict[str, Any], simulate: simulation.Simulate, on_phase: Callable[[str], None]
) -> dict[str, Line]:
    """Return the cost of a call by contender."""
    per_rack = min(options["nodes"], MOST_PER_RACK)
    fabric = Fabric(options["nodes"] // per_rack, per_rack)

    def ring(size: int) -> Call:
        return Call("ring", fabric, size, parts=PARTS)

    def tree(size: int) -> Call:
        return Call("tree", fabric, size)

    async def line(what: str, calls: Callable[[int], Sequence[Call]]) -> Line:
        times = []
        for size in options["sizes"]:
            on_phase(f"{what}, {size // MIB} MiB")
            times.append((await simulate(*calls(size))).seconds)
        rate = (SIZES[1] - SIZES[0]) / (times[1] - times[0])
        return Line(times[0] - SIZES[0] / rate, rate)

    one_ring = await line("Gloo's ring", lambda size: [ring(size)])
    one_tree = await line("a tree", lambda size: [tree(size)])

    def two(size: int) -> list[Call]:
        return [ring(size // 2), ring(size // 2)]

    def both(size: int) -> list[Call]:
        part = share(one_tree, one_ring, size)
        return [tree(part), ring(size - part)]

    return {
        "gloo": one_ring,
        "tcp+tcp": await line("two rings", two),
        "ina+tcp": await line("a tree and a ring", both),
    }


def share(one: Line, other: Line, size: int) -> int:
    """Return the bytes of the first of two rails, so that both end together: a + x/b alike on both."""
    x = (size / other.rate + other.a_s - one.a_s) / (1 / one.rate + 1 / other.rate)
    return min(size, max(0, int(x)))
