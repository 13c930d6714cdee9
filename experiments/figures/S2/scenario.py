# SPDX-License-Identifier: Apache-2.0
"""Every first upgrade of two fabrics, measured and predicted by `railweave plan --jobs`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import railweave
from railweave.experiments import deployment, statistics
from railweave.experiments.figures import Experiment, OnPhase, key_of, run_by
from railweave.experiments.program.testbed import Testbed
from railweave.experiments.records import Record
from railweave.topologies.clos import mixed_racks
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Plane, Topology

RATE_BPS = 20_000_000
RACKS = {"racks of 2, 4 and 6": (2, 4, 6), "racks of 4": (4, 4, 4, 4)}  # hosts
JOBS = {"racks of 2, 4 and 6": "12x2M", "racks of 4": "4x2M,6x2M@h5,6x1M@h11"}


def plan(quick: bool) -> list[Experiment]:
    """Return an experiment per fabric."""
    calls = 2 if quick else 5
    return [
        Experiment(name, key_of(name, options), 90 + 30 * calls, partial(_run, name, options))
        for name in RACKS
        for options in [{"racks": RACKS[name], "jobs": JOBS[name], "rate_bps": RATE_BPS, "calls": calls}]
    ]


def fabric(racks: Sequence[int], rate_bps: int) -> Topology:
    """Return plain racks with these numbers of hosts below a bridge."""
    most = max(racks)
    whole = mixed_racks(len(racks), most, 0, rails=("ina",), rates=rate_bps)
    places = {rack * most + place for rack, count in enumerate(racks) for place in range(count)}
    return _with(whole, *(host for place, host in enumerate(whole.hosts) if place in places))


def _with(topology: Topology, *hosts: str, switch: str = "") -> Topology:
    """Return the topology with these hosts only, and with a switch upgraded."""
    (plane,) = topology.planes
    nics = tuple(nic for nic in plane.nics if nic.host in hosts)
    return replace(topology, hosts=hosts, planes=(deployment.upgraded(replace(plane, nics=nics), [switch]),))


def calls(comm: railweave.Communicator, size_bytes: int, count: int) -> tuple[list[float], int]:
    """Return the seconds of each call after a first one, and the wrong elements of all."""
    every = [
        np.random.default_rng(rank).integers(-9999, 9999, size_bytes // 4) for rank in range(comm.world_size)
    ]
    exact, own = sum(every).astype(np.int32), every[comm.rank].astype(np.int32)  # type: ignore[union-attr]
    times, wrong = [], 0
    for _ in range(1 + count):
        comm.barrier()
        begin = time.monotonic()
        got = comm.all_reduce(own)
        times.append(time.monotonic() - begin)
        wrong += int(np.count_nonzero(got != exact))
    return times[1:], wrong


async def _run(name: str, options: dict[str, Any], out: Path, on_phase: OnPhase) -> list[Record]:
    return [await asyncio.to_thread(_measure, name, options, out, on_phase)]


def _measure(name: str, options: dict[str, Any], out: Path, on_phase: OnPhase) -> Record:
    topology = fabric(options["racks"], options["rate_bps"])
    (plane,) = topology.planes
    jobs = deployment.parse_jobs(options["jobs"], plane)
    leaves = [switch.name for switch in plane.levels()[0]]
    predicted = dict.fromkeys(["", *leaves], 0.0)
    measured, wrong = dict(predicted), 0
    for job in jobs:
        behind = {nic.switch for nic in job.ranks.values()}
        alone = _with(topology, *(nic.host for nic in job.ranks.values()))
        for leaf in ["", *(leaf for leaf in leaves if leaf in behind)]:
            on_phase(f"{name}: {job.name}, {leaf or 'no switch'} upgraded")
            with Testbed(_with(alone, *alone.hosts, switch=leaf), LabOptions(out)) as bed:
                values = bed.run(calls, job.size_bytes, options["calls"]).wait().values
            now = statistics.median([max(times) for times in zip(*(own for own, _ in values), strict=True)])
            wrong += sum(count for _, count in values)
            for other in predicted:
                if other == leaf or (not leaf and other not in behind):
                    measured[other] += now
                    predicted[other] += _predicted(plane, job, other)
    return run_by(
        name, options, 0, contender="railweave", extra=_judged(measured, predicted) | {"wrong": wrong}
    )


def _predicted(plane: Plane, job: deployment.Job, leaf: str) -> float:
    return deployment.time_s(deployment.upgraded(plane, [leaf]), job)


def _judged(measured: dict[str, float], predicted: dict[str, float]) -> dict[str, Any]:
    """Return times by upgrade, and whether both have the same order of first upgrades."""
    gains = [{leaf: of[""] / of[leaf] for leaf in of if leaf} for of in (measured, predicted)]
    orders = [sorted(of, key=lambda leaf, of=of: -of[leaf]) for of in gains]  # type: ignore[misc]
    return {
        "measured_s": measured,
        "predicted_s": predicted,
        "measured_gain": gains[0],
        "predicted_gain": gains[1],
        "misplaced": float(sum(one != other for one, other in zip(*orders, strict=True))),
        "first": gains[0][orders[1][0]] / gains[1][orders[1][0]],
        "slowest": max(measured[leaf] / predicted[leaf] for leaf in measured),
    }
