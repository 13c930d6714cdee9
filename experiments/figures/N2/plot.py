# SPDX-License-Identifier: Apache-2.0
"""Size → share of the second rail, a panel per pair, a curve per number of hosts."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing, networks
from railweave.experiments.measures import Runs
from railweave.topologies.planes import plane_names


def draw(runs: Runs) -> Figure:
    """Draw all pairs that were run."""
    figure, panels = drawing.sheet(2, 2)
    for panel, pair in zip(panels, networks.PAIRS, strict=True):
        second, name = plane_names(pair)[1], "+".join(pair)
        for scenario in sorted(runs.scenarios.values(), key=lambda each: each.hosts):
            if scenario.rails == pair:
                drawing.shares(panel, runs, scenario.name, name, second, f"{scenario.hosts} hosts")
        panel.set_ylabel(f"{name}: share of {second} (%)")  # above the panel stands its legend
    return figure
