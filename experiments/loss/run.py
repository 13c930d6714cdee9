# SPDX-License-Identifier: Apache-2.0
"""One benchmark per topology and probability of loss; every element of every sum is compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from railweave.experiments.allreduce.problem import LANES
from railweave.experiments.allreduce.run import BenchOptions, BenchResult, Row
from railweave.experiments.allreduce.run import run as run_bench
from railweave.topologies.model import Topology


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


async def run(
    benches: Sequence[tuple[str, NetworkConditions, BenchOptions]],
    on_phase: Callable[[str], None] = lambda _: None,
    on_point: Callable[[Point], None] = lambda _: None,
) -> list[Point]:
    """Run one benchmark after the other: (name of the topology, conditions, options with one size each)."""
    points = []
    for name, conditions, options in benches:
        on_phase(f"{name}: loss {conditions.loss:.1%}")
        points.append(_point(name, conditions, await run_bench(options, on_phase)))
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
