# SPDX-License-Identifier: Apache-2.0
"""Compare the in-network rail with the RDMA rail, with 1 % packet loss and without loss."""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.scenario import Scenario, Workload

LOSSES = (0.0, 0.01)


def plan(quick: bool) -> list[Scenario]:
    """Return one scenario for each loss probability."""
    return [
        Scenario(
            name=f"loss {loss:g}",
            contenders=(Contender("ina", "railweave", ("ina",)), Contender("rdma", "railweave", ("rdma",))),
            workload=Workload((1 << 12, 1 << 16, 1 << 20), iterations=50, seconds=0.5),
            rails=("ina", "rdma"),
            loss={"ina": loss, "rdma": loss} if loss else {},
            repetitions=2 if quick else 5,
        )
        for loss in LOSSES
    ]
