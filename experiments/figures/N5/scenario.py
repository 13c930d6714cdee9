# SPDX-License-Identifier: Apache-2.0
"""Small messages against Gloo, on planes of the same rate."""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario


def plan(quick: bool) -> list[Scenario]:
    """Return a sweep up to 256 KiB for 4 hosts, and for 8."""
    return [_against_gloo(hosts, quick) for hosts in (4, 8)]


def _against_gloo(hosts: int, quick: bool) -> Scenario:
    rate = networks.RATE_BPS if hosts <= 6 else networks.RATE_8_HOSTS_BPS
    return Scenario(
        name=f"{hosts} hosts, {rate // 10**6} Mbit/s",
        contenders=(
            Contender("ina", "railweave", ("ina",)),
            Contender("tcp", "railweave", ("tcp",)),
            Contender("gloo", "gloo", ("tcp",)),
        ),
        workload=networks.sweep(quick, first=4 if not quick else networks.KIB // 16, last=256 * networks.KIB),
        hosts=hosts,
        rates=(rate,),
        repetitions=2 if quick else 5,
    )
