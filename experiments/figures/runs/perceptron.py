# SPDX-License-Identifier: Apache-2.0
"""A training of the perceptron of `railweave demo`."""

from __future__ import annotations

from pathlib import Path

from railweave.experiments.figures.modules import Numbers, OnPhase, Options
from railweave.experiments.training import run as training
from railweave.experiments.training.model import TrainingOptions
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes


async def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the speed, the accuracy, and the distance from the same training in one process."""
    topology = planes(options["hosts"], options["rails"], options["rate_bps"])
    wanted = TrainingOptions(steps=options["steps"])
    found = await training.run(training.DemoOptions(topology, wanted, LabOptions(out)), on_phase)
    return [
        {
            "samples_per_s": wanted.batch * wanted.steps / found.seconds,
            "accuracy": found.accuracy,
            "off_bound": found.max_abs_diff / found.reference.bound,
        }
    ]
