# SPDX-License-Identifier: Apache-2.0
"""First upgrade → gain, predicted and measured, a panel per fabric."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw both beside each other."""
    figure, panels = drawing.sheet(len(runs.kept))
    names = ("predicted", "measured")
    for panel, (fabric, (record, *_)) in zip(panels, runs.kept.items(), strict=True):
        for name in names:
            gains = record.extra[f"{name}_gain"]
            drawing.bars(panel, list(gains), list(gains.values()), name, names)
        drawing.level(panel, 1, "no upgrade")
        panel.set_title(f"{fabric}: {record.configuration['jobs']}")
        panel.set_ylabel("gain of one upgrade")
    return figure
