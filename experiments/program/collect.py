# SPDX-License-Identifier: Apache-2.0
"""The reports of a job's ranks at their end, joined with the kernel's counts on their interfaces."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from railweave.experiments.accounting import RailAccount, account
from railweave.experiments.messages import RailCounts
from railweave.experiments.timeline import Span
from railweave.topologies.lab.counters import InterfaceCounters
from railweave.topologies.model import Plane

Interfaces = Mapping[str, Mapping[str, InterfaceCounters]]  # by plane and host


@dataclass(frozen=True)
class Collected:
    """Hold the reports of a job's ranks.

    Attributes:
        joined: Ranks that called `railweave.init`.
        rails: A `RailAccount` per rail: byte counts of agents and kernel, and whether they agree. Empty if no
            rank called `railweave.init`.
        spans: Slices of all ranks, in seconds since the first slice began.
        start_s: Begin of the first slice, in seconds of CLOCK_MONOTONIC.
    """

    joined: Sequence[int]
    rails: Sequence[RailAccount]
    spans: Sequence[Span]
    start_s: float


def collect(
    reports: Mapping[int, Path], planes: Sequence[Plane], interfaces: Interfaces, *, disturbed: bool = False
) -> Collected:
    """Read the ranks' report files, and join them with the kernel's counts during the job.

    `interfaces` are these counts. `disturbed` says that faults were injected: they may have removed frames
    before the kernel counted them.
    """
    lines = {rank: _lines(path) for rank, path in reports.items()}
    left = [(rank, line) for rank, found in lines.items() for line in found if line["event"] == "left"]
    counts: dict[int, dict[str, RailCounts]] = {}
    ports: dict[str, set[int]] = {}
    for rank, line in left:  # one per communicator
        of_rank = counts.setdefault(rank, {})
        for rail in line["rails"]:
            of_rank[rail["name"]] = of_rank.get(rail["name"], RailCounts()) + _counts(rail)
        for name, used in line["ports"].items():
            ports.setdefault(name, set()).update(used)
    start_s = min((s["start_s"] for _, line in left for s in line["slices"]), default=0.0)
    return Collected(
        joined=[rank for rank, found in lines.items() if found],
        rails=account(planes, counts, interfaces, ports, disturbed=disturbed) if counts else [],
        spans=_spans(left, start_s),
        start_s=start_s,
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _counts(rail: Mapping[str, Any]) -> RailCounts:
    values = {**rail, **{f"sent_{name}": count for name, count in rail["sent"].items()}}
    return RailCounts(**{f.name: values[f.name] for f in fields(RailCounts)})


def _spans(left: Sequence[tuple[int, Mapping[str, Any]]], start: float) -> list[Span]:
    return [
        Span(rank, s["rail"], s["op_index"], s["start_s"] - start, s["end_s"] - start, s["bytes"])
        for rank, line in left
        for s in line["slices"]
        if not s["survey"]
    ]
