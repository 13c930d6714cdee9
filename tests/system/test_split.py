# SPDX-License-Identifier: Apache-2.0
"""A communicator's parts use the same rails of the same hosts at the same time as the whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from railweave.experiments.hosts import JobOptions, environment_of
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

DEADLINE_S = 120.0


def test_halves_of_a_job_reduce_beside_the_whole(tmp_path: Path) -> None:
    async def run() -> list[str]:
        topology = planes(4, ["ina", "tcp", "rdma"])
        async with asyncio.timeout(DEADLINE_S), Lab(topology, LabOptions(tmp_path)) as lab:
            for rank, host in enumerate(topology.hosts):
                shares = {"ina": 0.4, "tcp": 0.3, "rdma": 0.3}
                job = JobOptions("job", "system.splitting", [], shares)
                environment = environment_of(topology, host, rank, lab.controller, job)
                environment["PYTHONPATH"] = str(Path(__file__).parents[1])
                await lab.start_worker(host, f"rank {rank}", [job.module], environment)
            return [line.text async for line in lab.events()]

    assert asyncio.run(run()) == ["done ina,rdma,tcp"] * 4
