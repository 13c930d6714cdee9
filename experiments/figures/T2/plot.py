# SPDX-License-Identifier: Apache-2.0
"""Window → throughput, with the limit of the links."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Measured, Runs

WINDOWS = (16, 32, 64, 128, 256, 512)


def draw(runs: Runs) -> Figure:
    """Draw the curve."""
    figure, (panel,) = drawing.sheet(1)
    known = [window for window in WINDOWS if f"{window} packets" in runs.kept]
    found = []
    for window in known:
        name = f"{window} packets"
        (size,) = runs.sizes(name, "netreduce")
        rates = [8 * size / time for time in runs.medians_us(name, "netreduce", size).values()]
        found.append(Measured.of(rates, cpu_bound=runs.cpu_bound(name, "netreduce")))
    drawing.curve(panel, known, found, "netreduce")
    limit = sum(runs.limits_bps(f"{known[0]} packets", "netreduce").values()) / 1e6
    drawing.level(panel, limit, "limit of the links")
    drawing.ticks(panel, known, "window (packets)")
    panel.set_ylim(bottom=0, auto=None)
    panel.set_ylabel("throughput (Mbit/s of tensor)")
    return figure
