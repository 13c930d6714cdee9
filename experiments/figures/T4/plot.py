# SPDX-License-Identifier: Apache-2.0
"""Model → time of a step, added by the switch and in a ring."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments import statistics
from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs

CONTENDERS = ("ring", "netreduce")


def draw(runs: Runs) -> Figure:
    """Draw bars."""
    figure, (panel,) = drawing.sheet(1)
    known = list(runs.kept)
    steps = {
        who: [statistics.median(list(runs.step_us(name, who).values())) / 1e6 for name in known]
        for who in CONTENDERS
    }
    for who, times in steps.items():
        limits = [
            runs.scenarios[name].workload.compute_s
            + 8 * sum(runs.scenarios[name].workload.messages) / sum(runs.limits_bps(name, who).values())
            for name in known
        ]
        drawing.bars(panel, known, times, who, CONTENDERS, limits)
    panel.set_ylabel("time of a step (s)")
    return figure
