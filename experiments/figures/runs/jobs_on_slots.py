# SPDX-License-Identifier: Apache-2.0
"""Jobs on few slots: a switch has room for 64 chunks, dedicated to the first jobs or shared by all jobs."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from railweave.experiments.contenders import algorithm
from railweave.experiments.figures.modules import Numbers, OnPhase, Options
from railweave.experiments.hosts import module_command
from railweave.experiments.jobs import run as jobs
from railweave.experiments.jobs.run import JobsOptions, JobsResult
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.named import named

CELLS = 64  # chunks that the registers of a switch hold
SLOTS = 16  # per job: the minimum; each slot has two copies
WITH_SLOTS = CELLS // (2 * SLOTS)  # jobs that get slots
SERIES = "railweave.experiments.contenders.algorithm_series"


async def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the goodput of the jobs: of all, and of one."""
    topology = named(options["topology"], rails=["ina"], rates=[options["rate_bps"]])
    dedicated = options["kind"] == "dedicated"
    lab = LabOptions(out, controller=_quotas(options["jobs"]) if dedicated else ())
    asked = JobsOptions(topology, lab, options["jobs"], options["bytes"], options["seconds"])
    counts: dict[str, Any] = {}
    if dedicated:
        found = await jobs.run(asked, on_phase)
    else:
        found, counts = await _best_effort(asked, on_phase)
    goodputs = [row.bps["ina"] for row in found.rows]
    return [
        {
            "total_mbps": sum(goodputs) / 1e6,
            "mean_mbps": sum(goodputs) / len(goodputs) / 1e6,
            "least_mbps": min(goodputs) / 1e6,
            "greatest_mbps": max(goodputs) / 1e6,
            "evenness": min(goodputs) / max(goodputs),
            "wrong": float(sum(row.wrong for row in found.rows)),
            "counted": counts,
        }
    ]


def _quotas(count: int) -> list[str]:
    """Return the controller's options that give slots to the first jobs only. All other jobs are rings."""
    without = [("--quota", f"job{job + 1}:slots=0") for job in range(WITH_SLOTS, count)]
    return ["--slots", str(SLOTS), *chain(*without)]


async def _best_effort(asked: JobsOptions, on_phase: OnPhase) -> tuple[JobsResult, dict[str, Any]]:
    """Run jobs on ATP. All jobs share the aggregators. Return also the switches' counts."""
    on_phase(f"making a network of {len(asked.topology.hosts)} hosts")
    async with Lab(asked.topology, asked.lab) as lab:
        plane = asked.topology.planes[0].name
        words = str(lab.topology_file.absolute()), plane, str(asked.bytes)
        commands = [module_command(SERIES, "atp", *words, str(number)) for number in range(asked.jobs)]
        async with algorithm.switches(lab, plane, "atp", asked.jobs, {"slots": CELLS}) as counts:
            found = await jobs.measure(lab, asked, commands, on_phase)
    return found, counts
