# SPDX-License-Identifier: Apache-2.0
"""Sixteen hosts in four racks. The switches of 0 to 4 racks aggregate."""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario, Workload

RATE_BPS = 10_000_000  # two cores carry sixteen hosts with time to spare
INA = Contender("ina", "railweave", ("ina",))
RING = Contender("ring", "ring", ("ina",))
ATP = Contender("atp", "atp", ("ina",))
# These contenders do not use the racks' switches.
HOSTS_ONLY = (
    Contender("hierarchical", "hierarchical", ("ina",), {"racks": 4}),
    Contender("ps", "ps", ("ina",)),
)


def plan(quick: bool) -> list[Scenario]:
    """Return a network per number of racks that aggregate."""
    size = (512 if quick else 4096) * networks.KIB
    return [
        Scenario(
            name=f"{upgraded} of 4 racks",
            contenders=(INA, RING, ATP) if upgraded else (INA, RING, ATP, *HOSTS_ONLY),
            workload=Workload((size,), warmup=0, iterations=2),
            topology=f"racks:racks=4,hosts=4,ina={upgraded}",
            rails=("ina",),
            rates=(RATE_BPS,),
            repetitions=2 if quick else 3,
        )
        for upgraded in range(5)
    ]
