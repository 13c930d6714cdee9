# SPDX-License-Identifier: Apache-2.0
"""Accelerators → time by each model, and the bandwidth within machines from which NetReduce is faster."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Measured, Runs

COLOURED = {"flat ring": "tcp", "hierarchical ring": "rdma", "parallel NetReduce": "netreduce"}


def draw(runs: Runs) -> Figure:
    """Draw both."""
    figure, (times, thresholds) = drawing.sheet(2)
    (record,) = runs.kept["cost model"]
    for name, found in record.extra["times_s"].items():
        known = [int(count) for count in found]
        values = [1e3 * seconds for seconds in found.values()]
        times.plot(
            known, values, marker="o", markersize=4.5, color=drawing.colour(COLOURED[name]), label=name
        )
    drawing.ticks(times, known, "accelerators, 8 per machine")
    times.set_ylim(bottom=0, auto=None)
    times.set_ylabel("allreduce of 250 MB (ms)")
    times.legend()
    found = [Measured.of([value / 1e9]) for value in record.extra["thresholds"].values()]
    drawing.curve(thresholds, known, found, "netreduce")
    drawing.ticks(thresholds, known, "accelerators, 8 per machine")
    thresholds.set_ylabel("GB/s within machines from which\nNetReduce beats a flat ring")
    return figure
