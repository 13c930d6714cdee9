# SPDX-License-Identifier: Apache-2.0
"""Roots → time of an allgather."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Measured, Runs

ROOTS = (1, 2, 4, 8)
SCENARIO = "all_gather, 8 hosts"


def draw(runs: Runs) -> Figure:
    """Draw the curve."""
    figure, (panel,) = drawing.sheet(1)
    (size,) = runs.sizes(SCENARIO, "M = 1")
    found = [
        Measured.of(
            [time / 1e3 for time in runs.medians_us(SCENARIO, f"M = {m}", size).values()],
            cpu_bound=runs.cpu_bound(SCENARIO, f"M = {m}"),
        )
        for m in ROOTS
    ]
    drawing.curve(panel, ROOTS, found, "ina")
    limit_ms = 8e3 * size / runs.limits_bps(SCENARIO, "M = 1")["ina"]
    drawing.level(panel, limit_ms, "limit: P - 1 shards")
    drawing.level(panel, limit_ms * 8 / 7, "P shards")
    drawing.ticks(panel, ROOTS, "ranks that multicast at once (M)")
    panel.set_ylim(bottom=0, auto=None)
    panel.set_ylabel(f"allgather of {size >> 10} KiB (ms)")
    return figure
