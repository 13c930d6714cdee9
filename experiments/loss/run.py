# SPDX-License-Identifier: Apache-2.0
"""One sweep per topology and probability of loss. Every element of every sum is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from railweave.experiments.allreduce.run import Sweep, with_contenders
from railweave.experiments.errors import OptionError
from railweave.experiments.figures import drawing
from railweave.experiments.problem import LANES
from railweave.experiments.scenario import EACH, Scenario, Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def scenarios(scenario: Scenario, losses: Sequence[float], **others: float) -> list[Scenario]:
    """Return the scenario once per loss, with railweave as contender.

    `others` are the probabilities of duplication and reordering. Raise OptionError for a value that is not a
    probability.
    """
    for name, value in (*(("losses", loss) for loss in losses), *others.items()):
        if not 0 <= value < 1:
            raise OptionError(f"--{name} {value:g}", "a probability from 0 to below 1", f"correct --{name}")
    return [
        with_contenders(
            replace(
                scenario,
                name=f"{scenario.network.name}-{loss:g}",
                impair=impairment({"loss": loss, **others}),
            )
        )
        for loss in losses
    ]


def impairment(probabilities: Mapping[str, float]) -> str:
    """Return the switches' option for these conditions; empty if all probabilities are 0."""
    if not any(probabilities.values()):
        return ""
    return ",".join(f"{name}={value:g}" for name, value in probabilities.items())


def point(sweep: Sweep) -> Point:
    """Return the results of a sweep of one size."""
    ((row,),) = sweep.rows.values()
    impaired = dict(part.split("=") for part in filter(None, sweep.scenario.impair.split(",")))
    time_s = sum(row.seconds)
    bps = row.bytes * 8 * len(row.seconds) / time_s
    return Point(
        topology=f"{sweep.scenario.network.name}, {row.ranks} hosts",
        hosts=row.ranks,
        **{name: float(impaired.get(name, 0)) for name in ("loss", "duplicate", "reorder")},
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
