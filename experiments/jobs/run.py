# SPDX-License-Identifier: Apache-2.0
"""Several jobs on the same hosts at once: the throughput of each job while all jobs run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from railweave.experiments.allreduce.run import sum_of_limits
from railweave.experiments.errors import OptionError
from railweave.experiments.failover import worker
from railweave.experiments.failover.figures import throughput
from railweave.experiments.failover.trace import RankTrace
from railweave.experiments.hosts import JobOptions, require_peers
from railweave.experiments.program.worker import command_of
from railweave.experiments.supervisor import Supervisor, alongside, messages
from railweave.topologies.errors import LabError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology

SETTLE_S = 1.0  # at both ends of the window: jobs start and end within it
END_S = 60.0  # until all have ended


@dataclass(frozen=True)
class JobsOptions:
    """One experiment."""

    topology: Topology
    lab: LabOptions
    jobs: int = 2
    bytes: int = 1 << 20  # of each tensor
    seconds: float = 10.0  # duration after all jobs have completed a call


@dataclass(frozen=True)
class JobRun:
    """The reports of a job's ranks. Every rank has the same slices."""

    name: str
    ranks: Sequence[RankTrace]


@dataclass(frozen=True)
class JobRow:
    """The results of one job while all jobs ran."""

    job: str
    calls: int
    wrong: int
    bps: Mapping[str, float]  # bits of tensors per second, by rail
    share: Mapping[str, float]  # share of the throughput of all jobs, by rail
    why: Mapping[str, Any]


@dataclass(frozen=True)
class JobsResult:
    """The results of all jobs over the window in which all jobs ran."""

    options: JobsOptions
    window_s: float
    rows: Sequence[JobRow]

    @property
    def ok(self) -> bool:
        """Whether no element was wrong."""
        return all(row.wrong == 0 and row.calls for row in self.rows)

    def utilisation(self, rail: str) -> float | None:
        """Return the throughput of all jobs on a rail relative to the links' limit; None if unshaped."""
        limit = sum_of_limits([self.options.topology.plane(rail)], len(self.options.topology.hosts))
        return sum(row.bps[rail] for row in self.rows) / limit if limit else None


async def run(options: JobsOptions, on_phase: Callable[[str], None] = lambda _: None) -> JobsResult:
    """Run the experiment. Raises LabError and OptionError."""
    if options.jobs < 1:
        raise OptionError(f"--jobs {options.jobs}", "at least 1", "correct --jobs")
    if options.seconds <= 2 * SETTLE_S:
        raise OptionError(
            f"--seconds {options.seconds:g}", f"more than {2 * SETTLE_S:g}", "give more --seconds"
        )
    if options.bytes < 8 or options.bytes % 4:
        raise OptionError(f"--size {options.bytes}", "a multiple of 4 bytes, at least 8", "correct --size")
    require_peers(options.topology)
    hosts = len(options.topology.hosts)
    on_phase(f"making a network of {hosts} hosts")
    runs = [JobRun(f"job{number + 1}", [RankTrace() for _ in range(hosts)]) for number in range(options.jobs)]
    command = command_of(worker.call, "all_reduce", options.bytes, "int32", 0.0, endless=True)
    async with Lab(options.topology, options.lab) as lab:
        on_phase(f"{options.jobs} jobs of {hosts} ranks, {options.seconds:g} s")
        supervisor = Supervisor(lab)
        leaders = []
        for job in runs:
            started = JobOptions(job.name, command, name=job.name)
            leaders += (await supervisor.start(started, messages(partial(_take, job))))[:1]

        async def measure() -> None:
            await supervisor.begun(lambda: all(job.ranks[0].calls for job in runs))
            await asyncio.sleep(options.seconds)
            await supervisor.stop(*leaders, deadline_s=END_S)

        await alongside(measure(), supervisor.read())
        on_phase("taking the network down")
    return result_of(options, runs)


def _take(job: JobRun, rank: int, message: Mapping[str, Any]) -> None:
    trace = job.ranks[rank]
    trace.take(message)
    if trace.errors:
        raise LabError(
            f"rank {rank} of {job.name}: {trace.errors[0].kind}: {trace.errors[0].text}",
            "calls without errors",
            "read the log of this rank",
        )
    if rank:  # all have the same slices
        trace.calls.clear()


def result_of(options: JobsOptions, runs: Sequence[JobRun]) -> JobsResult:
    """Return the results of each job in the window in which all jobs ran.

    The window begins `SETTLE_S` after the last start, and ends `SETTLE_S` before the first end. Raises
    OptionError if it is empty.
    """
    calls = [job.ranks[0].calls for job in runs]
    begin = max(of_job[0].begin for of_job in calls) + SETTLE_S
    end = min(of_job[-1].end for of_job in calls) - SETTLE_S
    if end <= begin:
        raise OptionError(
            "the jobs did not run at the same time for long enough",
            "calls of all jobs at once",
            "give more --seconds",
        )
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
