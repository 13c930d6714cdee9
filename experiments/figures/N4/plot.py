# SPDX-License-Identifier: Apache-2.0
"""Size → throughput, and size → gain over MPTCP."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs

SCENARIO = "8 hosts, 50 Mbit/s"


def draw(runs: Runs) -> Figure:
    """Draw both."""
    figure, (throughput, gain) = drawing.sheet(2)
    drawing.throughput(throughput, runs, SCENARIO)
    drawing.decades(gain)
    for contender in ("tcp+tcp", "ina+tcp"):
        drawing.ratios(gain, runs, SCENARIO, contender, ["mptcp"])
    drawing.level(gain, 1.0, "MPTCP")
    gain.set_ylabel("times as fast as MPTCP")
    return figure
