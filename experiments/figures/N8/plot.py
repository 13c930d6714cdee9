# SPDX-License-Identifier: Apache-2.0
"""Nodes → gain over Gloo, of calls and of training steps."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw a panel for calls and one for steps."""
    figure, panels = drawing.sheet(2)
    extras = sorted((record.extra for (record, *_) in runs.kept.values()), key=lambda extra: extra["nodes"])
    nodes = [extra["nodes"] for extra in extras]
    for panel, what in zip(panels, ("calls", "steps"), strict=True):
        for rails in ("tcp+tcp", "ina+tcp"):
            panel.plot(
                nodes,
                [extra[f"{what}_{rails}"] for extra in extras],
                marker="o",
                label=rails,
                color=drawing.colour(rails),
            )
        drawing.level(panel, 2.36, "Nezha's 2.36")
        drawing.ticks(panel, nodes, "nodes")
        panel.set_ylim(bottom=0.9)
        panel.set_ylabel("times as fast as Gloo")
        panel.set_title("gradients alone" if what == "calls" else "steps of GPT-2")
        panel.legend(loc="best")
    return figure
