# SPDX-License-Identifier: Apache-2.0
"""The figures: time and share against size, and share from call to call while a split is learnt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railweave.experiments.measures import size_text
from railweave.experiments.striping import report
from railweave.experiments.striping.run import Found
from railweave.experiments.timeline import colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_INCHES = (4.4, 3.4)
NOTE = "emulated hosts and links on one machine"


def draw(found: Sequence[Found], path: Path) -> list[Path]:
    """Write one file per part of the experiment, named as `path` with the part; PNG, SVG or PDF."""
    written = []
    for part, panels in (("sizes", _sizes), ("thresholds", _thresholds), ("convergence", _convergence)):
        of_part = [each for each in found if each.case.part == part]
        if of_part:
            written.append(path.with_name(f"{path.stem}-{part}{path.suffix}"))
            panels(of_part).savefig(written[-1], dpi=150)
    return written


def _figure(columns: int, note: str) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - a second to import

    width, height = PANEL_INCHES
    figure = Figure((width * columns, height + 0.3), layout="constrained")
    figure.supxlabel(note, fontsize=8, color="0.4")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def _size_axis(panel: Axes, sizes: Sequence[int]) -> None:
    panel.set_xscale("log", base=2)
    panel.set_xticks(sizes[:: -(-len(sizes) // 5)])
    panel.xaxis.set_major_formatter(lambda value, _: size_text(value))
    panel.set_xlabel("size of the allreduce")
    panel.grid(alpha=0.3)


def _sizes(found: Sequence[Found]) -> Figure:
    """Draw the time of each rail alone and of all together, relative to the best rail alone."""
    runs = len(found[0].seconds(found[0].together, found[0].sizes[0]))
    figure, panels = _figure(len(found), f"median of {runs} runs per size after warm-up; {NOTE}")
    for panel, each in zip(panels, found, strict=True):
        rows = report.sweep(each)["rows"]
        sizes = [row["bytes"] for row in rows]
        for rail in each.case.rails:
            alone = [row["alone_us"][rail] / 1e3 for row in rows]
            panel.plot(sizes, alone, marker=".", color=colour(rail), label=f"{rail} alone")
        panel.plot(sizes, [row["time_us"] / 1e3 for row in rows], marker="o", color="black", label="striped")
        for row in rows[-1:]:
            panel.annotate(
                f"x {row['speedup']:.2f}", (row["bytes"], row["time_us"] / 1e3), (-8, -20),
                textcoords="offset points", ha="right",
            )  # fmt: skip
        panel.set_yscale("log")
        panel.set_ylabel("time (ms)")
        panel.set_title(each.case.name, fontsize=10)
        _size_axis(panel, sizes)
        panel.legend(frameon=False, fontsize=8)
    return figure


def _thresholds(found: Sequence[Found]) -> Figure:
    """Draw the second rail's share against size: a panel per pair of rails, a line per number of hosts."""
    pairs = list(dict.fromkeys(each.case.kinds for each in found))
    note = f"share of the second rail, median over runs; dotted: ratio of bandwidths; {NOTE}"
    figure, panels = _figure(len(pairs), note)
    for panel, pair in zip(panels, pairs, strict=True):
        for each in (each for each in found if each.case.kinds == pair):
            of: dict[str, Any] = report.sweep(each)
            second = each.case.rails[1]
            sizes = [row["bytes"] for row in of["rows"]]
            shares = [100 * row["shares"][second] for row in of["rows"]]
            (line,) = panel.plot(sizes, shares, marker="o", markersize=4, label=f"{each.case.hosts} hosts")
            panel.axhline(100 * of["bandwidth_shares"][second], color=line.get_color(), ls=":", lw=1)
        panel.set_ylim(-4, 104)
        panel.set_ylabel(f"share of {pair[1]} (%)")
        panel.set_title("+".join(pair), fontsize=10)
        _size_axis(panel, sizes)
        panel.legend(frameon=False, fontsize=8)
    return figure


def _convergence(found: Sequence[Found]) -> Figure:
    """Draw the last rail's share from call to call, with the calls after which its rate was changed."""
    figure, panels = _figure(len(found), f"dashed: where the rate of that rail was changed; {NOTE}")
    for panel, each in zip(panels, found, strict=True):
        of = report.trace(each)
        panel.plot([100 * share for share in of["shares"]], marker=".", lw=0.8, color=colour(of["rail"]))
        for phase in of["phases"]:
            final, begin = 100 * phase["final_share"], phase["from_call"]
            if begin:
                panel.axvline(begin - 0.5, color="0.4", ls="--", lw=1)
            panel.hlines(final, begin, begin + phase["calls"], color="0.6", lw=0.8)
        panel.set_ylim(-4, 104)
        panel.set_xlabel(f"allreduce of {size_text(of['bytes'])}, from a cold start")
        panel.set_ylabel(f"share of {of['rail']} (%)")
        panel.set_title(each.case.name, fontsize=10)
        panel.grid(alpha=0.3)
    return figure
