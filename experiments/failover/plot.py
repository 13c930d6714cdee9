# SPDX-License-Identifier: Apache-2.0
"""Throughput of every rail around a fault, one small picture per fault and failing rail."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from railweave.experiments.failover.figures import Curve
from railweave.experiments.timeline import colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL_INCHES = (3.4, 1.75)
CHARACTERS_PER_INCH = 15  # of the note
FAULT_COLOUR = "#d55e00"
MBIT = 1e6


def draw(curves: Mapping[tuple[str, str], Curve], note: str, path: Path) -> None:
    """Write PNG, SVG or PDF, by the file's suffix: a row per fault, a column per rail that it hit."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - a second to import

    faults = list(dict.fromkeys(fault for fault, _ in curves))
    rails = list(dict.fromkeys(rail for _, rail in curves))
    width, height = PANEL_INCHES
    figure = Figure((width * len(rails) + 0.5, height * len(faults) + 1.1), layout="constrained")
    panels = figure.subplots(len(faults), len(rails), sharex="row", sharey=True, squeeze=False)
    for fault, row in zip(faults, panels, strict=True):
        for rail, panel in zip(rails, row, strict=True):
            if (fault, rail) in curves:
                _panel(panel, curves[fault, rail], rail)
            else:
                panel.set_axis_off()
            if fault == faults[0]:
                panel.set_title(f"{rail} fails", fontsize=10, fontweight="bold")
        row[0].set_ylabel(f"{fault}\n(Mbit/s)", fontsize=9)
    for panel in panels[-1]:
        panel.set_xlabel("s after the fault", fontsize=9)
    panels[0][0].set_ylim(bottom=0)
    names = {name: None for curve in curves.values() for name in curve.bps}
    handles = [panels[0][0].plot([], [], color=colour(name), linewidth=2, label=name)[0] for name in names]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(names), frameon=False, fontsize=10)
    per_line = round(figure.get_figwidth() * CHARACTERS_PER_INCH)
    figure.supxlabel(textwrap.fill(note, per_line), fontsize=8, color="0.4")
    figure.savefig(path, dpi=130)


def _panel(panel: Axes, curve: Curve, failing: str) -> None:
    panel.axvspan(0, curve.repaired_s, color=FAULT_COLOUR, alpha=0.12, linewidth=0)
    for name, rates in curve.bps.items():
        middles = [curve.begin_s + (place + 0.5) * curve.bin_s for place in range(len(rates))]
        width = 1.8 if name == failing else 1.0
        panel.plot(middles, [rate / MBIT for rate in rates], color=colour(name), linewidth=width)
    panel.grid(alpha=0.25)
    panel.tick_params(labelsize=8)
    panel.margins(x=0)
