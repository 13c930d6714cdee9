# SPDX-License-Identifier: Apache-2.0
"""Racks that aggregate → time of an allreduce, with the limit of the links for each contender."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Measured, Runs

UPGRADED = tuple(range(5))


def draw(runs: Runs) -> Figure:
    """Draw all contenders on the left, and the two fastest on the right."""
    figure, panels = drawing.sheet(2)
    known = [r for r in UPGRADED if _name(r) in runs.kept]
    for panel, others in zip(panels, (("atp", "ps", "hierarchical"), ()), strict=True):
        for who in ("ina", "ring", *others):
            places = [r for r in known if who in runs.contenders(_name(r))]
            if not places:
                continue
            size = runs.sizes(_name(places[0]), who)[0]
            found = [_time_s(runs, r, who, size) for r in places]
            limits = [8 * size / runs.limits_bps(_name(r), who)["ina"] for r in places]
            if len(places) == 1:  # it does not use the switches, so it was run once
                places, found, limits = known, found * len(known), limits * len(known)
            drawing.curve(panel, places, found, who, dotted="limit of the links")
            panel.plot(places, limits, linestyle=":", color=drawing.colour(who), linewidth=1.1)
        drawing.ticks(panel, UPGRADED, "racks that aggregate, of 4", "linear")
        panel.set_ylabel("time of an allreduce (s)")
    panels[1].set_ylim(bottom=0, auto=None)
    drawing.decades(panels[0])
    return figure


def _name(upgraded: int) -> str:
    return f"{upgraded} of 4 racks"


def _time_s(runs: Runs, upgraded: int, who: str, size: int) -> Measured:
    times = [time / 1e6 for time in runs.medians_us(_name(upgraded), who, size).values()]
    return Measured.of(times, cpu_bound=runs.cpu_bound(_name(upgraded), who))
