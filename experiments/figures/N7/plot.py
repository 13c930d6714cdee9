# SPDX-License-Identifier: Apache-2.0
"""Samples per second of each model and of a trained model, and CPU seconds per gigabyte by contender."""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.figure import Figure

from railweave.experiments import statistics
from railweave.experiments.figures import drawing, models
from railweave.experiments.measures import Runs


def draw(runs: Runs) -> Figure:
    """Draw bars."""
    figure, (speed, trained, cpu) = drawing.sheet(3)
    known = [model for model in models.load(Path(__file__).parent) if model.name in runs.scenarios]
    names = list(dict.fromkeys(who for model in known for who in runs.contenders(model.name)))
    base = "gloo" if "gloo" in names else next(reversed(names), "the first")
    units = [_samples_per_s(runs, model, base)[0] for model in known]
    for who in names:
        rates, limits = zip(*(_samples_per_s(runs, model, who) for model in known), strict=True)
        heights, tops = ([a / b for a, b in zip(some, units, strict=True)] for some in (rates, limits))
        drawing.bars(speed, [model.name for model in known], heights, who, names, tops, rates)
    speed.set_ylabel(f"speed / {base}'s (numbers: samples/s)")
    trainings = [run for found in runs.kept.values() for run in found if "samples_per_s" in run.extra]
    for run in trainings:
        together = [each.contender for each in trainings]
        drawing.bars(trained, ["perceptron"], [run.extra["samples_per_s"]], run.contender, together)
    trained.set_ylabel("samples/s of a trained model")
    for part, costs in (parts := runs.cpu_s_per_gb()).items():
        drawing.bars(cpu, list(costs), list(costs.values()), part, list(parts))
    cpu.set_ylabel("CPU seconds per GB")
    return figure


def _samples_per_s(runs: Runs, model: models.Model, who: str) -> tuple[float, float]:
    """Return the samples per second that a worker reached, and the limit of the links."""
    if who not in runs.contenders(model.name):
        return math.nan, math.nan
    work = runs.scenarios[model.name].workload
    step_s = statistics.median(list(runs.step_us(model.name, who).values())) / 1e6
    least_s = work.compute_s + 8 * sum(work.messages) / sum(runs.limits_bps(model.name, who).values())
    return model.samples / step_s, model.samples / least_s
