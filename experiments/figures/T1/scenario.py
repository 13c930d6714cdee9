# SPDX-License-Identifier: Apache-2.0
"""Sums by the switch and by a ring of the hosts over the same links, and a ring through a plain bridge."""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario, Workload

SIZES = (256 * networks.KIB, 1024 * networks.KIB, 4096 * networks.KIB)
HOSTS = (2, 4, 8)
CONTENDERS = (
    Contender("netreduce", "railweave", ("netreduce",)),
    Contender("ring", "railweave", ("netreduce",), {"kind": "rdma"}),
    Contender("bridge", "railweave", ("rdma",)),
)


def plan(quick: bool) -> list[Scenario]:
    """Return a scenario per number of hosts."""
    return [
        Scenario(
            name=f"{hosts} hosts",
            contenders=CONTENDERS,
            workload=Workload(SIZES[-1:] if quick else SIZES, dtype="int32", iterations=5 if quick else 10),
            hosts=hosts,
            rails=("netreduce", "rdma"),
            rates=(networks.RATE_BPS if hosts < HOSTS[-1] else networks.RATE_8_HOSTS_BPS,),
            repetitions=2 if quick else 4,
        )
        for hosts in HOSTS
    ]
