# SPDX-License-Identifier: Apache-2.0
"""The curve: time of the same sums against loss, one line per topology."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from railweave.experiments.loss.run import Point

SIZE_INCHES = (5.6, 3.9)


def draw(points: Sequence[Point], note: str, path: Path) -> None:
    """Write PNG, SVG or PDF, by the file's suffix."""
    figure = Figure(SIZE_INCHES, layout="constrained")
    panel = figure.subplots()
    for topology in dict.fromkeys(point.topology for point in points):
        of = [point for point in points if point.topology == topology]
        panel.plot(
            [100 * point.loss for point in of], [point.time_s for point in of], marker="o", label=topology
        )
    panel.set_xlabel("packets lost on every link, each way (%)")
    panel.set_ylabel(f"time of {points[0].chunks:,} chunks (s)")
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    panel.legend(frameon=False)
    figure.supxlabel(note, fontsize=8, color="0.4")
    figure.savefig(path, dpi=150)
