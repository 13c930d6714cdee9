# SPDX-License-Identifier: Apache-2.0
"""Four pairs of rails, by number of hosts."""

from __future__ import annotations

from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario


def plan(quick: bool) -> list[Scenario]:
    """Return a sweep for each pair and number of hosts."""
    planned = [networks.rails(pair, quick) for pair in networks.PAIRS]
    for hosts in (2, 6) if quick else (2, 3, 6):
        pairs = networks.PAIRS[:1] if quick else networks.PAIRS
        planned += [networks.rails(pair, quick, hosts, alone=False) for pair in pairs]
    return planned
