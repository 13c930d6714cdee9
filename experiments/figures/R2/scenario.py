# SPDX-License-Identifier: Apache-2.0
"""The same racks, and a tensor so small that the number of steps decides."""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario, Workload


def plan(quick: bool) -> list[Scenario]:
    """Return a network per number of racks that aggregate."""
    return [
        Scenario(
            name=f"{upgraded} of 4 racks, small",
            contenders=(Contender("ina", "railweave", ("ina",)), Contender("ring", "ring", ("ina",))),
            workload=Workload((16 * networks.KIB,), iterations=50),
            topology=f"racks:racks=4,hosts=4,ina={upgraded}",
            rails=("ina",),
            rates=(100_000_000,),
            repetitions=1 if quick else 3,
        )
        for upgraded in range(5)
    ]
