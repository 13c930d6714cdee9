# SPDX-License-Identifier: Apache-2.0
"""Hosts → time of a broadcast and of an allgather, with the limit of the links."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Measured, Runs

HOSTS = (2, 4, 8, 16)


def draw(runs: Runs) -> Figure:
    """Draw a panel for each."""
    figure, panels = drawing.sheet(2)
    for panel, collective in zip(panels, ("broadcast", "all_gather"), strict=True):
        names = {hosts: f"{collective}, {hosts} hosts" for hosts in HOSTS}
        known = [hosts for hosts in HOSTS if names[hosts] in runs.kept]
        for who in ("ina", "ring"):
            found = [_time_ms(runs, names[hosts], who) for hosts in known]
            drawing.curve(panel, known, found, who, dotted="limit of the links")
        tree = f"{names[16]}, two levels"
        if tree in runs.kept:
            drawing.curve(
                panel, [16], [_time_ms(runs, tree, "ina")], "two levels", dotted="limit of the links"
            )
        limits = [
            8e3 * _size(runs, names[hosts]) / runs.limits_bps(names[hosts], "ina")["ina"] for hosts in known
        ]
        panel.plot(known, limits, ":", color=drawing.INK, linewidth=1.1)
        drawing.ticks(panel, known, "hosts")
        panel.set_ylim(bottom=0, auto=None)
        panel.set_ylabel("time of a call (ms)")
        sizes = {f"{_size(runs, names[hosts]) >> 10} KiB" for hosts in known}
        panel.set_title(" of ".join([collective.replace("_", ""), *sizes]))
    return figure


def _size(runs: Runs, scenario: str) -> int:
    return runs.sizes(scenario, "ina")[0]


def _time_ms(runs: Runs, scenario: str, who: str) -> Measured:
    times = runs.medians_us(scenario, who, _size(runs, scenario)).values()
    return Measured.of([time / 1e3 for time in times], cpu_bound=runs.cpu_bound(scenario, who))
