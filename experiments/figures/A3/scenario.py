# SPDX-License-Identifier: Apache-2.0
"""Broadcasts and allgathers among 2 to 16 hosts, on one switch and on two levels of switches."""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.scenario import Scenario, Workload

HOSTS = (2, 4, 8, 16)
SIZE = 1 << 20  # bytes
RATE_BPS = 25_000_000  # two cores carry 16 hosts at this rate
TREE = "leaf-spine:racks=4,hosts=4,spines=1"
COLLECTIVES = ("broadcast", "all_gather")
INA, RING = Contender("ina", "railweave", ("ina",)), Contender("ring", "ring", ("tcp",))


def plan(quick: bool) -> list[Scenario]:
    """Return a scenario per collective and network."""
    return [
        Scenario(
            name=f"{collective}, {network}",
            contenders=(INA, *((RING,) if topology == "planes" else ())),
            workload=Workload((SIZE,), collective, iterations=5 if quick else 10),
            topology=topology,
            hosts=hosts,
            rails=("ina", "tcp") if topology == "planes" else ("ina",),
            rates=(RATE_BPS,),
            repetitions=2 if quick else 5,
        )
        for collective in COLLECTIVES
        for topology, hosts, network in (
            *(("planes", hosts, f"{hosts} hosts") for hosts in HOSTS),
            (TREE, 16, "16 hosts, two levels"),
        )
    ]
