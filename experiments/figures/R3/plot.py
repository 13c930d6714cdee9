# SPDX-License-Identifier: Apache-2.0
"""Jobs → total goodput, and goodput per job with its least and greatest value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Measured, Runs

KINDS = ("dedicated", "best effort")


def draw(runs: Runs) -> Figure:
    """Draw a curve for each kind of sharing."""
    figure, (total, each) = drawing.sheet(2)
    jobs = sorted({record.configuration["jobs"] for records in runs.kept.values() for record in records})
    for kind in KINDS:
        found = [[run.extra for run in runs.of(f"{kind}, jobs: {number}", kind)] for number in jobs]
        drawing.curve(total, jobs, [Measured.of([one["total_mbps"] for one in of]) for of in found], kind)
        drawing.curve(each, jobs, [_between(of) for of in found], kind)
    total.set_ylabel("goodput of all jobs (Mbit/s)")
    each.set_ylabel("goodput of one job (Mbit/s)")
    for panel in (total, each):
        panel.set_ylim(bottom=0, auto=None)
        drawing.ticks(panel, jobs, "jobs", "linear")
    return figure


def _between(extras: Sequence[Mapping[str, Any]]) -> Measured:
    """Return the mean goodput of a job. The interval is the least and the greatest goodput of a job."""
    one = extras[0]
    return Measured(one["mean_mbps"], one["least_mbps"], one["greatest_mbps"], len(extras))
