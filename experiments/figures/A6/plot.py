# SPDX-License-Identifier: Apache-2.0
"""Hosts → time of both calls, in the network and in rings, with the limit of the links."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments import statistics
from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw a bar for each."""
    figure, (panel,) = drawing.sheet(1)
    names = list(runs.scenarios)
    for who in ("ring", "ina"):
        times, limits = [], []
        for name in names:
            (size,) = runs.sizes(name, who)
            times.append(statistics.median(runs.times_us(name, who, size)) / 1e3)
            limits.append(8e3 * size / sum(runs.limits_bps(name, who).values()))
        groups = [name.removeprefix("both, ") for name in names]
        drawing.bars(panel, groups, times, who, ("ring", "ina"), limits)
    panel.set_ylabel("allgather and reduce-scatter (ms)")
    return figure
