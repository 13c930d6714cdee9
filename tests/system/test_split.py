# SPDX-License-Identifier: Apache-2.0
"""The parts of a split communicator and the whole use the same rails of the same hosts at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from railweave.experiments.hosts import JobOptions, module_command, start_job
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

DEADLINE_S = 120.0


def test_halves_of_a_job_reduce_beside_the_whole(tmp_path: Path) -> None:
    async def run() -> list[str]:
        topology = planes(4, ["ina", "tcp", "rdma"])
        async with asyncio.timeout(DEADLINE_S), Lab(topology, LabOptions(tmp_path)) as lab:
            shares = {"ina": 0.4, "tcp": 0.3, "rdma": 0.3}
            path = {"PYTHONPATH": str(Path(__file__).parents[1])}
            await start_job(
                lab, JobOptions("job", module_command("system.splitting"), shares, environment=path)
            )
            return [line.text async for line in lab.events()]

    assert asyncio.run(run()) == ["done ina,rdma,tcp"] * 4
