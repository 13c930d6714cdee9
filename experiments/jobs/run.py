# SPDX-License-Identifier: Apache-2.0
"""Several jobs on the same hosts at once: the throughput of each job while all jobs run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from railweave.experiments.allreduce.run import sum_of_limits
from railweave.experiments.endless import Calls
from railweave.experiments.errors import OptionError
from railweave.experiments.hosts import JobOptions, require_peers
from railweave.experiments.supervisor import EndlessJob, Supervisor, alongside
from railweave.experiments.trace import RankTrace, throughput
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
        limit = sum_of_limits([self.options.topology.plane(rail)])
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
    command = Calls("all_reduce", options.bytes, "int32").command()
    async with Lab(options.topology, options.lab) as lab:
        on_phase(f"{options.jobs} jobs of {hosts} ranks, {options.seconds:g} s")
        supervisor = Supervisor(lab)
        jobs: dict[str, EndlessJob] = {}
        for name in (f"job{number + 1}" for number in range(options.jobs)):
            jobs[name] = EndlessJob(
                supervisor, JobOptions(name, command, name=name), partial(_refuse_errors, name)
            )
            await jobs[name].start()

        async def measure() -> None:
            for job in jobs.values():
                await job.begun()
            await asyncio.sleep(options.seconds)
            await supervisor.stop(*(job.children[0] for job in jobs.values()), deadline_s=END_S)

        await alongside(measure(), supervisor.read())
        on_phase("taking the network down")
    return result_of(options, {name: job.traces for name, job in jobs.items()})


def _refuse_errors(job: str, rank: int, message: Mapping[str, Any]) -> None:
    if message["event"] == "error":
        raise LabError(
            f"rank {rank} of {job}: {message['kind']}: {message['text']}",
            "calls without errors",
            "read the log of this rank",
        )


def result_of(options: JobsOptions, jobs: Mapping[str, Sequence[RankTrace]]) -> JobsResult:
    """Return the results of each job in the window in which all jobs ran.

    The window begins `SETTLE_S` after the last start, and ends `SETTLE_S` before the first end. Raises
    OptionError if it is empty.
    """
    firsts = {name: traces[:1] for name, traces in jobs.items()}  # all ranks have the same slices
    begin = max(trace.calls[0].begin for [trace] in firsts.values()) + SETTLE_S
    end = min(trace.calls[-1].end for [trace] in firsts.values()) - SETTLE_S
    if end <= begin:
        raise OptionError(
            "the jobs did not run at the same time for long enough",
            "calls of all jobs at once",
            "give more --seconds",
        )
    rails = [plane.name for plane in options.topology.planes]
    bps = {
        name: {rail: throughput(first, begin, end, rail) for rail in rails} for name, first in firsts.items()
    }
    totals = {rail: sum(of_job[rail] for of_job in bps.values()) for rail in rails}
    rows = [
        JobRow(
            job=name,
            calls=len(traces[0].calls),
            wrong=sum(trace.wrong for trace in traces),
            bps=bps[name],
            share={rail: bps[name][rail] / totals[rail] if totals[rail] else 0.0 for rail in rails},
            why=traces[0].unused,
        )
        for name, traces in jobs.items()
    ]
    return JobsResult(options, end - begin, rows)
