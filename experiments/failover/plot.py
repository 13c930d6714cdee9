# SPDX-License-Identifier: Apache-2.0
"""Time → throughput of each rail around a fault, a panel per fault and failing rail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from railweave.experiments.figures import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3


def draw(curves: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw the curves, as JSON values, by the name of the fault and the rail."""
    figure, panels = drawing.sheet(min(COLUMNS, len(curves)), -(-len(curves) // COLUMNS), height=2.2)
    for panel, (name, curve) in zip(panels, curves.items(), strict=False):
        drawing.span(panel, 0, curve["repaired_s"], "fault")
        for rail, rates in curve["bps"].items():
            middles = [curve["begin_s"] + (place + 0.5) * curve["bin_s"] for place in range(len(rates))]
            drawing.line(panel, middles, [rate / 1e6 for rate in rates], rail)
        panel.set_title(name)
        panel.set_xlabel("s after the fault")
        panel.set_ylabel("Mbit/s of tensor")
    for panel in panels[len(curves) :]:
        panel.set_axis_off()
    return figure
