# SPDX-License-Identifier: Apache-2.0
"""Several jobs on the same hosts at once: the throughput of each job while all jobs run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from rich.table import Table

from railweave.experiments import tables
from railweave.experiments.allreduce.run import sum_of_limits
from railweave.experiments.endless import Calls
from railweave.experiments.errors import OptionError
from railweave.experiments.hosts import JobOptions, require_peers
from railweave.experiments.supervisor import EndlessJob, Supervisor, alongside
from railweave.experiments.trace import RankTrace, throughput, wrong_elements
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
    on_phase(f"making a network of {len(options.topology.hosts)} hosts")
    command = Calls("all_reduce", options.bytes, "int32").command()
    async with Lab(options.topology, options.lab) as lab:
        result = await measure(lab, options, [command] * options.jobs, on_phase)
        on_phase("taking the network down")
    return result


async def measure(
    lab: Lab, options: JobsOptions, commands: Sequence[Sequence[str]], on_phase: Callable[[str], None]
) -> JobsResult:
    """Run a job of each command in a lab at once. The ranks behave as those of `endless.Calls`."""
    on_phase(f"{len(commands)} jobs of {len(lab.topology.hosts)} ranks, {options.seconds:g} s")
    supervisor = Supervisor(lab)
    jobs: dict[str, EndlessJob] = {}
    for number, command in enumerate(commands):
        name = f"job{number + 1}"
        jobs[name] = EndlessJob(
            supervisor, JobOptions(name, command, name=name), partial(_refuse_errors, name)
        )
        await jobs[name].start()

    async def window() -> None:
        for job in jobs.values():
            await job.begun()
        await asyncio.sleep(options.seconds)
        await supervisor.stop(*(job.children[0] for job in jobs.values()), deadline_s=END_S)

    await alongside(window(), supervisor.read())
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
            wrong=wrong_elements(traces),
            bps=bps[name],
            share={rail: bps[name][rail] / totals[rail] if totals[rail] else 0.0 for rail in rails},
            why=traces[0].unused,
        )
        for name, traces in jobs.items()
    ]
    return JobsResult(options, end - begin, rows)


def table(result: JobsResult) -> Table:
    """Return a row per job: throughput and share on every rail, and the reason for an unused rail."""
    rails = [plane.name for plane in result.options.topology.planes]
    per_rail = [title for rail in rails for title in (f"{rail} (Mbit/s)", "share")]
    rows = []
    for row in result.rows:
        got = [text for rail in rails for text in (f"{row.bps[rail] / 1e6:.1f}", f"{row.share[rail]:.1%}")]
        not_used = "; ".join(f"{rail}: {reason}" for rail, reason in row.why.items())
        rows.append((row.job, *got, str(row.calls), str(row.wrong), not_used or "-"))
    title = f"{len(result.rows)} jobs at once, for {result.window_s:.1f} s"
    return tables.table(("job", *per_rail, "calls", "#wrong", "not used"), rows, title=title, box=None)


def utilisations(result: JobsResult) -> list[str]:
    """Return all jobs' throughput relative to every shaped rail's limit."""
    found = {plane.name: result.utilisation(plane.name) for plane in result.options.topology.planes}
    return [
        f"{rail}: all jobs together reach {fraction:.1%} of the physical limit of the links."
        for rail, fraction in found.items()
        if fraction is not None
    ]


def as_json(result: JobsResult) -> dict[str, Any]:
    """Return the result as JSON values; rates are bits of tensors per second."""
    options = result.options
    return {
        "hosts": len(options.topology.hosts),
        "topology": options.topology.name,
        "switch": options.lab.switch_target,
        "bytes": options.bytes,
        "window_s": result.window_s,
        "utilisation": {plane.name: result.utilisation(plane.name) for plane in options.topology.planes},
        "rows": [asdict(row) for row in result.rows],
        "ok": result.ok,
    }
