# SPDX-License-Identifier: Apache-2.0
"""Hosts → how many times more traffic a ring makes."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Measured, Runs


def draw(runs: Runs) -> Figure:
    """Draw both networks."""
    figure, (panel,) = drawing.sheet(1)
    (record,) = runs.kept["traffic model"]
    one_switch, fat_tree = record.extra["counts"].values()
    hosts = [int(count) for count in one_switch]
    panel.plot(hosts, [ring / multicast for ring, multicast in one_switch.values()], ":", color=drawing.INK)
    found = [Measured.of([ring / multicast]) for ring, multicast in fat_tree.values()]
    drawing.curve(panel, hosts, found, "fat tree of radix 36", dotted="one switch")
    drawing.ticks(panel, hosts[::2], "hosts")
    drawing.level(panel, 2.0, "twice")
    panel.set_ylim(1, 2.2)
    panel.set_ylabel("traffic of a ring / multicast")
    return figure
