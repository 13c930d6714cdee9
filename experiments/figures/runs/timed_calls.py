# SPDX-License-Identifier: Apache-2.0
"""The time of an allreduce on a network, measured as a scenario."""

from __future__ import annotations

from pathlib import Path

from railweave.experiments import statistics
from railweave.experiments.allreduce import run
from railweave.experiments.scenario import EACH, Scenario, Workload
from railweave.outputs import new_folder
from railweave.topologies.model import Topology
from railweave.topologies.serialize import to_yaml


async def seconds(topology: Topology, size_bytes: int, count: int, out: Path) -> tuple[float, int]:
    """Return the median time of int32 calls after a first one, and the wrong elements of all calls."""
    folder = new_folder(out)
    file = folder / "topology.yaml"
    file.write_text(to_yaml(topology))
    work = Workload((size_bytes,), dtype="int32", warmup=0, iterations=1 + count, verify=EACH)
    scenario = run.with_contenders(Scenario("calls", (), work, topology=str(file), repetitions=1))
    ((row,),) = (await run.run(scenario, folder)).rows.values()
    return statistics.median(row.seconds[1:]), row.wrong
