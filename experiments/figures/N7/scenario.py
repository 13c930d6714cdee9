# SPDX-License-Identifier: Apache-2.0
"""Steps of four models' training with simulated computing, and a small model that is really trained."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import Experiment, OnPhase, key_of, models, networks, run_by
from railweave.experiments.records import Record
from railweave.experiments.scenario import Scenario, Workload
from railweave.experiments.training import run as training
from railweave.experiments.training.model import TrainingOptions
from railweave.topologies.lab.options import LabOptions
from railweave.topologies.planes import planes

SCALE = 128  # tensors and links are 1/128: 100 Mbit/s stand for 12.8 Gbit/s, and a step takes as long
QUICK_MODELS = ("ResNet-50", "GPT-2")
KINDS = ("ina", "tcp", "rdma")


def plan(quick: bool) -> list[Scenario | Experiment]:
    """Return a scenario per model, then trainings on one rail and on three."""
    known = models.load(Path(__file__).parent)
    trainings = [_training(kinds, 20 if quick else 100) for kinds in (("tcp",), KINDS)]
    chosen = [model for model in known if not quick or model.name in QUICK_MODELS]
    return [*(_steps(model, quick) for model in chosen), *trainings]


def _steps(model: models.Model, quick: bool) -> Scenario:
    alone = [] if quick else [Contender(rail, "railweave", (rail,)) for rail in KINDS]
    return Scenario(
        name=model.name,
        contenders=(Contender("ina+tcp+rdma", "railweave"), *alone, Contender("gloo", "gloo", ("tcp",))),
        workload=Workload(
            messages=model.buckets(SCALE),
            model=model.name,
            compute_s=round(model.compute_s, 4),
            warmup=5,
            iterations=5,
        ),
        rails=KINDS,
        rates=(networks.RATE_BPS,),
        repetitions=2 if quick else 3,
    )


def _training(kinds: tuple[str, ...], steps: int) -> Experiment:
    options = {"rails": list(kinds), "steps": steps, "hosts": 4, "rate_bps": networks.RATE_BPS}
    name = f"training, {'+'.join(kinds)}"
    return Experiment(name, key_of(name, options), 12 + 0.5 * steps, partial(_train, name, options))


async def _train(name: str, options: dict[str, Any], out: Path, on_phase: OnPhase) -> list[Record]:
    topology = planes(options["hosts"], options["rails"], options["rate_bps"])
    wanted = TrainingOptions(steps=options["steps"])
    found = await training.run(training.DemoOptions(topology, wanted, LabOptions(out)), on_phase)
    result = {
        "samples_per_s": wanted.batch * wanted.steps / found.seconds,
        "accuracy": found.accuracy,
        "off_bound": found.max_abs_diff / found.reference.bound,
    }
    return [run_by(name, options, 0, contender="+".join(options["rails"]), extra=result)]
