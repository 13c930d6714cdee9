# SPDX-License-Identifier: Apache-2.0
"""The curve: time of an allreduce against hosts, one panel per size."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from railweave.experiments.scaling.run import ScalingResult

PANEL_INCHES = (4.6, 3.6)
LEAST_WIDTH_INCHES = 6.4  # for the note below


def draw(result: ScalingResult, note: str, path: Path) -> None:
    """Write PNG, SVG or PDF, by the file's suffix. Lines are medians, bars reach to the 99th percentile."""
    curves = result.curves()
    sizes = sorted({size for _, size in curves})
    figure = Figure(
        (max(LEAST_WIDTH_INCHES, PANEL_INCHES[0] * len(sizes)), PANEL_INCHES[1] + 0.3), layout="constrained"
    )
    panels = figure.subplots(1, len(sizes), squeeze=False)[0]
    for panel, size in zip(panels, sizes, strict=True):
        for (contender, of), rows in curves.items():
            if of != size:
                continue
            hosts = [row.ranks for row in rows]
            medians = [row.median_s * 1e3 for row in rows]
            tails = [(row.p99_s - row.median_s) * 1e3 for row in rows]
            panel.errorbar(
                hosts, medians, yerr=[[0.0] * len(tails), tails], marker="o", capsize=3, label=contender
            )
            panel.set_xticks([len(sweep.scenario.network.hosts) for sweep in result.sweeps])
        panel.set_title(f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B")
        panel.set_xlabel("hosts")
        panel.set_ylabel("time (ms)")
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.grid(alpha=0.3, which="both")
        panel.legend(frameon=False)
    figure.supxlabel(note, fontsize=7, color="0.4", wrap=True)
    figure.savefig(path, dpi=150)
