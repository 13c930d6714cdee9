# SPDX-License-Identifier: Apache-2.0
"""Every first upgrade of a fabric, measured and predicted by `railweave plan --jobs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from railweave.experiments import deployment
from railweave.experiments.figures.modules import Numbers, OnPhase, Options
from railweave.experiments.figures.runs import timed_calls
from railweave.experiments.program.testbed import Testbed
from railweave.topologies.clos import mixed_racks
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.model import Plane, Topology


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


def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the time of all jobs, each alone, by upgrade, and how far the prediction is off."""
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
            on_phase(f"{job.name}, {leaf or 'no switch'} upgraded")
            with Testbed(_with(alone, *alone.hosts, switch=leaf), LabOptions(out)) as bed:
                now, bad = timed_calls.seconds(bed, job.size_bytes, options["calls"])
            wrong += bad
            for other in predicted:
                if other == leaf or (not leaf and other not in behind):
                    measured[other] += now
                    predicted[other] += _predicted(plane, job, other)
    return [_judged(measured, predicted) | {"wrong": wrong}]


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
