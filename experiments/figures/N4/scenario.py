# SPDX-License-Identifier: Apache-2.0
"""Eight hosts: railweave on two rails, the kernel's MPTCP on two links, one rail, OpenMPI.

MPTCP knows no in-network rail: ina+tcp is compared with MPTCP over two links of the same rate.
"""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario

NAME = "8 hosts, 50 Mbit/s"


def plan(quick: bool) -> list[Scenario]:
    """Return one network with an in-network plane and two TCP planes."""
    contenders = [
        Contender("ina+tcp", "railweave", ("ina", "tcp0")),
        Contender("tcp+tcp", "railweave", ("tcp0", "tcp1")),
        Contender("mptcp", "mptcp", ("tcp0", "tcp1")),
        Contender("tcp0", "railweave", ("tcp0",)),
    ]
    if not quick:
        contenders.append(Contender("openmpi", "openmpi", ("tcp0", "tcp1")))
    return [
        Scenario(
            name=NAME,
            contenders=tuple(contenders),
            workload=networks.sweep(quick),
            hosts=8,
            rails=("ina", "tcp", "tcp"),
            rates=(networks.RATE_8_HOSTS_BPS,),
            repetitions=2 if quick else 4,
            control=not quick,
        )
    ]
