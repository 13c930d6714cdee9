# SPDX-License-Identifier: Apache-2.0
"""The switch's sums with windows of 16 to 512 packets, over links with a delay."""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import networks
from railweave.experiments.scenario import Scenario, Workload

WINDOWS = (16, 32, 64, 128, 256, 512)  # packets
RATE_BPS = 50_000_000  # two cores carry more, so that the links are the bottleneck
DELAY_US = 1000  # of each packet that enters the switch
SIZE = 1024 * networks.KIB


def plan(quick: bool) -> list[Scenario]:
    """Return a scenario per window."""
    return [
        Scenario(
            name=f"{window} packets",
            contenders=(Contender("netreduce", "railweave"),),
            workload=Workload((SIZE,), dtype="int32", iterations=5 if quick else 10),
            rails=("netreduce",),
            rates=(RATE_BPS,),
            slots=window,
            impair=f"delay={DELAY_US}us",
            repetitions=2 if quick else 4,
        )
        for window in WINDOWS
    ]
