# SPDX-License-Identifier: Apache-2.0
"""One job in a lab: its ranks run to their end, and their reports are joined with the kernel's counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railweave.experiments.accounting import RailAccount, account
from railweave.experiments.hosts import JobOptions, explained
from railweave.experiments.messages import RailCounts
from railweave.experiments.supervisor import OnLine, Supervisor, alongside
from railweave.experiments.timeline import Span
from railweave.topologies.errors import WorkerFailed
from railweave.topologies.lab.counters import InterfaceCounters
from railweave.topologies.lab.lab import Lab
from railweave.topologies.model import Plane

Interfaces = Mapping[str, Mapping[str, InterfaceCounters]]  # by plane and host


@dataclass(frozen=True)
class Collected:
    """Hold the reports of a job's ranks.

    Attributes:
        joined: Ranks that called `railweave.init`.
        rails: A `RailAccount` per rail: byte counts of agents and kernel, and whether they agree. Empty if no
            rank called `railweave.init`.
        spans: Slices of all ranks, in seconds since the first slice began.
        start_s: Begin of the first slice, in seconds of CLOCK_MONOTONIC.
    """

    joined: Sequence[int]
    rails: Sequence[RailAccount]
    spans: Sequence[Span]
    start_s: float


async def run_job(
    lab: Lab,
    job: JobOptions,
    on_line: OnLine,
    *beside: Coroutine[Any, Any, Any],
    until: Coroutine[Any, Any, Any] | None = None,
    disturbed: Callable[[], bool],
) -> Collected:
    """Run a job to its end with other work beside, and collect the reports of its ranks.

    The end of `until` ends the job; without `until`, the job ends with its ranks. `disturbed` returns whether
    faults were injected. Raises WorkerFailed if the exit status of a rank is not 0, and LabError if a part of
    the lab has failed.
    """
    ranks = range(len(lab.topology.hosts))
    reports = {rank: job.report_of(rank) for rank in ranks} if job.report_of else {}
    for path in reports.values():
        path.unlink(missing_ok=True)
    before = interfaces_of(lab)

    async def to_the_end() -> None:
        supervisor = Supervisor(lab)
        if job.command:
            await supervisor.start(job, on_line)
        await supervisor.read()

    try:
        if until is None:
            await alongside(to_the_end(), *beside)
        else:
            await alongside(until, to_the_end(), *beside)
    except WorkerFailed as error:
        raise explained(error, job.command) from error
    finally:
        await lab.stop_workers()  # if the job has failed
    during = {
        plane: {host: counts - before[plane][host] for host, counts in hosts.items()}
        for plane, hosts in interfaces_of(lab).items()
    }
    return collect(reports, lab.topology.planes, during, disturbed=disturbed())


def interfaces_of(lab: Lab) -> Interfaces:
    """Return the kernel's counts of all hosts' interfaces so far."""
    return {plane.name: lab.interface_counters(plane.name) for plane in lab.topology.planes}


def collect(
    reports: Mapping[int, Path], planes: Sequence[Plane], interfaces: Interfaces, *, disturbed: bool = False
) -> Collected:
    """Read the ranks' report files, and join them with the kernel's counts during the job.

    `interfaces` are these counts. `disturbed` says that faults were injected: they may have removed frames
    before the kernel counted them.
    """
    lines = {rank: _lines(path) for rank, path in reports.items()}
    left = [(rank, line) for rank, found in lines.items() for line in found if line["event"] == "left"]
    counts: dict[int, dict[str, RailCounts]] = {}
    ports: dict[str, set[int]] = {}
    for rank, line in left:  # one per communicator
        of_rank = counts.setdefault(rank, {})
        for rail in line["rails"]:
            of_rank[rail["name"]] = of_rank.get(rail["name"], RailCounts()) + RailCounts.of(rail)
        for name, used in line["ports"].items():
            ports.setdefault(name, set()).update(used)
    start_s = min((s["start_s"] for _, line in left for s in line["slices"]), default=0.0)
    return Collected(
        joined=[rank for rank, found in lines.items() if found],
        rails=account(planes, counts, interfaces, ports, disturbed=disturbed) if counts else [],
        spans=_spans(left, start_s),
        start_s=start_s,
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _spans(left: Sequence[tuple[int, Mapping[str, Any]]], start: float) -> list[Span]:
    return [
        Span(rank, s["rail"], s["op_index"], s["start_s"] - start, s["end_s"] - start, s["bytes"])
        for rank, line in left
        for s in line["slices"]
        if not s["survey"]
    ]
