# SPDX-License-Identifier: Apache-2.0
"""Racks that aggregate → steps of the ring, as counted, and time of a small allreduce."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Measured, Runs

UPGRADED = tuple(range(5))


def draw(runs: Runs) -> Figure:
    """Draw both."""
    figure, (steps, times) = drawing.sheet(2)
    counts = [[run.counters["ina"] for run in runs.of(_name(r), "ina")] for r in UPGRADED]
    counted = [Measured.of([c["ring_messages"] / c["rings"] for c in of]) for of in counts]
    drawing.curve(steps, UPGRADED, counted, "ina")
    hosts = len(next(iter(runs.scenarios.values())).network.hosts)
    drawing.level(steps, 2 * (hosts - 1), "a ring of all hosts")
    steps.set_ylabel("steps")
    for who in ("ina", "ring"):
        size = runs.sizes(_name(0), who)[0]
        medians = [[time / 1e3 for time in runs.medians_us(_name(r), who, size).values()] for r in UPGRADED]
        drawing.curve(times, UPGRADED, [Measured.of(of) for of in medians], who)
    times.set_ylabel("allreduce of 16 KiB (ms)")
    for panel in (steps, times):
        panel.set_ylim(bottom=0, auto=None)
        drawing.ticks(panel, UPGRADED, "racks that aggregate, of 4", "linear")
    return figure


def _name(upgraded: int) -> str:
    return f"{upgraded} of 4 racks, small"
