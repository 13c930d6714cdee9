# SPDX-License-Identifier: Apache-2.0
"""One benchmark per topology and probability of loss; every element of every sum is compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from railweave.experiments.allreduce.loop import Measurement
from railweave.experiments.allreduce.run import BenchOptions, BenchResult, Row
from railweave.experiments.allreduce.run import check as check_bench
from railweave.experiments.allreduce.run import run as run_bench
from railweave.experiments.errors import OptionError
from railweave.experiments.problem import LANES
from railweave.topologies.model import Topology


@dataclass(frozen=True)
class LossOptions:
    """All measurements: every topology under every loss."""

    topologies: Sequence[Topology]
    losses: Sequence[float]
    duplicate: float
    reorder: float
    chunks: int  # per measurement, at least
    bytes: int  # of each tensor
    seed: int
    out: Path


@dataclass(frozen=True)
class NetworkConditions:
    """What the links do to packets, in each direction: probabilities."""

    loss: float
    duplicate: float
    reorder: float

    def settings(self) -> str:
        """Return the impairment as switches take it; nothing if nothing happens."""
        if not (self.loss or self.duplicate or self.reorder):
            return ""
        return f"loss={self.loss:g},duplicate={self.duplicate:g},reorder={self.reorder:g}"


@dataclass(frozen=True)
class Point:
    """One topology under one set of conditions. `utilisation` is of what links allow; None if unshaped."""

    topology: str
    hosts: int
    loss: float
    duplicate: float
    reorder: float
    chunks: int
    time_s: float
    utilisation: float | None
    wrong: int
    retransmissions: int


def check(options: LossOptions) -> None:
    """Raise OptionError where options make no sense."""
    if options.chunks < 1:
        raise OptionError(f"--chunks {options.chunks}: expected at least 1")
    probabilities = [("--losses", loss) for loss in options.losses]
    for name, value in (*probabilities, ("--duplicate", options.duplicate), ("--reorder", options.reorder)):
        if not 0 <= value < 1:
            raise OptionError(f"{name} {value:g}: a probability is from 0 to below 1")
    for _, bench in benches(options):
        check_bench(bench)


def benches(options: LossOptions) -> Iterator[tuple[NetworkConditions, BenchOptions]]:
    """Yield one benchmark after the other."""
    iters = math.ceil(options.chunks / math.ceil(options.bytes / 4 / LANES))
    measurement = Measurement((options.bytes,), "int32", "sum", iters, warmup=1, check=True)
    for topology in options.topologies:
        for loss in options.losses:
            conditions = NetworkConditions(loss, options.duplicate, options.reorder)
            yield (
                conditions,
                BenchOptions(
                    topology=topology,
                    measurement=measurement,
                    out=options.out / f"{topology.name}-{loss:g}",
                    rails=[plane.name for plane in topology.planes],
                    impair=conditions.settings(),
                    seed=options.seed,
                ),
            )


async def run(
    options: LossOptions,
    on_phase: Callable[[str], None] = lambda _: None,
    on_point: Callable[[Point], None] = lambda _: None,
) -> list[Point]:
    """Run all benchmarks; raises LabError and OptionError."""
    check(options)
    points = []
    for conditions, bench in benches(options):
        name = short_name(bench.topology)
        on_phase(f"{name}: loss {conditions.loss:.1%}")
        points.append(_point(name, conditions, await run_bench(bench, on_phase)))
        on_point(points[-1])
    return points


def _point(name: str, conditions: NetworkConditions, result: BenchResult) -> Point:
    (row,) = result.rows
    return Point(
        topology=name,
        hosts=row.ranks,
        loss=conditions.loss,
        duplicate=conditions.duplicate,
        reorder=conditions.reorder,
        chunks=chunks_of(row),
        time_s=sum(row.seconds),
        utilisation=row.bytes * 8 * len(row.seconds) / sum(row.seconds) / row.limit_bps
        if row.limit_bps
        else None,
        wrong=row.wrong,
        retransmissions=sum(rail.retransmissions for rail in result.counts[tuple(row.rails)].values()),
    )


def chunks_of(row: Row) -> int:
    """Return how many chunks the timed sums had."""
    return len(row.seconds) * math.ceil(row.bytes / 4 / LANES)


def short_name(topology: Topology) -> str:
    """Return a topology's name for people: `planes, 8 hosts`."""
    return f"{topology.name}, {len(topology.hosts)} hosts"


def as_json(points: Sequence[Point]) -> dict[str, Any]:
    """Return the curve for machines."""
    return {"rows": [asdict(point) for point in points], "ok": all(point.wrong == 0 for point in points)}
