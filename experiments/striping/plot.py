# SPDX-License-Identifier: Apache-2.0
"""The figures of striping: time and share by size, and share by call while a split is learnt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from railweave.experiments.figures import drawing
from railweave.experiments.figures.panels import Curve, Curves, times
from railweave.experiments.measures import size_text
from railweave.experiments.striping import report
from railweave.experiments.striping.run import Found

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTE = "emulated hosts and links on one machine"


def file_of(path: Path, part: str) -> Path:
    """Return the file of one part of the experiment."""
    return path.with_name(f"{path.stem}-{part}{path.suffix}")


def draw(found: Sequence[Found], path: Path) -> list[Path]:
    """Write one file per part of the experiment, named as `path` with the part; PNG, SVG or PDF."""
    written = []
    for part, panels in (("sizes", _sizes), ("thresholds", _thresholds), ("convergence", _convergence)):
        of_part = [each for each in found if each.case.part == part]
        if of_part:
            written.append(file_of(path, part))
            figure, note = panels(of_part)
            drawing.save(figure, f"{note}; {NOTE}", written[-1])
    return written


def _sizes(found: Sequence[Found]) -> tuple[Figure, str]:
    """Draw the time of each rail alone and of all together."""
    figure, panels = drawing.sheet(len(found))
    marks: set[str] = set()
    for panel, each in zip(panels, found, strict=True):
        panel.set_title(each.case.name)
        marks |= times(panel, each.runs, each.case.name)
        largest = report.sweep(each)["rows"][-1]
        panel.annotate(
            f"x {largest['speedup']:.2f}", (largest["bytes"], largest["time_us"] / 1e3), (-8, -20),
            textcoords="offset points", ha="right",
        )  # fmt: skip
    runs = len(found[0].seconds(found[0].together, found[0].sizes[0]))
    return figure, " ".join([*sorted(marks), f"Median of {runs} runs per size after warm-up"])


def _thresholds(found: Sequence[Found]) -> tuple[Figure, str]:
    """Draw the second rail's share against size: a panel per pair of rails, a line per number of hosts."""
    pairs = list(dict.fromkeys(each.case.kinds for each in found))
    figure, panels = drawing.sheet(len(pairs))
    marks: set[str] = set()
    for panel, pair in zip(panels, pairs, strict=True):
        for each in (each for each in found if each.case.kinds == pair):
            share = {"what": "share", "scenario": each.case.name, "of": each.together, "scale": 100}
            curve = Curve(f"{each.case.hosts} hosts", {**share, "rail": each.case.rails[1]})
            shown = Curves(y=f"share of {pair[1]} (%)", curves=(curve,), limit="ratio of the links")
            marks |= shown.draw(panel, each.runs)
        panel.set_title("+".join(pair))
    return figure, " ".join([*sorted(marks), "Share of the second rail, median over rounds"])


def _convergence(found: Sequence[Found]) -> tuple[Figure, str]:
    """Draw the last rail's share from call to call, with the calls after which its rate was changed."""
    figure, panels = drawing.sheet(len(found))
    for panel, each in zip(panels, found, strict=True):
        of = report.trace(each)
        shares, colour = [100 * share for share in of["shares"]], drawing.colour(of["rail"])
        panel.plot(shares, marker=".", lw=0.8, color=colour)
        for phase in of["phases"]:
            final, begin = 100 * phase["final_share"], phase["from_call"]
            if begin:
                panel.axvline(begin - 0.5, color=drawing.INK, ls="--", lw=1)
            panel.hlines(final, begin, begin + phase["calls"], color=drawing.FAINT, lw=0.8)
        panel.set_ylim(-4, 104)
        panel.set_xlabel(f"allreduce of {size_text(of['bytes'])}, from a cold start")
        panel.set_ylabel(f"share of {of['rail']} (%)")
        panel.set_title(each.case.name)
    return figure, "dashed: where the rate of that rail was changed"
