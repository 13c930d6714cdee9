# SPDX-License-Identifier: Apache-2.0
"""An allgather and a reduce-scatter at once, in the network and in rings."""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import networks
from railweave.experiments.problem import BOTH
from railweave.experiments.scenario import Scenario, Workload

RATES_BPS = {4: networks.RATE_BPS, 8: networks.RATE_8_HOSTS_BPS}  # by hosts


def plan(quick: bool) -> list[Scenario]:
    """Return a scenario per number of hosts."""
    return [
        Scenario(
            name=f"both, {hosts} hosts",
            contenders=(
                Contender("ina", "railweave", ("ina",)),
                Contender("ring", "ring", ("tcp",)),
            ),
            workload=Workload(((1024 if quick else 4096) * networks.KIB,), BOTH, iterations=10),
            hosts=hosts,
            rates=(rate,),
            repetitions=2 if quick else 5,
        )
        for hosts, rate in RATES_BPS.items()
    ]
