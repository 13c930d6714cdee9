# SPDX-License-Identifier: Apache-2.0
"""Size → gain over the best single rail, a curve per combination, each with its limit."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw all combinations that were run."""
    figure, panels = drawing.sheet(3, -(-len(runs.scenarios) // 3))
    for panel, (name, scenario) in zip(panels, runs.scenarios.items(), strict=False):
        together, *alone = [contender.name for contender in scenario.contenders]
        drawing.ratios(panel, runs, name, together, alone)
        limits = [sum(runs.limits_bps(name, who).values()) for who in (together, *alone)]
        drawing.level(panel, limits[0] / max(limits[1:]), "limit (Σ b / max b)")
        panel.set_title(name.replace(", 4 hosts, 100 Mbit/s", "").replace(", 4 hosts", ""))
        panel.set_ylabel("times as fast as the best rail")
    for panel in panels[len(runs.scenarios) :]:
        panel.set_axis_off()
    return figure
