# SPDX-License-Identifier: Apache-2.0
"""One sweep per topology and probability of loss. Every element of every sum is checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railweave.experiments.allreduce.run import Sweep, with_contenders
from railweave.experiments.allreduce.run import run as run_sweep
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import drawing
from railweave.experiments.problem import LANES
from railweave.experiments.scenario import EACH, Scenario, Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class NetworkConditions:
    """The probabilities of loss, duplication and reordering on a link, in each direction."""

    loss: float
    duplicate: float
    reorder: float

    def settings(self) -> str:
        """Return the switches' option for these conditions; empty if all probabilities are 0."""
        values = asdict(self)
        return ",".join(f"{name}={value:g}" for name, value in values.items()) if any(values.values()) else ""


@dataclass(frozen=True)
class Point:
    """One topology under one set of conditions. `utilisation` is relative to the limit; None if unshaped."""

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


def workload(chunks: int, size_bytes: int) -> Workload:
    """Return a workload of at least `chunks` chunks, without a warm-up."""
    if chunks < 1:
        raise OptionError(f"--chunks {chunks}", "at least 1", "correct --chunks")
    calls = math.ceil(chunks / chunks_of(size_bytes))
    return Workload((size_bytes,), dtype="int32", warmup=0, iterations=calls, verify=EACH)


def conditions(losses: Sequence[float], duplicate: float, reorder: float) -> list[NetworkConditions]:
    """Return the conditions for each loss. Raise OptionError for a value that is not a probability."""
    probabilities = [("--losses", loss) for loss in losses]
    for name, value in (*probabilities, ("--duplicate", duplicate), ("--reorder", reorder)):
        if not 0 <= value < 1:
            raise OptionError(f"{name} {value:g}", "a probability from 0 to below 1", f"correct {name}")
    return [NetworkConditions(loss, duplicate, reorder) for loss in losses]


def impaired(scenario: Scenario, under: NetworkConditions, seed: int) -> Scenario:
    """Return the scenario under these conditions, with railweave as contender."""
    name = f"{scenario.network.name}-{under.loss:g}"
    return with_contenders(replace(scenario, name=name, impair=under.settings(), seed=seed))


async def run(
    scenarios: Sequence[tuple[NetworkConditions, Scenario]],
    out: Path,
    on_phase: Callable[[str], None] = lambda _: None,
    on_point: Callable[[Point], None] = lambda _: None,
) -> list[Point]:
    """Run all sweeps. Raises LabError and OptionError."""
    points = []
    for under, scenario in scenarios:
        points.append(_point(under, await run_sweep(scenario, out / scenario.name, on_phase)))
        on_point(points[-1])
    return points


def _point(under: NetworkConditions, sweep: Sweep) -> Point:
    ((row,),) = sweep.rows.values()
    time_s = sum(row.seconds)
    bps = row.bytes * 8 * len(row.seconds) / time_s
    return Point(
        topology=f"{sweep.scenario.network.name}, {row.ranks} hosts",
        hosts=row.ranks,
        **asdict(under),
        chunks=len(row.seconds) * chunks_of(row.bytes),
        time_s=time_s,
        utilisation=bps / row.limit_bps if row.limit_bps else None,
        wrong=row.wrong,
        retransmissions=sum(int(rail["retransmissions"]) for rail in sweep.records[0].counters.values()),
    )


def chunks_of(size_bytes: int) -> int:
    """Return the number of chunks of a sum. The last chunk may be partly filled."""
    return math.ceil(size_bytes / 4 / LANES)


def as_json(points: Sequence[Point]) -> dict[str, Any]:
    """Return the curve for machines."""
    return {"rows": [asdict(point) for point in points], "ok": all(point.wrong == 0 for point in points)}


def draw(points: Sequence[Point]) -> Figure:
    """Draw the time of the same sums against loss, a line per topology."""
    figure, (panel,) = drawing.sheet(1)
    for topology in dict.fromkeys(point.topology for point in points):
        of = [point for point in points if point.topology == topology]
        panel.plot([100 * p.loss for p in of], [p.time_s for p in of], marker="o", label=topology)
    panel.set_xlabel("packets lost on every link, each way (%)")
    panel.set_ylabel(f"time of {points[0].chunks:,} chunks (s)")
    panel.set_ylim(bottom=0)
    panel.legend()
    return figure
