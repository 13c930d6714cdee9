# SPDX-License-Identifier: Apache-2.0
"""The kinds of panels that a figure's plot is made of. The figure's file gives their arguments.

A panel draws measures, as claims do. Texts of its measures may have these names: `{x}` is the value across,
`{group}` and `{bar}` are a group of bars and a bar in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from railweave.experiments import measures, statistics
from railweave.experiments.claims import needed
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import drawing, modules
from railweave.experiments.figures.drawing import colour
from railweave.experiments.figures.entries import Filler
from railweave.experiments.measures import Measured, NotMeasured, Runs, measure
from railweave.topologies.values import build

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {name: f"{{{name}}}" for name in ("x", "group", "bar")}
MOST_INSIDE = 4  # names in a legend; more stand above the panel, where it has no title
LEAST_OF_TIMES = 0.1  # a limit is drawn from this part of the least measured time on
DASHES = ("--", "-.")  # of references; dotted lines are limits
LIMIT = "limit of the links"
INTERVAL = "95 % interval of the median over rounds"
HOLLOW = "Hollow marks: the CPU was the bottleneck in a run."
WHISKERS = "Whiskers: up to the 99th percentile of all calls."
Ask = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel of any kind."""

    INCHES: ClassVar[float] = drawing.PANEL_INCHES[1]  # height
    SOURCE: ClassVar[str] = "scenario"  # the field that names what is drawn, if no measure does
    title: str = ""

    def _asked(self) -> Iterator[Ask]:
        yield {"what": "extra", "scenario": getattr(self, self.SOURCE)}

    def draw(self, axes: Axes, runs: Runs) -> set[str]:
        """Draw what is measured. Return the sentences that explain the marks."""
        raise NotImplementedError

    def check(self, where: str) -> None:
        """Raise OptionError for an unknown measure."""
        for ask in self._asked():
            measures.check(ask, where)

    def needed(self) -> set[str]:
        """Return the names of the scenarios and experiments that the panel draws."""
        return {name for ask in self._asked() for name in needed(ask)}


@dataclass(frozen=True, kw_only=True)
class Times(Panel):
    """The time of a call by size, for each contender of a scenario."""

    scenario: str

    def draw(self, axes: Axes, runs: Runs) -> set[str]:
        """Draw each contender's median time by size, a whisker to the 99th percentile, and its limit."""
        at = self.scenario
        calls = {
            who: {size: [us / 1e3 for us in runs.times_us(at, who, size)] for size in runs.sizes(at, who)}
            for who in runs.contenders(at)
        }
        medians = {who: [statistics.median(of) for of in by_size.values()] for who, by_size in calls.items()}
        marks, least = {WHISKERS}, LEAST_OF_TIMES * min(min(each) for each in medians.values())
        for place, (who, by_size) in enumerate(calls.items()):
            sizes, middles = list(by_size), medians[who]
            ends = [statistics.p99(of) for of in by_size.values()]
            tails = [max(0.0, end - middle) for end, middle in zip(ends, middles, strict=True)]
            hollow = bool(runs.cpu_bound(at, who))
            marks |= {HOLLOW} if hollow else set()
            axes.errorbar(
                sizes, middles, yerr=[[0.0] * len(sizes), tails], label=who, color=colour(who), capsize=2,
                elinewidth=0.8, marker=drawing.MARKERS[place], markersize=4.5, linewidth=1.4,
                markerfacecolor="none" if hollow else colour(who),
            )  # fmt: skip
            limit_bps = sum(runs.limits_bps(at, who).values())
            limits = [(size, Measured.of([size * 8e3 / limit_bps])) for size in sizes if limit_bps]
            _dotted(axes, [each for each in limits if each[1].value >= least], LIMIT, colour(who))
        drawing.decades(axes)
        axes.set_ylabel("time of a call (ms)")
        drawing.size_axis(axes, [size for by_size in calls.values() for size in by_size])
        legend(axes, LIMIT)
        return marks


@dataclass(frozen=True)
class Curve:
    """A measure by the value across, or given values."""

    name: str
    measure: Ask = field(default_factory=dict)
    values: tuple[float, ...] = ()  # in place of a measure: a dotted curve
    x: tuple[Any, ...] = ()  # the panel's by default
    dotted: bool = False  # a reference


@dataclass(frozen=True)
class Level:
    """A constant reference: a dashed line, named in the legend."""

    name: str
    value: float = 0.0
    measure: Ask = field(default_factory=dict)  # in place of a value


@dataclass(frozen=True, kw_only=True)
class Curves(Panel):
    """Measures by the sizes of calls, or by given values across."""

    y: str  # label
    curves: tuple[Curve, ...]
    x: tuple[Any, ...] = ()  # default: the sizes of the calls
    x_label: str = ""
    x_scale: str = "log"
    y_scale: str = "linear"
    zero: bool = True  # a linear axis begins at 0
    limit: str = ""  # the name of each measure's limit, which is a dotted curve then
    band: str = INTERVAL
    levels: tuple[Level, ...] = ()

    def _asked(self) -> Iterator[Ask]:
        for curve in self.curves:
            if curve.measure:
                yield from (_filled(curve.measure, x=x) for x in curve.x or self.x or [0])
        yield from (level.measure for level in self.levels if level.measure)

    def draw(self, axes: Axes, runs: Runs) -> set[str]:
        """Draw the curves with intervals; a dotted curve for a limit or a reference."""
        if self.y_scale == "log":
            drawing.decades(axes)
        marks, across = set(), set()
        for curve in self.curves:
            points = self._points(curve, runs)
            if curve.dotted or curve.values:
                _dotted(axes, points, curve.name)
                continue
            across |= {x for x, _ in points}
            marks |= _banded(axes, points, curve.name, self.band)
            if self.limit:
                _dotted(axes, self._points(curve, runs, limit=True), self.limit, colour(curve.name))
        _levels(axes, self.levels, runs)
        if self.x:
            drawing.ticks(axes, sorted(across), self.x_label, self.x_scale)
        else:
            drawing.size_axis(axes, across)
        if self.y_scale == "linear" and self.zero:
            drawing.from_zero(axes)
        axes.set_ylabel(self.y)
        legend(axes, self.limit)
        return marks

    def _points(self, curve: Curve, runs: Runs, *, limit: bool = False) -> list[tuple[Any, Measured]]:
        across = curve.x or self.x
        if curve.values:
            return [(x, Measured.of([value])) for x, value in zip(across, curve.values, strict=False)]
        ask = {**curve.measure, "limit": True} if limit else curve.measure
        if across:
            return _points(runs, ask, across)
        try:
            sizes = runs.sizes(ask["scenario"], ask["of"])
        except NotMeasured:
            return []
        return [point for size in sizes for point in _points(runs, {**ask, "from": size, "to": size}, [size])]


@dataclass(frozen=True, kw_only=True)
class Bars(Panel):
    """A measure by group and bar, as numbers above bars."""

    y: str  # label
    groups: tuple[str, ...]
    bars: tuple[str, ...]
    measure: Ask
    x_label: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)  # of groups, in place of their names
    limit: str = ""  # the name of the bars' limits, which are dotted then
    limit_measure: Ask = field(default_factory=dict)  # default: the limit of `measure`
    levels: tuple[Level, ...] = ()

    def _asked(self) -> Iterator[Ask]:
        for group, bar in product(self.groups, self.bars):
            yield _filled(self.measure, group=group, bar=bar)

    def draw(self, axes: Axes, runs: Runs) -> set[str]:
        """Draw all bars that are measured, side by side in groups."""
        limit = self.limit_measure or {**self.measure, "limit": True}
        every = product(self.groups, self.bars)
        found = {(g, b): _measured(runs, _filled(self.measure, group=g, bar=b)) for g, b in every}
        groups = [group for group in self.groups if any(found[group, bar] for bar in self.bars)]
        names = [bar for bar in self.bars if any(found[group, bar] for group in groups)]
        width = 0.8 / max(len(names), 1)
        for place, bar in enumerate(names):
            middles = [at - 0.4 + width * (place + 0.5) for at in range(len(groups))]
            values = [_value(found[group, bar]) for group in groups]
            made = axes.bar(middles, values, width * 0.92, color=colour(bar), label=bar)
            size = 7 if len(groups) * len(names) <= 12 else 5
            axes.bar_label(made, [_number(value) for value in values], fontsize=size, padding=1)
            if self.limit:
                tops = [_value(_measured(runs, _filled(limit, group=group, bar=bar))) for group in groups]
                ends = [middle - width / 2 for middle in middles], [middle + width / 2 for middle in middles]
                axes.hlines(tops, *ends, drawing.INK, ":", linewidth=1.2, label=self.limit)
        axes.set_xticks(range(len(groups)), [self.labels.get(group, group) for group in groups])
        axes.set_ylim(0, 1.2 * axes.get_ylim()[1], auto=None)  # room for the legend
        axes.grid(visible=False, axis="x")
        _levels(axes, self.levels, runs)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y)
        legend(axes, self.limit, "upper center")
        return set()


@dataclass(frozen=True, kw_only=True)
class Timeline(Panel):
    """The throughput of each rail around a fault, as an experiment recorded it."""

    INCHES = 2.2
    SOURCE = "experiment"
    experiment: str

    def draw(self, axes: Axes, runs: Runs) -> set[str]:
        """Draw the first trial that has a curve."""
        curves = [record.extra["curve"] for record in runs.kept[self.experiment] if record.extra.get("curve")]
        if curves:
            timeline(axes, curves[0])
        return set()


@dataclass(frozen=True, kw_only=True)
class Own(Panel):
    """A panel that a module of your own draws: its function `draw(axes, runs)`."""

    run: str  # the module
    scenario: str = "*"  # pattern of the scenarios and experiments that it needs
    folder: str = ""  # of the module

    def check(self, where: str) -> None:
        """Raise OptionError if the module or its function is missing."""
        modules.load(self.run, Path(self.folder), "draw")

    def draw(self, axes: Axes, runs: Runs) -> set[str]:
        """Let the module draw."""
        modules.load(self.run, Path(self.folder), "draw")(axes, runs)
        return set()


KINDS: dict[str, tuple[str, type[Panel]]] = {  # each with a key that the kinds above lack
    "times": ("scenario", Times),
    "curves": ("curves", Curves),
    "bars": ("bars", Bars),
    "timeline": ("experiment", Timeline),
    "own": ("run", Own),
}


def panel(values: Mapping[str, Any], folder: Path, where: str) -> Panel:
    """Return a panel from its entry in a figure's file. Raise OptionError or TopologyError for a mistake."""
    arguments = dict(values)
    told = (name for name, (key, _) in reversed(KINDS.items()) if key in values)
    kind = arguments.pop("kind", next(told, None))
    if kind not in KINDS:
        raise OptionError(f"{where}: kind {kind!r}", f"one of {', '.join(KINDS)}", "correct the kind")
    more = {"folder": str(folder)} if kind == "own" else {}
    made = build(KINDS[kind][1], arguments | more, where)
    made.check(where)
    return made


def draw(panels: Sequence[Panel], runs: Runs, columns: int) -> Figure:
    """Draw the panels of which something was run. Raise NotMeasured if all lack runs."""
    shown = [panel for panel in panels if _has_runs(panel, runs)]
    if not shown:
        raise NotMeasured("no run is complete")
    columns = min(columns, len(shown))
    figure, places = drawing.sheet(columns, -(-len(shown) // columns), max(each.INCHES for each in shown))
    marks: set[str] = set()
    for axes, each in zip(places, shown, strict=False):
        axes.set_title(each.title)
        marks |= each.draw(axes, runs)
    for axes in places[len(shown) :]:
        axes.set_axis_off()
    drawing.note(figure, " ".join(sorted(marks)))
    return figure


def _has_runs(panel: Panel, runs: Runs) -> bool:
    wanted = panel.needed() or {"*"}
    return any(fnmatch(name, pattern) for name in runs.kept for pattern in wanted)


def timeline(axes: Axes, curve: Mapping[str, Any]) -> None:
    """Draw the rails' throughput around a fault, from the JSON values of a curve."""
    axes.axvspan(0, curve["repaired_s"], color=drawing.RED, alpha=0.13, linewidth=0, label="fault")
    for rail, rates in curve["bps"].items():
        middles = [curve["begin_s"] + (place + 0.5) * curve["bin_s"] for place in range(len(rates))]
        axes.plot(middles, [rate / 1e6 for rate in rates], color=colour(rail), linewidth=1.3, label=rail)
    axes.margins(x=0)
    axes.set_xlabel("s after the fault")
    axes.set_ylabel("Mbit/s of tensor")
    drawing.from_zero(axes)
    legend(axes)


def _banded(axes: Axes, points: Sequence[tuple[float, Measured]], name: str, band: str) -> set[str]:
    """Draw values with their intervals. Return the sentences that explain the marks."""
    if not points:
        return set()
    across, found = zip(*points, strict=True)
    axes.fill_between(
        across, [one.low for one in found], [one.high for one in found],
        color=colour(name), alpha=0.2, linewidth=0,
    )  # fmt: skip
    hollow = any(one.cpu_bound for one in found)
    axes.plot(
        across, [one.value for one in found], color=colour(name), marker="o", markersize=4.5,
        markerfacecolor="none" if hollow else colour(name), label=name, linewidth=1.4,
    )  # fmt: skip
    marks = {f"Bands: {band}."} if any(one.low < one.high for one in found) else set()
    return marks | ({HOLLOW} if hollow else set())


def _levels(axes: Axes, levels: Iterable[Level], runs: Runs) -> None:
    """Draw references as dashed lines, whose names are in the legend."""
    for level, dashes in zip(levels, cycle(DASHES)):
        found = _measured(runs, level.measure) if level.measure else Measured.of([level.value])
        if found:
            axes.axhline(found.value, linestyle=dashes, color=drawing.INK, linewidth=1.1, label=level.name)


def _dotted(
    axes: Axes, points: Sequence[tuple[float, Measured]], name: str, shade: str = drawing.INK
) -> None:
    """Draw a limit or a reference."""
    if points:
        across, found = zip(*points, strict=True)
        values, marker = [one.value for one in found], "_" if len(found) == 1 else ""
        axes.plot(across, values, ":", marker=marker, ms=12, color=shade, linewidth=1.1, label=name)


def legend(axes: Axes, limit: str = "", place: Literal["best", "upper center"] = "best") -> None:
    """Show the names of the curves, and last that of the limits, which have the colours of their curves."""
    from matplotlib.lines import Line2D  # noqa: PLC0415

    handles, labels = axes.get_legend_handles_labels()
    shown = {label: handle for label, handle in zip(labels, handles, strict=True) if label != limit}
    if limit in labels:
        shown[limit] = Line2D([], [], linestyle=":", color=drawing.FAINT)
    if len(shown) > MOST_INSIDE and not axes.get_title():
        axes.legend(shown.values(), shown, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    elif shown:
        axes.legend(shown.values(), shown, loc=place, ncols=1 if place == "best" else MOST_INSIDE)


def _filled(ask: Ask, **names: Any) -> Ask:
    filled: Ask = Filler(names={**NAMES, **names}).fill(ask)
    return filled


def _points(runs: Runs, ask: Ask, across: Iterable[Any]) -> list[tuple[Any, Measured]]:
    found = ((x, _measured(runs, _filled(ask, x=x))) for x in across)
    return [(x, one) for x, one in found if one is not None]


def _measured(runs: Runs, ask: Ask) -> Measured | None:
    try:
        return measure(runs, ask)
    except NotMeasured:
        return None


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _value(found: Measured | None) -> float:
    return found.value if found else math.nan
