# SPDX-License-Identifier: Apache-2.0
"""Time → throughput of each rail around a fault, a panel per fault and failing rail."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw the first trial of each."""
    curves = {
        name: curve
        for name, records in runs.kept.items()
        for record in records
        if (curve := record.extra.get("curve"))
    }
    figure, panels = drawing.sheet(3, -(-len(curves) // 3), height=2.2)
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
