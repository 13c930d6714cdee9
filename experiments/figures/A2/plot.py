# SPDX-License-Identifier: Apache-2.0
"""Hosts → what all links carried, ring and multicast, with the model."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.figures import drawing
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw both beside each other."""
    figure, (panel,) = drawing.sheet(1)
    extras = [record.extra for records in runs.kept.values() for record in records]
    groups = [name.removeprefix("port bytes, ") for name in runs.kept]
    names = ("ring", "multicast")
    for name in names:
        limits = [extra[f"model_{name}"] for extra in extras]
        drawing.bars(panel, groups, [extra[name] for extra in extras], name, names, limits, dotted="model")
    panel.set_ylabel("shards over all links, per allgather")
    return figure
