# SPDX-License-Identifier: Apache-2.0
"""An in-network algorithm in a lab: its ranks make calls with real packets, and compare every result."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from railweave.experiments.contenders.algorithm import joined, switches
from railweave.experiments.hosts import JobOptions, module_command
from railweave.experiments.messages import emit, run_worker
from railweave.experiments.supervisor import Supervisor, messages
from railweave.sdk.check.results import DENSITIES, WrongResult, compare, inputs
from railweave.topologies.errors import LabError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.named import named

TIMEOUT_S = 60.0  # of a call
SILENCE_S = 90.0


@dataclass(frozen=True)
class Calls:
    """The calls of a lab, of one size each."""

    hosts: int = 3
    rate_bps: int = 100_000_000
    impair: str = ""  # of the switch's links
    calls: int = 50
    elements: int = 20_000
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """The results of all ranks."""

    calls: int
    resends: int
    seconds: float  # of the slowest rank, with the preparation of inputs
    worst: float  # greatest error of a float32 result, as a share of the bound


async def run(kind: str, asked: Calls, out: Path) -> Result:
    """Run an algorithm on one switch. Raises LabError, also for a wrong result."""
    topology = named("planes", hosts=asked.hosts, rails=["ina"], rates=[asked.rate_bps])
    plane = topology.planes[0].name
    ended: dict[int, dict[str, Any]] = {}

    def take(rank: int, message: dict[str, Any]) -> None:
        if message["event"] == "wrong":
            raise LabError(f"rank {rank}: {message['text']}", "right results", "read the algorithm's code")
        if message["event"] == "ended":
            ended[rank] = message

    async with Lab(topology, LabOptions(out, impair=asked.impair, seed=asked.seed)) as lab:
        words = kind, str(lab.topology_file.absolute()), plane
        numbers = (str(each) for each in (asked.calls, asked.elements, asked.seed))
        command = module_command("railweave.experiments.algorithm_lab", *words, *numbers)
        async with switches(lab, plane, kind, 1, {}):
            supervisor = Supervisor(lab)
            await supervisor.start(JobOptions("algorithm", command), messages(take))
            await supervisor.read(SILENCE_S)
    return Result(
        calls=sum(message["calls"] for message in ended.values()),
        resends=sum(message["resends"] for message in ended.values()),
        seconds=max(message["seconds"] for message in ended.values()),
        worst=max(message["worst"] for message in ended.values()),
    )


def work() -> None:
    """Make the calls of one rank, which can compute the inputs of all ranks."""
    kind, path, plane_name = sys.argv[1:4]
    calls, elements, seed = map(int, sys.argv[4:])
    endpoint = joined(kind, path, plane_name, TIMEOUT_S)
    algorithm, rank, ranks = endpoint.algorithm, endpoint.rank, endpoint.ranks
    generator, manifest = np.random.default_rng(seed), algorithm.manifest
    begin, worst = time.monotonic(), 0.0
    for call in range(calls):
        dtype = manifest.dtypes[call % len(manifest.dtypes)]
        op = manifest.operations[call % len(manifest.operations)]
        density = DENSITIES[call % len(DENSITIES)]
        given = inputs(generator, ranks, elements, dtype, density, manifest.lanes[0])
        try:
            result = endpoint.call(given[rank], op)
            worst = max(worst, compare(algorithm, given, op, result, f"call {call} of {dtype}"))
        except WrongResult as wrong:
            emit("wrong", text=str(wrong))
            return
        emit("progress", call=call)
    endpoint.close()
    seconds = time.monotonic() - begin
    emit("ended", calls=calls, resends=endpoint.resends, seconds=seconds, worst=worst)


if __name__ == "__main__":
    sys.exit(run_worker(work))
