# SPDX-License-Identifier: Apache-2.0
"""Jobs on few slots: a switch has room for 64 chunks, dedicated to the first jobs or shared by all jobs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from railweave.experiments.contenders import Contender, Job, atp
from railweave.experiments.errors import OptionError
from railweave.experiments.figures.modules import Numbers, OnPhase, Options
from railweave.experiments.hosts import JobOptions, module_command, start_rank
from railweave.experiments.jobs import run as jobs_run
from railweave.experiments.messages import read
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Topology
from railweave.topologies.named import named

CELLS = 64  # chunks that the registers of a switch hold
SLOTS = 16  # per job: the minimum; each slot has two copies
WITH_SLOTS = CELLS // (2 * SLOTS)  # jobs that get slots
SETTLE_S = 1.0
TIMEOUT_S = 120.0


async def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the goodput of the jobs: of all, and of one."""
    topology = named(options["topology"], rails=["ina"], rates=[options["rate_bps"]])
    run = _dedicated if options["kind"] == "dedicated" else _best_effort
    goodputs, wrong, counts = await run(options, topology, out, on_phase)
    return [
        {
            "total_mbps": sum(goodputs) / 1e6,
            "mean_mbps": sum(goodputs) / len(goodputs) / 1e6,
            "least_mbps": min(goodputs) / 1e6,
            "greatest_mbps": max(goodputs) / 1e6,
            "evenness": min(goodputs) / max(goodputs),
            "wrong": float(wrong),
            "counted": counts,
        }
    ]


async def _dedicated(
    options: Options, topology: Topology, out: Path, on_phase: OnPhase
) -> tuple[list[float], int, dict[str, Any]]:
    """Run jobs on our in-network rail. A job without slots is a ring of its ranks."""
    quotas = [f"job{number + 1}:slots=0" for number in range(WITH_SLOTS, options["jobs"])]
    asked = jobs_run.JobsOptions(
        topology,
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
    return goodputs, sum(row.wrong for row in found.rows), {}


async def _best_effort(
    options: Options, topology: Topology, out: Path, on_phase: OnPhase
) -> tuple[list[float], int, dict[str, Any]]:
    """Run jobs on ATP. All jobs share the aggregators."""
    numbers = range(options["jobs"])
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
    return _goodputs(calls, options["bytes"]), sum(m["wrong"] for m in messages), counts


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
