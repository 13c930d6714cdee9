# SPDX-License-Identifier: Apache-2.0
"""Jobs on few slots: a switch has room for 64 chunks, dedicated to the first jobs or shared by all jobs."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from railweave.experiments.contenders import Contender, Job, atp
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import Experiment, OnPhase, key_of, run_by
from railweave.experiments.hosts import JobOptions, module_command, start_rank
from railweave.experiments.jobs import run as jobs_run
from railweave.experiments.messages import read
from railweave.experiments.records import Record
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology
from railweave.topologies.named import named

CELLS = 64  # chunks that the registers of a switch hold
SLOTS = 16  # per job: the minimum; each slot has two copies
WITH_SLOTS = CELLS // (2 * SLOTS)  # jobs that get slots
SETTLE_S = 1.0
TIMEOUT_S = 120.0


def plan(quick: bool) -> list[Experiment]:
    """Return an experiment per number of jobs and kind of sharing."""
    seconds = 15 if quick else 30
    found = []
    for jobs in (1, 4) if quick else (1, 2, 4, 6):
        for kind, run in (("dedicated", _dedicated), ("best effort", _best_effort)):
            options: dict[str, Any] = {
                "kind": kind,
                "jobs": jobs,
                "topology": "racks:racks=2,hosts=3,ina=2",
                "rate_bps": 10_000_000,
                "bytes": (512 if quick else 1024) << 10,
                "seconds": seconds,
            }
            name = _name(options)
            found.append(Experiment(name, key_of(name, options), seconds + 20, partial(run, options)))
    return found


def _name(options: dict[str, Any]) -> str:
    return f"{options['kind']}, jobs: {options['jobs']}"


def _topology(options: dict[str, Any]) -> Topology:
    return named(options["topology"], rails=["ina"], rates=[options["rate_bps"]])


def _record(options: dict[str, Any], goodputs: list[float], wrong: int, **counts: Any) -> Record:
    figures = {
        "total_mbps": sum(goodputs) / 1e6,
        "mean_mbps": sum(goodputs) / len(goodputs) / 1e6,
        "least_mbps": min(goodputs) / 1e6,
        "greatest_mbps": max(goodputs) / 1e6,
        "evenness": min(goodputs) / max(goodputs),
        "wrong": float(wrong),
    }
    return run_by(_name(options), options, 0, contender=options["kind"], extra={**figures, **counts})


async def _dedicated(options: dict[str, Any], out: Path, on_phase: OnPhase) -> list[Record]:
    """Run jobs on our in-network rail. A job without slots is a ring of its ranks."""
    quotas = [f"job{number + 1}:slots=0" for number in range(WITH_SLOTS, options["jobs"])]
    asked = jobs_run.JobsOptions(
        _topology(options),
        LabOptions(
            out,
            controller=("--slots", str(SLOTS), *(part for quota in quotas for part in ("--quota", quota))),
        ),
        options["jobs"],
        options["bytes"],
        options["seconds"],
    )
    found = await jobs_run.run(asked, on_phase)
    goodputs = [row.bps["ina"] for row in found.rows]
    return [_record(options, goodputs, sum(row.wrong for row in found.rows))]


async def _best_effort(options: dict[str, Any], out: Path, on_phase: OnPhase) -> list[Record]:
    """Run jobs on ATP. All jobs share the aggregators."""
    topology, numbers = _topology(options), range(options["jobs"])
    plane = topology.planes[0]
    job = Job(
        Contender("atp", "atp"),
        len(topology.hosts),
        (plane.name,),
        {plane.name: tuple(nic.address for nic in plane.nics)},
        str(out.absolute()),
        TIMEOUT_S,
        {"bytes": options["bytes"], "seconds": options["seconds"]},
    )
    on_phase(f"making a network of {job.size} hosts")
    async with Lab(topology, LabOptions(out / "lab")) as lab:
        path = out / "job.json"
        path.write_text(json.dumps(asdict(job)))
        messages = []
        async with atp.switches(lab, plane.name, options["jobs"], CELLS) as counts:
            on_phase(f"{options['jobs']} jobs of {job.size} ranks, {options['seconds']} s")
            for number in numbers:
                atp.write(atp.file_of(job, number), lab, plane.name, number)
                for rank in range(job.size):
                    command = module_command(
                        "railweave.experiments.contenders.atp.series", str(path), str(rank), str(number)
                    )
                    await start_rank(lab, JobOptions(f"job{number}", command), rank)
            async for line in lab.events():
                if message := read(line.text):
                    messages.append(message)
            await lab.stop_workers()
    calls = [m["calls"] for number in numbers for m in messages if m["number"] == number and not m["rank"]]
    return [
        _record(
            options, _goodputs(calls, options["bytes"]), sum(m["wrong"] for m in messages), counted=counts
        )
    ]


def _goodputs(calls: list[list[tuple[float, float]]], size: int) -> list[float]:
    """Return the goodput of each job while all jobs ran, in bits of tensors per second."""
    begin = max(of_job[0][1] for of_job in calls) + SETTLE_S
    end = min(of_job[-1][1] for of_job in calls) - SETTLE_S
    if end <= begin:
        raise OptionError(
            "the jobs did not run at the same time for long enough",
            "calls of all jobs at once",
            "measure again",
        )
    return [
        sum(8 * size * max(0.0, min(end, e) - max(begin, b)) / (e - b) for b, e in of_job) / (end - begin)
        for of_job in calls
    ]
