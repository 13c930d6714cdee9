# SPDX-License-Identifier: Apache-2.0
"""Racks that aggregate → time, in the lab and simulated; a panel per number of hosts."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw bars."""
    figure, panels = drawing.sheet(len(runs.kept))
    for panel, (name, (record, *_)) in zip(panels, runs.kept.items(), strict=True):
        extra = record.extra
        if "measured_s" in extra:
            names = ("measured", "simulated")
            for each in names:
                times = extra[f"{each}_s"]
                drawing.bars(panel, list(times), list(times.values()), each, names)
            panel.set_ylabel("time of an allreduce (s)")
        else:
            groups = [*extra["model_s"], "hierarchical", "tree"]
            limits = [1e3 * extra["model_s"].get(group, 0) for group in groups]
            times = [1e3 * extra["seconds"][group] for group in groups]
            drawing.bars(panel, groups, times, "simulated", ("simulated",), limits, dotted="model")
            panel.set_xticks(
                range(len(groups)), ["H-AR" if group == "hierarchical" else group for group in groups]
            )
            panel.set_ylabel("time of an allreduce (ms)")
        panel.set_title(name)
        panel.set_xlabel("racks that aggregate")
    return figure
