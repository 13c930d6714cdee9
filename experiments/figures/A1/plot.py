# SPDX-License-Identifier: Apache-2.0
"""Hosts → how many times more traffic a ring makes."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Measured, Runs


def draw(runs: Runs) -> Figure:
    """Draw a curve per network."""
    figure, (panel,) = drawing.sheet(1)
    (record,) = runs.kept["traffic model"]
    for name, counts in record.extra["counts"].items():
        hosts = [int(count) for count in counts]
        ratios = [Measured.of([ring / multicast]) for ring, multicast in counts.values()]
        drawing.curve(panel, hosts, ratios, name)
    drawing.ticks(panel, hosts[::2], "hosts")
    drawing.level(panel, 2.0, "twice")
    panel.set_ylim(1, 2.2)
    panel.set_ylabel("ring's traffic / multicast's")
    return figure
