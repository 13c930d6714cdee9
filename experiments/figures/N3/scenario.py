# SPDX-License-Identifier: Apache-2.0
"""Rails of different kinds and rates, and each alone."""

from __future__ import annotations

from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario

SLOW_BPS = 30_000_000


def plan(quick: bool) -> list[Scenario]:
    """Return a sweep for each combination."""
    planned = [networks.rails(pair, quick) for pair in networks.PAIRS[:3]]
    if not quick:
        planned.append(networks.rails(("tcp", "tcp"), quick, rates=(networks.RATE_BPS, SLOW_BPS)))
        planned.append(networks.rails(("ina", "tcp", "rdma"), quick))
    return planned
