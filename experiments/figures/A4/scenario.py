# SPDX-License-Identifier: Apache-2.0
"""Broadcasts and allgathers on links that lose packets, both ways."""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario, Workload

LOSSES = (0.0, 0.001, 0.01, 0.05)
RATE_BPS = 50_000_000


def plan(quick: bool) -> list[Scenario]:
    """Return a scenario per collective and loss."""
    return [
        Scenario(
            name=f"{collective}, {100 * loss:g} % lost",
            contenders=(Contender("ina", "railweave"),),
            workload=Workload(((256 if quick else 1024) * networks.KIB,), collective, iterations=40),
            rails=("ina",),
            rates=(RATE_BPS,),
            impair=f"loss={loss:g}" if loss else "",
            repetitions=2 if quick else 5,
        )
        for collective in ("broadcast", "all_gather")
        for loss in LOSSES
    ]
