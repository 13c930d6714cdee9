# SPDX-License-Identifier: Apache-2.0
"""The measuring loop that railweave and its baselines share, so that they are timed alike."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from railweave.experiments.messages import emit
from railweave.experiments.problem import ITEM, SCALES, SHARDED, Array, problem, shard_elements

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
    collective: str = "all_reduce"
    root: int = 0  # of a broadcast

    @property
    def meets(self) -> bool:
        """Whether ranks meet before every run: in a broadcast nobody waits for those behind him.

        Without that, runs would overlap, and their times would be meaningless.
        """
        return self.collective == "broadcast"

    def arguments(self) -> list[str]:
        """Return the worker's command line."""
        arguments = ["--sizes", ",".join(map(str, self.sizes)), "--dtype", self.dtype, "--op", self.op]
        arguments += ["--iters", str(self.iters), "--warmup", str(self.warmup)]
        arguments += ["--collective", self.collective, "--root", str(self.root)]
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
        parser.add_argument("--collective", required=True)
        parser.add_argument("--root", type=int, required=True)
        given = parser.parse_args()
        sizes = tuple(int(size) for size in given.sizes.split(","))
        return cls(
            sizes,
            given.dtype,
            given.op,
            given.iters,
            given.warmup,
            given.check,
            given.collective,
            given.root,
        )


@dataclass(frozen=True)
class Contender:
    """One implementation of a collective on one rank."""

    rank: int
    ranks: int
    call: Callable[[Array, Array], None]  # (input, output): timed
    meet: Callable[[], None]  # returns when all ranks have called it
    prepare: Callable[[Array, Array], None] = lambda _given, _out: None  # not timed
    details: Callable[[], dict[str, Any]] = dict  # about the runs since the last call; for the message


def measure(contender: Contender, measurement: Measurement) -> None:
    """Measure all sizes; emits one `row` per size: seconds of every run, and how many elements were wrong."""
    for size in measurement.sizes:
        _measure_size(contender, measurement, size)


def _measure_size(contender: Contender, measurement: Measurement, size: int) -> None:
    """Runs follow each other without a pause until BATCH_BYTES of results wait to be checked.

    But see `Measurement.meets`.
    """
    collective, ranks = measurement.collective, contender.ranks
    count = shard_elements(collective, size, ranks)
    task = problem(
        count,
        measurement.dtype,
        measurement.op,
        contender.rank,
        ranks,
        collective=collective,
        root=measurement.root,
    )
    inputs = task.inputs()
    batch = max(1, min(measurement.iters, BATCH_BYTES // (ITEM * task.total.size)))
    results = np.full((batch, task.total.size), -1, task.base.dtype)  # touched: no page fault is timed
    for run in range(measurement.warmup):
        contender.prepare(inputs[run % SCALES], results[0])
        contender.call(inputs[run % SCALES], results[0])
    seconds: list[float] = []
    wrong = 0
    contender.details()
    for first in range(0, measurement.iters, batch):
        runs = range(first, min(first + batch, measurement.iters))
        results.fill(-1)
        for place, run in enumerate(runs):
            contender.prepare(inputs[run % SCALES], results[place])
        contender.meet()
        for place, run in enumerate(runs):
            if measurement.meets:
                contender.meet()
            begin = time.perf_counter()
            contender.call(inputs[run % SCALES], results[place])
            seconds.append(time.perf_counter() - begin)
        if measurement.check:
            wrong += sum(task.wrong(run, results[place]) for place, run in enumerate(runs))
    whole = ITEM * count * (ranks if collective in SHARDED else 1)
    emit("row", rank=contender.rank, bytes=whole, seconds=seconds, wrong=wrong, **contender.details())
