# SPDX-License-Identifier: Apache-2.0
"""Several jobs on the same hosts at once: throughput of each while all of them run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from railweave.experiments.allreduce.run import sum_of_limits
from railweave.experiments.errors import OptionError
from railweave.experiments.failover.figures import throughput
from railweave.experiments.failover.trace import RankTrace
from railweave.experiments.hosts import JobOptions, module_command, require_peers, start_job
from railweave.experiments.messages import read
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.processes import Child
from railweave.topologies.model import Topology

WORKER = "railweave.experiments.failover.worker"
SETTLE_S = 1.0  # at both ends of the window: jobs start and end within it


@dataclass(frozen=True)
class JobsOptions:
    """One experiment."""

    topology: Topology
    out: Path
    jobs: int = 2
    bytes: int = 1 << 20  # of each tensor
    seconds: float = 10.0  # from when all jobs have completed a call
    switch_target: str = "embedded"
    loss: Mapping[str, float] = field(default_factory=dict)  # by plane
    controller: Sequence[str] = ()  # further arguments of the controller: --slots, quotas


@dataclass(frozen=True)
class JobRun:
    """What a job's ranks have reported; every rank has the same slices."""

    name: str
    ranks: Sequence[RankTrace]


@dataclass(frozen=True)
class JobRow:
    """What one job got while all of them ran."""

    job: str
    calls: int
    wrong: int
    bps: Mapping[str, float]  # bits of tensors per second, by rail
    share: Mapping[str, float]  # of what all jobs got on that rail
    why: Mapping[str, Any]


@dataclass(frozen=True)
class JobsResult:
    """All jobs over the window in which each of them ran."""

    options: JobsOptions
    window_s: float
    rows: Sequence[JobRow]

    @property
    def ok(self) -> bool:
        """Whether no element was wrong."""
        return all(row.wrong == 0 and row.calls for row in self.rows)

    def utilisation(self, rail: str) -> float | None:
        """Return what all jobs got on a rail by what its links allow; none if unshaped."""
        limit = sum_of_limits([self.options.topology.plane(rail)], len(self.options.topology.hosts))
        return sum(row.bps[rail] for row in self.rows) / limit if limit else None


async def run(options: JobsOptions, on_phase: Callable[[str], None] = lambda _: None) -> JobsResult:
    """Run the experiment; raises LabError and OptionError."""
    if options.jobs < 1:
        raise OptionError(f"--jobs {options.jobs}: expected at least 1")
    if options.seconds <= 2 * SETTLE_S:
        raise OptionError(f"--seconds {options.seconds:g}: expected more than {2 * SETTLE_S:g}")
    if options.bytes < 8 or options.bytes % 4:
        raise OptionError(f"--size {options.bytes}: expected a multiple of 4 bytes, at least 8")
    require_peers(options.topology)
    on_phase(f"making a network of {len(options.topology.hosts)} hosts")
    lab_options = LabOptions(
        options.out, options.switch_target, options.loss, controller=tuple(options.controller)
    )
    ranks = range(len(options.topology.hosts))
    runs = [JobRun(f"job{number + 1}", [RankTrace() for _ in ranks]) for number in range(options.jobs)]
    async with Lab(options.topology, lab_options) as lab:
        on_phase(f"{options.jobs} jobs of {len(options.topology.hosts)} ranks, {options.seconds:g} s")
        job_of: dict[Child, JobRun] = {}
        leaders: list[Child] = []
        for job in runs:
            command = module_command(WORKER, "--once", "--bytes", str(options.bytes))
            children = await start_job(lab, JobOptions(job.name, command, name=job.name))
            job_of |= dict.fromkeys(children, job)
            leaders.append(next(iter(children)))
        async for line in lab.events():
            if (message := read(line.text)) is not None:
                rank = job_of[line.child].ranks[message["rank"]]
                rank.take(message)
                if message["rank"]:
                    rank.calls.clear()
            if leaders and all(job.ranks[0].calls for job in runs):
                for leader in leaders:
                    asyncio.get_running_loop().call_later(options.seconds, leader.signal, signal.SIGUSR1)
                leaders.clear()
        on_phase("taking the network down")
    return result_of(options, runs)


def result_of(options: JobsOptions, runs: Sequence[JobRun]) -> JobsResult:
    """Return what each job got between the last start and the first end, `SETTLE_S` in from both.

    OptionError if there was no time in which all jobs ran.
    """
    calls = [job.ranks[0].calls for job in runs]
    begin = max(of_job[0].begin for of_job in calls) + SETTLE_S
    end = min(of_job[-1].end for of_job in calls) - SETTLE_S
    if end <= begin:
        raise OptionError("the jobs did not run at the same time for long enough: give more --seconds")
    rails = [plane.name for plane in options.topology.planes]
    got = [{rail: throughput(job.ranks[:1], begin, end, rail) for rail in rails} for job in runs]
    totals = {rail: sum(bps[rail] for bps in got) for rail in rails}
    rows = [
        JobRow(
            job=job.name,
            calls=len(job.ranks[0].calls),
            wrong=sum(rank.wrong for rank in job.ranks),
            bps=bps,
            share={rail: bps[rail] / totals[rail] if totals[rail] else 0.0 for rail in rails},
            why=job.ranks[0].unused,
        )
        for job, bps in zip(runs, got, strict=True)
    ]
    return JobsResult(options, end - begin, rows)
