# SPDX-License-Identifier: Apache-2.0
"""Steps of training with the messages of AlexNet, VGG-16 and ResNet-50, added by the switch and in rings."""

from __future__ import annotations

from pathlib import Path

from railweave.experiments.contenders import Contender
from railweave.experiments.figures import models, networks
from railweave.experiments.scenario import Scenario, Workload

SCALE = 128  # tensors and links are 1/128: 100 Mbit/s stand for 12.8 Gbit/s, and a step takes as long
NAMES = ("AlexNet", "VGG-16", "ResNet-50")
CONTENDERS = (
    Contender("netreduce", "railweave", ("netreduce",)),
    Contender("ring", "railweave", ("netreduce",), {"kind": "rdma"}),
)


def known() -> list[models.Model]:
    """Return the models; two belong to N7."""
    here = Path(__file__).parent
    found = {model.name: model for folder in (here, here.parent / "N7") for model in models.load(folder)}
    return [found[name] for name in NAMES]


def plan(quick: bool) -> list[Scenario]:
    """Return a scenario per model."""
    return [
        Scenario(
            name=model.name,
            contenders=CONTENDERS,
            workload=Workload(
                messages=model.buckets(SCALE),
                model=model.name,
                compute_s=round(model.compute_s, 4),
                warmup=3,
                iterations=5,
            ),
            rails=("netreduce",),
            rates=(networks.RATE_BPS,),
            repetitions=2 if quick else 4,
        )
        for model in known()
    ]
