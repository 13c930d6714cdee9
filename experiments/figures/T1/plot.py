# SPDX-License-Identifier: Apache-2.0
"""Size → time of a call, and hosts → how many times faster the switch adds than a ring."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Measured, Runs

HOSTS = (2, 4, 8)


def draw(runs: Runs) -> Figure:
    """Draw the times for four hosts, and the gain at the largest size."""
    figure, (times, gain) = drawing.sheet(2)
    drawing.times(times, runs, "4 hosts")
    known = [hosts for hosts in HOSTS if f"{hosts} hosts" in runs.kept]
    found = []
    for hosts in known:
        name = f"{hosts} hosts"
        ratios = runs.ratios(name, "netreduce", ["ring"], max(runs.sizes(name, "netreduce")))
        found.append(Measured.of(ratios, cpu_bound=runs.cpu_bound(name, "netreduce", "ring")))
    drawing.curve(gain, known, found, "netreduce", dotted="2(P - 1)/P")
    gain.plot(known, [2 * (hosts - 1) / hosts for hosts in known], ":", color=drawing.INK, linewidth=1.1)
    drawing.ticks(gain, known, "hosts")
    gain.set_ylim(bottom=0, auto=None)
    gain.set_ylabel("times as fast as a ring")
    return figure
