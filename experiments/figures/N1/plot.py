# SPDX-License-Identifier: Apache-2.0
"""Size → time of a call, and size → gain."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs

SCENARIO = "tcp+tcp, 4 hosts, 100 Mbit/s"


def draw(runs: Runs) -> Figure:
    """Draw both."""
    figure, (times, gain) = drawing.sheet(2)
    drawing.times(times, runs, SCENARIO)
    drawing.ratios(gain, runs, SCENARIO, "tcp+tcp", ["tcp0"])
    drawing.level(gain, 2.0, "two links carry twice as much")
    gain.set_ylabel("times as fast as one rail")
    return figure
