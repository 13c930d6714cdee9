# SPDX-License-Identifier: Apache-2.0
"""Loss → part of the tensor that was fetched, and slowdown of calls."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs, counted, slowdown

LOSSES = (0.1, 1.0, 5.0)  # %
FETCHED = {"what": "counted", "of": "ina", "rail": "ina", "field": "fetched_bytes", "per": "payload_bytes"}


def draw(runs: Runs) -> Figure:
    """Draw both."""
    figure, (fetched, times) = drawing.sheet(2)
    for collective in ("broadcast", "all_gather"):
        names = [f"{collective}, {loss:g} % lost" for loss in (0, *LOSSES)]
        label = collective.replace("_", "")
        drawing.curve(
            fetched,
            LOSSES,
            [counted(runs, {**FETCHED, "scenario": name, "scale": 400 / 3}) for name in names[1:]],
            label,
            dotted="lost on two links",
        )
        slower = [slowdown(runs, {"scenarios": [names[0], name], "of": "ina"}) for name in names[1:]]
        drawing.curve(times, LOSSES, slower, label)
    fetched.plot(LOSSES, [100 - (100 - loss) ** 2 / 100 for loss in LOSSES], ":", color=drawing.INK)
    fetched.set_ylabel("part that was fetched (%)")
    drawing.decades(fetched)
    times.set_ylim(bottom=0, auto=None)
    times.set_ylabel("time / time without loss")
    for panel in (fetched, times):
        drawing.ticks(panel, LOSSES, "lost on every link, each way (%)")
    return figure
