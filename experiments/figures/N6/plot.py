# SPDX-License-Identifier: Apache-2.0
"""Time → throughput of each rail around a fault, a panel per fault and failing rail."""

from __future__ import annotations

from matplotlib.figure import Figure

from railweave.experiments.failover import plot
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw the first trial of each."""
    return plot.draw(
        {
            name: curve
            for name, records in runs.kept.items()
            for record in records
            if (curve := record.extra.get("curve"))
        }
    )
