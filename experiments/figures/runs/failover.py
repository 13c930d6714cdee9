# SPDX-License-Identifier: Apache-2.0
"""Faults that stop one of two rails under running calls: the experiment of `railweave bench failover`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from railweave.experiments.failover import run as failover
from railweave.experiments.failover.values import FailoverOptions
from railweave.experiments.figures.modules import Numbers, OnPhase, Options
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes


async def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the numbers of each trial, and the throughput around the fault of the first one."""
    topology = planes(options["hosts"], ("ina", "tcp"), options["rate_bps"])
    asked = FailoverOptions(
        topology, LabOptions(out), options["trials"], faults=(options["fault"],), rails=(options["rail"],)
    )
    found = await failover.run(asked, on_phase)
    return [
        {
            **(asdict(trial.figures) if trial.figures else {}),
            "where": trial.where,
            "unexpected": float(not trial.expected or bool(trial.errors)),
            "wrong": float(trial.wrong),
            "curve": asdict(trial.curve) if trial.curve and trial.number == 0 else None,
        }
        for trial in found.trials
    ]
