# SPDX-License-Identifier: Apache-2.0
"""Time → throughput of each rail around a fault, a panel per fault and failing rail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from railweave.experiments.figures import drawing
from railweave.experiments.figures.panels import Timeline, timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3


def draw(curves: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw the curves, as JSON values, by the name of the fault and the rail."""
    rows = -(-len(curves) // COLUMNS)
    figure, panels = drawing.sheet(min(COLUMNS, len(curves)), rows, height=Timeline.INCHES)
    for panel, (name, curve) in zip(panels, curves.items(), strict=False):
        timeline(panel, curve)
        panel.set_title(name)
    for panel in panels[len(curves) :]:
        panel.set_axis_off()
    return figure
