# SPDX-License-Identifier: Apache-2.0
"""The measuring loop that railweave and its baselines share, so that they are timed alike."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from railweave.experiments.allreduce.problem import SCALES, Array, problem
from railweave.experiments.messages import emit

BATCH_BYTES = 64 << 20  # results kept before they are checked


@dataclass(frozen=True)
class Measurement:
    """What is measured at every size."""

    sizes: tuple[int, ...]  # bytes
    dtype: str
    op: str
    iters: int
    warmup: int
    check: bool

    def arguments(self) -> list[str]:
        """Return the worker's command line."""
        arguments = ["--sizes", ",".join(map(str, self.sizes)), "--dtype", self.dtype, "--op", self.op]
        arguments += ["--iters", str(self.iters), "--warmup", str(self.warmup)]
        return arguments + (["--check"] if self.check else [])

    @classmethod
    def parse(cls, description: str | None) -> Measurement:
        """Read the worker's command line."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--sizes", required=True)
        parser.add_argument("--dtype", required=True)
        parser.add_argument("--op", required=True)
        parser.add_argument("--iters", type=int, required=True)
        parser.add_argument("--warmup", type=int, required=True)
        parser.add_argument("--check", action="store_true")
        given = parser.parse_args()
        sizes = tuple(int(size) for size in given.sizes.split(","))
        return cls(sizes, given.dtype, given.op, given.iters, given.warmup, given.check)


@dataclass(frozen=True)
class Contender:
    """One implementation of allreduce on one rank."""

    rank: int
    ranks: int
    reduce: Callable[[Array, Array], None]  # (input, output): timed
    meet: Callable[[], None]  # returns when all ranks have called it
    prepare: Callable[[Array, Array], None] = lambda _given, _out: None  # not timed
    details: Callable[[], dict[str, Any]] = dict  # about the runs since the last call; for the message


def measure(contender: Contender, measurement: Measurement) -> None:
    """Measure all sizes; emits one `row` per size: seconds of every run, and how many elements were wrong."""
    for size in measurement.sizes:
        _measure_size(contender, measurement, size)


def _measure_size(contender: Contender, measurement: Measurement, size: int) -> None:
    """Runs follow each other without a pause until BATCH_BYTES of results wait to be checked."""
    count = size // 4
    task = problem(count, measurement.dtype, measurement.op, contender.rank, contender.ranks)
    inputs = task.inputs()
    batch = max(1, min(measurement.iters, BATCH_BYTES // size))
    results = np.full((batch, count), -1, task.base.dtype)  # touched, so that no page fault is timed
    for run in range(measurement.warmup):
        contender.prepare(inputs[run % SCALES], results[0])
        contender.reduce(inputs[run % SCALES], results[0])
    seconds: list[float] = []
    wrong = 0
    contender.details()
    for first in range(0, measurement.iters, batch):
        runs = range(first, min(first + batch, measurement.iters))
        for place, run in enumerate(runs):
            contender.prepare(inputs[run % SCALES], results[place])
        contender.meet()
        for place, run in enumerate(runs):
            begin = time.perf_counter()
            contender.reduce(inputs[run % SCALES], results[place])
            seconds.append(time.perf_counter() - begin)
        if measurement.check:
            wrong += sum(task.wrong(run, results[place]) for place, run in enumerate(runs))
    emit("row", rank=contender.rank, bytes=size, seconds=seconds, wrong=wrong, **contender.details())
