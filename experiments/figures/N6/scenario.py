# SPDX-License-Identifier: Apache-2.0
"""Faults that stop one of two rails under running calls: the failover experiment, as records."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from railweave.experiments.failover import run as failover
from railweave.experiments.failover.values import FailoverOptions
from railweave.experiments.figures import Experiment, OnPhase, key_of, run_by
from railweave.experiments.records import Record
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

FAULTS = ("host link down", "loss both ways", "switch killed")
RAILS = ("ina", "tcp")


def plan(quick: bool) -> list[Experiment]:
    """Return an experiment per fault and failing rail."""
    trials, rails = (2, RAILS[:1]) if quick else (5, RAILS)
    return [
        Experiment(_name(options), key_of(_name(options), options), 12 + 4 * trials, partial(_run, options))
        for fault in FAULTS
        for rail in rails
        for options in [{"fault": fault, "rail": rail, "trials": trials, "hosts": 4, "rate_bps": 100_000_000}]
    ]


def _name(options: dict[str, Any]) -> str:
    return f"{options['fault']}, {options['rail']}"


async def _run(options: dict[str, Any], out: Path, on_phase: OnPhase) -> list[Record]:
    """Return a record per trial."""
    topology = planes(options["hosts"], RAILS, options["rate_bps"])
    asked = FailoverOptions(
        topology, LabOptions(out), options["trials"], faults=(options["fault"],), rails=(options["rail"],)
    )
    found = await failover.run(asked, on_phase)
    curve = found.curves.get((options["fault"], options["rail"]))
    return [
        run_by(
            _name(options),
            options,
            trial.number,
            contender="+".join(RAILS),
            extra={
                **(asdict(trial.figures) if trial.figures else {}),
                "where": trial.where,
                "unexpected": float(not trial.expected or bool(trial.errors)),
                "wrong": float(trial.wrong),
                "curve": asdict(curve) if curve and trial.number == 0 else None,
            },
        )
        for trial in found.trials
    ]
