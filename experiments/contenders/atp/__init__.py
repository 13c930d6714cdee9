# SPDX-License-Identifier: Apache-2.0
"""ATP: best-effort aggregation in first-hop switches, and a parameter server on rank 0's host.

See README.md beside `p4src/atp/main.p4`. The option `slots` is the number of aggregators that all jobs share.
It is a power of two.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from railweave.experiments.contenders import Contender, Endpoint, Implementation, Job
from railweave.experiments.contenders.atp import fabric
from railweave.experiments.contenders.atp.packet import HEADER, LANES, SCALE
from railweave.hosts.limits import ETHERNET, IPV4, LANE_BYTES, UDP
from railweave.p4src.config import CONFIG
from railweave.topologies.lab.namespaces import CONTROLLER_NODE
from railweave.topologies.model import Plane

if TYPE_CHECKING:
    from railweave.topologies.lab.lab import Lab

CONFIGURE = "railweave.experiments.contenders.atp.configure"


class Kind(Implementation):
    """One job on one plane. The plane's P4 switches run the program of ATP meanwhile."""

    def __init__(self, contender: Contender) -> None:
        """Take the contender that it runs."""
        super().__init__(contender)
        self.slots = int(contender.options.get("slots", CONFIG["SLOTS"]))

    def limit_bps(self, plane: Plane, collective: str) -> float:
        """Return the limit of the server's link.

        The link carries the tensor once per aggregating rack and once per worker outside of these racks.
        """
        payload = LANE_BYTES * LANES
        fraction = payload / (payload + HEADER.size + UDP + IPV4 + ETHERNET)
        return plane.rate_bps * fraction / fabric.flows(plane)

    def error_bound(self, ranks: int) -> float:
        """Return the error of rounding each rank's number to fixed point."""
        return ranks / (2 * SCALE)

    @contextlib.asynccontextmanager
    async def on_lab(self, lab: Lab, job: Job) -> AsyncIterator[dict[str, Any]]:
        """Take the switches from the controller for one run. Yield the switches' counts."""
        async with switches(lab, job.planes[0], 1, self.slots) as counts:
            yield counts

    def connect(self, job: Job, rank: int) -> Endpoint:
        """Join the job."""
        from railweave.experiments.contenders.atp.endpoint import Atp  # noqa: PLC0415 - not in the runner

        return Atp(job, rank)


@contextlib.asynccontextmanager
async def switches(lab: Lab, plane: str, jobs: int, slots: int) -> AsyncIterator[dict[str, Any]]:
    """Let a plane's P4 switches run ATP for `jobs` jobs. The yielded mapping gets the counts at the end.

    The controller is stopped meanwhile, because it would configure the switches for railweave again.
    """
    counts: dict[str, Any] = {}
    if not any(switch.p4runtime for switch in lab.topology.plane(plane).switches):
        yield counts
        return
    command = [sys.executable, "-m", CONFIGURE, str(lab.topology_file), plane, str(jobs), str(slots)]
    failed = "the switches could not be filled for ATP", "an answer of each switch", "read the switches' logs"
    await lab.kill(CONTROLLER_NODE)
    try:
        await lab.ask(command, *failed)
        await lab.programs_compiled()
        yield counts
        counts |= await lab.ask(command, *failed)
    finally:
        await lab.revive(CONTROLLER_NODE)
