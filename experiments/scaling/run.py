# SPDX-License-Identifier: Apache-2.0
"""One allreduce benchmark per number of hosts: in-network latency should not grow with it, a ring's does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from railweave.experiments.allreduce.run import BenchOptions, Row
from railweave.experiments.allreduce.run import run as run_bench


@dataclass(frozen=True)
class Point:
    """One contender at one number of hosts and one size."""

    contender: str  # rails joined by "+", or the baseline's name
    hosts: int
    row: Row


@dataclass(frozen=True)
class ScalingResult:
    """All points, in the order of measuring."""

    points: Sequence[Point]
    versions: Mapping[str, str]  # of baselines

    @property
    def ok(self) -> bool:
        """Whether no element was wrong."""
        return all(point.row.wrong <= 0 for point in self.points)

    def curves(self) -> dict[tuple[str, int], list[Point]]:
        """Return the points of each (contender, size in bytes), by hosts."""
        curves: dict[tuple[str, int], list[Point]] = {}
        for point in sorted(self.points, key=lambda point: point.hosts):
            curves.setdefault((point.contender, point.row.bytes), []).append(point)
        return curves


async def run(
    benches: Sequence[BenchOptions],
    on_phase: Callable[[str], None] = lambda _: None,
    on_point: Callable[[Point], None] = lambda _: None,
) -> ScalingResult:
    """Run one benchmark after the other; raises LabError and OptionError."""
    points: list[Point] = []
    versions: dict[str, str] = {}
    for bench in benches:
        hosts = len(bench.topology.hosts)

        def take(row: Row, hosts: int = hosts) -> None:
            points.append(Point("+".join(row.rails), hosts, row))
            on_point(points[-1])

        versions |= (await run_bench(bench, on_phase, take)).versions
    return ScalingResult(points, versions)


def as_json(result: ScalingResult) -> dict[str, Any]:
    """Return the curves for machines; times in microseconds."""
    return {
        "rows": [
            {
                "contender": contender,
                "version": result.versions.get(contender),
                "bytes": size,
                "points": [
                    {
                        "hosts": point.hosts,
                        "time_us_median": point.row.median_s * 1e6,
                        "time_us_p99": point.row.p99_s * 1e6,
                        "limit_fraction": point.row.limit_fraction,
                        "wrong": point.row.wrong,
                    }
                    for point in points
                ],
            }
            for (contender, size), points in result.curves().items()
        ],
        "ok": result.ok,
    }
