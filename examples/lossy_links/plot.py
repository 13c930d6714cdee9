# SPDX-License-Identifier: Apache-2.0
"""Size → time of a call, a panel per probability of loss."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw both."""
    figure, panels = drawing.sheet(2)
    for panel, scenario in zip(panels, runs.scenarios, strict=False):
        drawing.times(panel, runs, scenario)
        panel.set_title(scenario)
    return figure
