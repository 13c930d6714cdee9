# SPDX-License-Identifier: Apache-2.0
"""Allgathers in which 1, 2, 4 or all 8 ranks multicast at once."""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario, Workload

ROOTS = (1, 2, 4, 8)


def plan(quick: bool) -> list[Scenario]:
    """Return one network."""
    return [
        Scenario(
            name="all_gather, 8 hosts",
            contenders=tuple(Contender(f"M = {m}", "railweave", ("ina",), {"roots": m}) for m in ROOTS),
            workload=Workload((1024 * networks.KIB,), "all_gather", iterations=10 if quick else 20),
            hosts=8,
            rails=("ina",),
            rates=(networks.RATE_8_HOSTS_BPS,),
            repetitions=2 if quick else 5,
        )
    ]
