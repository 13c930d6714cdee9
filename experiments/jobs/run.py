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
from railweave.experiments.hosts import JobOptions, module_command, require_peers, start_job
from railweave.experiments.messages import read
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.lab.processes import Child
from railweave.topologies.model import Topology

WORKER = "railweave.experiments.jobs.worker"
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
class Span:
    """A slice of a tensor as one rail carried it; times are CLOCK_MONOTONIC's, one for all ranks."""

    rail: str
    start: float
    end: float
    bytes: int

    def within(self, begin: float, end: float) -> float:
        """Return the bytes that fall into the window, as if they had been sent evenly."""
        overlap = min(self.end, end) - max(self.start, begin)
        return self.bytes * max(0.0, overlap) / max(self.end - self.start, 1e-9)


@dataclass
class JobRun:
    """What a job's ranks have reported."""

    name: str
    spans: list[Span] = field(default_factory=list)  # of rank 0: every rank has the same slices
    calls: int = 0
    wrong: int = 0  # elements, over all ranks and calls
    why: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobRow:
    """What one job got while all of them ran."""

    name: str
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
    runs = {name: JobRun(name) for name in (f"job{number + 1}" for number in range(options.jobs))}
    async with Lab(options.topology, lab_options) as lab:
        on_phase(f"{options.jobs} jobs of {len(options.topology.hosts)} ranks, {options.seconds:g} s")
        job_of: dict[Child, str] = {}
        leaders: list[Child] = []
        for name in runs:
            command = module_command(WORKER, "--bytes", str(options.bytes))
            children = await start_job(lab, JobOptions(name, command, name=name))
            job_of |= dict.fromkeys(children, name)
            leaders.append(next(iter(children)))
        async for line in lab.events():
            if (message := read(line.text)) is not None:
                _take(runs[job_of[line.child]], message)
            if leaders and all(job.spans for job in runs.values()):
                for leader in leaders:
                    asyncio.get_running_loop().call_later(options.seconds, leader.signal, signal.SIGUSR1)
                leaders.clear()
        on_phase("taking the network down")
    return result_of(options, list(runs.values()))


def _take(job: JobRun, message: dict[str, Any]) -> None:
    if message["event"] == "slices" and message["rank"] == 0:
        job.spans += [
            Span(piece["rail"], piece["start"], piece["end"], piece["bytes"])
            for piece in message["slices"]
            if not piece["survey"]
        ]
    elif message["event"] == "done":
        job.wrong += message["wrong"]
        if message["rank"] == 0:
            job.calls, job.why = message["calls"], message["why"]


def result_of(options: JobsOptions, runs: Sequence[JobRun]) -> JobsResult:
    """Return what each job got between the last start and the first end, `SETTLE_S` in from both.

    OptionError if there was no time in which all jobs ran.
    """
    begin = max(min(span.start for span in job.spans) for job in runs) + SETTLE_S
    end = min(max(span.end for span in job.spans) for job in runs) - SETTLE_S
    if end <= begin:
        raise OptionError("the jobs did not run at the same time for long enough: give more --seconds")
    rails = [plane.name for plane in options.topology.planes]
    got = [
        {
            rail: 8 * sum(s.within(begin, end) for s in job.spans if s.rail == rail) / (end - begin)
            for rail in rails
        }
        for job in runs
    ]
    totals = {rail: sum(bps[rail] for bps in got) for rail in rails}
    rows = [
        JobRow(
            name=job.name,
            calls=job.calls,
            wrong=job.wrong,
            bps=bps,
            share={rail: bps[rail] / totals[rail] if totals[rail] else 0.0 for rail in rails},
            why=job.why,
        )
        for job, bps in zip(runs, got, strict=True)
    ]
    return JobsResult(options, end - begin, rows)
