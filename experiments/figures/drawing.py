# SPDX-License-Identifier: Apache-2.0
"""The style of all figures: colours that colour-blind readers can distinguish, and limits as dotted lines.

In SVG files, text stays text. Separate files have colours for white paper. In the report, colours are CSS
variables, which have one value for a light page and one for a dark page.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from railweave.experiments import statistics
from railweave.experiments.measures import Measured, NotMeasured, Runs, size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_INCHES = (4.3, 3.1)
CHARACTERS_PER_INCH = 15  # in a note
INK, FAINT = "#1b1b1f", "#8a8a92"
# Okabe and Ito's palette; a kind of rail keeps its colour in all figures.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7a7a7a",
)  # fmt: skip
DARK = {  # on a dark page
    INK: "#e8e8ea", FAINT: "#8d8d96", BLUE: "#4aa3df", ORANGE: "#f0b429", GREEN: "#2fc79a",
    RED: "#f2803a", PURPLE: "#e39ac4", SKY: "#8fd0f5", GREY: "#a9a9b0",
}  # fmt: skip
COLOURS = {
    "ina": BLUE, "tcp": ORANGE, "rdma": GREEN, "gloo": PURPLE, "mptcp": SKY, "openmpi": GREY, "ring": ORANGE,
    "2 hosts": SKY, "3 hosts": GREEN, "4 hosts": BLUE, "6 hosts": RED, "tcp+tcp": BLUE,
    "netreduce": PURPLE, "hosts": BLUE, "switches": ORANGE, "multicast": BLUE,
    "broadcast": BLUE, "allgather": GREEN, "measured": BLUE, "simulated": ORANGE, "predicted": ORANGE,
    "atp": RED, "ps": PURPLE, "hierarchical": GREEN, "dedicated": BLUE, "best effort": RED,
}  # fmt: skip
MOST_INSIDE = 4  # names in a legend; more stand above the panel, where it has no title
MARKERS = "osD^vP*X"
LINES = ("-", "--", ":", "-.")
STYLE: Any = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType: publishers reject type 3
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # every text of a SVG repeats the list
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def sheet(columns: int, rows: int = 1, height: float = PANEL_INCHES[1]) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, row by row. matplotlib's settings are this module's from here on."""
    import matplotlib  # noqa: PLC0415 - a second to import
    from matplotlib.figure import Figure as Drawing  # noqa: PLC0415

    matplotlib.rcParams.update(STYLE)
    figure = Drawing((PANEL_INCHES[0] * columns, height * max(rows, 1)), layout="constrained")
    return figure, list(figure.subplots(max(rows, 1), columns, squeeze=False).flat)


def save(figure: Figure, note: str, path: Path) -> None:
    """Write a figure with a note below: PNG, SVG or PDF, by the file's suffix."""
    per_line = round(figure.get_figwidth() * CHARACTERS_PER_INCH)
    figure.supxlabel(textwrap.fill(note, per_line), fontsize=8, color=FAINT)
    figure.savefig(path, dpi=150, facecolor="white")


def svg(figure: Figure, name: str) -> str:
    """Return the figure as SVG for paper; the same figure gives the same text."""
    import matplotlib  # noqa: PLC0415

    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    found = text.getvalue()
    found = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", found[found.index("<svg") :], flags=re.DOTALL)
    found = re.sub(r"<[^>]+>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), found)  # 1/100 pt is enough
    return re.sub(r"\s*\n\s*", "\n", found)


def pdf(figure: Figure) -> bytes:
    """Return the figure as PDF for a paper; the same figure gives the same bytes."""
    data = io.BytesIO()
    figure.savefig(data, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return data.getvalue()


def standalone(drawn: str) -> str:
    """Return a smaller SVG on white, for an image on a web page. Styles become classes."""
    styles = list(dict.fromkeys(re.findall(r' style="([^"]*)"', drawn)))
    rules = "".join(f".s{number}{{{style}}}" for number, style in enumerate(styles))
    drawn = re.sub(r' style="([^"]*)"', lambda found: f' class="s{styles.index(found[1])}"', drawn)
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)
    drawn = drawn.replace("</style>", f"{rules}</style>", 1)
    return re.sub(r"(<svg[^>]*>)", r'\1\n<rect width="100%" height="100%" fill="#ffffff"/>', drawn, count=1)


def themed(drawn: str) -> str:
    """Return an SVG whose colours are the page's variables, in place of those for paper."""
    for colour in DARK:
        drawn = drawn.replace(colour, f"var({variable(colour)})")
    return drawn


def variable(colour: str) -> str:
    """Return the name of a colour's CSS variable."""
    return f"--c{colour[1:]}"


def colour(name: str) -> str:
    """Return the colour of a contender: a rail has that of its kind, rails together have their own."""
    return COLOURS.get(name) or COLOURS.get(name.rstrip("0123456789")) or RED


# ------------------------------------------------------------ curves against size


def times(panel: Axes, runs: Runs, scenario: str) -> None:
    """Draw each contender's median time, a bar to the 99th percentile, its limit; hollow: CPU-bound."""
    least = math.inf
    for place, who in enumerate(_contenders(runs, scenario)):
        sizes = runs.sizes(scenario, who)
        calls = [[time / 1e3 for time in runs.times_us(scenario, who, size)] for size in sizes]
        medians = [statistics.median(each) for each in calls]
        least = min(least, *medians)
        tails = [max(0.0, statistics.p99(each) - middle) for each, middle in zip(calls, medians, strict=True)]
        face = "none" if runs.cpu_bound(scenario, who) else colour(who)
        panel.errorbar(
            sizes, medians, yerr=[[0.0] * len(sizes), tails], label=who, color=colour(who), capsize=2,
            elinewidth=0.8, marker=MARKERS[place], markersize=4.5, markerfacecolor=face, linewidth=1.4,
        )  # fmt: skip
        limit_bps = sum(runs.limits_bps(scenario, who).values())
        if limit_bps:
            panel.plot(sizes, [size * 8e3 / limit_bps for size in sizes], ":", color=colour(who), linewidth=1)
    decades(panel)
    panel.set_ylim(bottom=0.6 * least, auto=None)
    panel.set_ylabel("time of a call (ms)")
    _size_axis(panel, [size for who in runs.contenders(scenario) for size in runs.sizes(scenario, who)])
    _legend(panel, "limit of the links")


def throughput(panel: Axes, runs: Runs, scenario: str) -> None:
    """Draw each contender's throughput in Mbit/s of tensor, and its limit; hollow: CPU-bound."""
    for place, who in enumerate(_contenders(runs, scenario)):
        sizes = runs.sizes(scenario, who)
        rates = [size * 8 / statistics.median(runs.times_us(scenario, who, size)) for size in sizes]
        face = "none" if runs.cpu_bound(scenario, who) else colour(who)
        panel.plot(
            sizes, rates, label=who, color=colour(who), marker=MARKERS[place], markersize=4.5,
            markerfacecolor=face, linewidth=1.4,
        )  # fmt: skip
        limit_bps = sum(runs.limits_bps(scenario, who).values())
        if limit_bps:
            panel.axhline(limit_bps / 1e6, linestyle=":", color=colour(who), linewidth=1)
    panel.set_ylim(bottom=0, auto=None)
    panel.set_ylabel("throughput (Mbit/s of tensor)")
    _size_axis(panel, sizes)
    _legend(panel, "limit of the links")


def ratios(panel: Axes, runs: Runs, scenario: str, of: str, over: Sequence[str]) -> None:
    """Draw how many times faster `of` is than the fastest of `over`, with the interval over rounds."""
    try:
        sizes = runs.sizes(scenario, of)
        found = [Measured.of(runs.ratios(scenario, of, over, size)) for size in sizes]
    except NotMeasured:
        return
    panel.fill_between(
        sizes, [one.low for one in found], [one.high for one in found],
        color=colour(of), alpha=0.22, linewidth=0,
    )  # fmt: skip
    hollow = "none" if runs.cpu_bound(scenario, of, *over) else colour(of)
    panel.plot(
        sizes, [one.value for one in found], color=colour(of), marker="o", markersize=4.5,
        markerfacecolor=hollow, label=of, linewidth=1.4,
    )  # fmt: skip
    if panel.get_yscale() == "linear":
        panel.set_ylim(bottom=0, auto=None)
    _size_axis(panel, sizes)
    _legend(panel)


def shares(panel: Axes, runs: Runs, scenario: str, contender: str, rail: str, label: str) -> None:
    """Draw a rail's share in % with its interval over rounds. Dotted: the share by the links' ratio."""
    sizes = [size for size in runs.sizes(scenario, contender) if runs.shares(scenario, contender, size, rail)]
    found = [Measured.of(runs.shares(scenario, contender, size, rail)) for size in sizes]
    panel.fill_between(
        sizes, [100 * one.low for one in found], [100 * one.high for one in found],
        color=colour(label), alpha=0.18, linewidth=0,
    )  # fmt: skip
    panel.plot(
        sizes, [100 * one.value for one in found], color=colour(label), marker="o", markersize=4,
        label=label, linewidth=1.4,
    )  # fmt: skip
    limits = runs.limits_bps(scenario, contender)
    panel.axhline(100 * limits[rail] / sum(limits.values()), linestyle=":", color=colour(label), linewidth=1)
    panel.set_ylim(-4, 104)
    _size_axis(panel, sizes)
    _legend(panel, "ratio of the links")


# ------------------------------------------------------------ other curves and marks


def curve(
    panel: Axes, across: Sequence[float], found: Sequence[Measured], name: str, dotted: str = ""
) -> None:
    """Draw values with their intervals; hollow: CPU-bound. `dotted` names the panel's dotted lines."""
    panel.fill_between(
        across, [one.low for one in found], [one.high for one in found],
        color=colour(name), alpha=0.22, linewidth=0,
    )  # fmt: skip
    hollow = "none" if any(one.cpu_bound for one in found) else colour(name)
    panel.plot(
        across, [one.value for one in found], color=colour(name), marker="o", markersize=4.5,
        markerfacecolor=hollow, label=name, linewidth=1.4,
    )  # fmt: skip
    _legend(panel, dotted)


def ticks(panel: Axes, values: Sequence[float], label: str, scale: str = "log") -> None:
    """Show exactly these values on the axis across."""
    panel.set_xscale(scale)
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.set_xticks([], minor=True)
    panel.set_xlabel(label)


def level(panel: Axes, value: float, text: str) -> None:
    """Draw a limit or a reference as a dotted line with its name."""
    panel.axhline(value, linestyle=":", color=INK, linewidth=1.1)
    if panel.get_yscale() == "linear":
        panel.set_ylim(top=max(panel.get_ylim()[1], 1.08 * value), auto=None)  # room for the text
    panel.annotate(
        text,
        (0.01, value),
        (0, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        fontsize=8,
    )


def line(panel: Axes, across: Sequence[float], up: Sequence[float], name: str) -> None:
    """Draw a plain curve against time; rails of one kind have one colour, and lines of their own."""
    number = int(name[len(name.rstrip("0123456789")) :] or 0)
    style = LINES[number % len(LINES)]
    panel.plot(across, up, style, color=colour(name), linewidth=1.3, label=name)
    panel.set_ylim(bottom=0, auto=None)
    panel.margins(x=0)
    _legend(panel)


def span(panel: Axes, begin: float, end: float, text: str) -> None:
    """Shade a stretch of time."""
    panel.axvspan(begin, end, color=RED, alpha=0.13, linewidth=0, label=text)


def bars(
    panel: Axes,
    groups: Sequence[str],
    values: Sequence[float],
    name: str,
    names: Sequence[str],
    limits: Sequence[float] = (),
    numbers: Sequence[float] = (),
    dotted: str = "limit of the links",
) -> None:
    """Draw a bar per group for `name`, beside those of other `names`; dotted: its limit; above: a number."""
    width, place = 0.8 / len(names), list(names).index(name)
    middles = [at - 0.4 + width * (place + 0.5) for at in range(len(groups))]
    drawn = panel.bar(middles, values, width * 0.92, color=colour(name), label=name)
    for middle, limit in zip(middles, limits, strict=False):
        panel.hlines(limit, middle - width / 2, middle + width / 2, colors=INK, linestyles=":", linewidth=1.2)
    texts = [f"{number:,.{2 if number < 10 else 1 if number < 100 else 0}f}" for number in numbers or values]
    panel.bar_label(drawn, texts, fontsize=7 if len(groups) * len(names) <= 12 else 5, color=INK, padding=1)
    panel.set_ylim(0, 1.2 * panel.get_ylim()[1], auto=None)  # room for the legend
    panel.set_xticks(range(len(groups)), groups)
    panel.grid(visible=False, axis="x")
    _legend(panel, dotted if limits else "", "upper center")


def _contenders(runs: Runs, scenario: str) -> list[str]:
    try:
        return runs.contenders(scenario)
    except KeyError:
        raise NotMeasured(f"no run of {scenario} is complete") from None


def _size_axis(panel: Axes, sizes: Iterable[int]) -> None:
    ticks = sorted(set(sizes))
    panel.set_xscale("log", base=2)
    panel.set_xticks(ticks[:: -(-len(ticks) // 6)], minor=False)
    panel.set_xticks([], minor=True)
    panel.xaxis.set_major_formatter(lambda value, _: size_text(value))
    panel.set_xlabel("size of the allreduce")


def decades(panel: Axes) -> None:
    """Make the axis up a logarithmic one."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter  # noqa: PLC0415

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # gains seldom span a decade
    panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _legend(panel: Axes, dotted: str = "", place: Literal["best", "upper center"] = "best") -> None:
    """Show the names of the curves and the meaning of dotted lines."""
    from matplotlib.lines import Line2D  # noqa: PLC0415

    handles, labels = panel.get_legend_handles_labels()
    if dotted:
        handles.append(Line2D([], [], linestyle=":", color=FAINT))
        labels.append(dotted)
    if len(handles) > MOST_INSIDE and not panel.get_title():
        panel.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    else:
        panel.legend(handles, labels, loc=place, ncols=1 if place == "best" else MOST_INSIDE)
