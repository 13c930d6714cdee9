# SPDX-License-Identifier: Apache-2.0
"""Draw the time of a call by size, one panel per loss probability."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw all scenarios."""
    figure, panels = drawing.sheet(2)
    for panel, scenario in zip(panels, runs.scenarios, strict=False):
        drawing.times(panel, runs, scenario)
        panel.set_title(scenario)
    return figure
