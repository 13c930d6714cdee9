# SPDX-License-Identifier: Apache-2.0
"""Save learned costs as a JSON file, so that a job starts hot. All fields are checked before any is used.

A file holds costs of several kinds of job. A kind is the number of hosts and the rails. Costs of another kind
do not apply. All ranks have learned the same costs, so each rank can save and load a separate file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from railweave.errors import explain
from railweave.hosts.capabilities import COLLECTIVE_NAMES
from railweave.hosts.decisions import Ledger, Verdict, size_class
from railweave.hosts.errors import InvalidOption
from railweave.hosts.striping.costs import NUMBERS, CostKey, CostTable, Slowness
from railweave.hosts.striping.planner import Planner
from railweave.hosts.striping.priors import StripedRail
from railweave.topologies.errors import TopologyError
from railweave.topologies.model import RAIL_KINDS
from railweave.topologies.values import build

VERSION = 2
LARGEST_FILE = 16 << 20  # bytes
REMOVE = "remove it: jobs learn their costs again"
RANGES = {
    "hosts": (2, 1 << 16),
    "rate_bps": (0, 10**15),
    "size_class": (1, 1 << 50),
    "slowness": (1e-9, 1e9),
    "samples": (0, 1 << 53),
}
CHOICES: dict[str, Collection[str]] = {
    "kind": RAIL_KINDS,
    "collective": COLLECTIVE_NAMES.values(),
    "numbers": NUMBERS,
}


@dataclass(frozen=True)
class Rail:
    """A rail of a job."""

    name: str
    kind: str
    rate_bps: int


@dataclass(frozen=True)
class Cost:
    """Cost of a rail in calls of one class, alone or beside others, relative to the promise of its link."""

    rail: str
    collective: str
    numbers: str
    size_class: int
    alone: bool
    slowness: float
    samples: int


@dataclass(frozen=True)
class Job:
    """One kind of job."""

    hosts: int
    rails: tuple[Rail, ...]
    costs: tuple[Cost, ...] = ()

    def __str__(self) -> str:
        """Return the kind of job as text. Jobs with the same text share costs."""
        rails = ", ".join(f"{rail.name} ({rail.kind}, {rail.rate_bps} bit/s)" for rail in self.rails)
        return f"{self.hosts} hosts, rails {rails}"


@dataclass(frozen=True)
class File:
    """Contents of a costs file."""

    jobs: tuple[Job, ...]
    version: int = 0
    format: str = "railweave costs"


def read(path: Path) -> Sequence[Job]:
    """Return all jobs in a file. InvalidOption names the file, the field, and the expected value."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidOption(
                f"costs file {path}: {path.stat().st_size} bytes", f"{LARGEST_FILE} bytes at most", REMOVE
            )
        value = json.loads(path.read_text("utf-8"), parse_constant=_no_constant)
    except InvalidOption:
        raise
    except OSError as error:
        raise InvalidOption(
            f"costs file {path}: {error.strerror}", "a file that can be read", "correct its mode or its name"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidOption(
            f"costs file {path}: not JSON ({error})", "a file that railweave has written", REMOVE
        ) from error
    try:
        file = build(File, value, "the file")
        if file.format != File.format:
            raise ValueError(explain(f"format is {file.format!r}", repr(File.format), "name another file"))
        if file.version != VERSION:
            raise ValueError(explain(f"version is {file.version}", str(VERSION), REMOVE))
        for place, job in enumerate(file.jobs):
            _check(job, f"jobs[{place}]")
    except (ValueError, TopologyError) as error:
        text = str(error)
        raise InvalidOption(f"costs file {path}: {text[:300]}{'…' * (len(text) > 300)}") from None
    return file.jobs


def _check(job: Job, at: str) -> None:
    """Raise ValueError if a value of a job is invalid."""
    names = [rail.name for rail in job.rails]
    if len({*names, ""}) <= len(names):
        raise ValueError(explain(f"{at}.rails: {', '.join(names)}", "different names", REMOVE))
    choices = {**CHOICES, "rail": names}
    costs = [(f"{at}.costs[{place}]", cost) for place, cost in enumerate(job.costs)]
    for where, part in [(at, job), *((f"{at}.rails", rail) for rail in job.rails), *costs]:
        for name, value in vars(part).items():
            if name in choices and value not in choices[name]:
                raise ValueError(
                    explain(f"{where}.{name} is {value!r}", f"one of {', '.join(choices[name])}", REMOVE)
                )
            if name in RANGES and not RANGES[name][0] <= value <= RANGES[name][1]:
                expected = "a number from {:g} to {:g}".format(*RANGES[name])
                raise ValueError(explain(f"{where}.{name} is {value}", expected, REMOVE))
    seen = set()
    for where, cost in costs:
        if cost.size_class != size_class(cost.size_class):
            raise ValueError(explain(f"{where}.size_class is {cost.size_class}", "a power of two", REMOVE))
        if (key := replace(cost, slowness=1.0, samples=0)) in seen:
            raise ValueError(
                explain(f"{where} repeats the cost of a rail and class", "one cost for each", REMOVE)
            )
        seen.add(key)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def save(planner: Planner, path: Path) -> None:
    """Save learned costs, and keep other jobs in the file. Raises InvalidOption if this fails."""
    with planner.lock:
        job = dump(planner.table, planner.rails, planner.world_size)
    others = [other for other in read(path) if str(other) != str(job)] if path.exists() else []
    file = {"format": File.format, "version": VERSION, "jobs": [asdict(each) for each in (*others, job)]}
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(file, indent=1) + "\n", "utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InvalidOption(
            f"costs file {path}: {error.strerror}",
            "a file that can be written",
            "correct its mode, or name another one",
        ) from error


def dump(table: CostTable, rails: Sequence[StripedRail], hosts: int) -> Job:
    """Return the costs of a table as a job."""
    names = {rail.index: rail.name for rail in rails}
    costs = (
        Cost(names[rail], key.collective, key.numbers, key.size_class, alone, known.value, known.samples)
        for (key, rail, alone), known in sorted(table.known.items(), key=lambda item: item[0])
    )
    return Job(hosts, tuple(Rail(rail.name, rail.kind, rail.rate_bps) for rail in rails), tuple(costs))


def planner_for(
    rails: Sequence[StripedRail],
    world_size: int,
    ledger: Ledger,
    *,
    refused: Mapping[str, Verdict] | None = None,
    fixed: bool = False,
    deterministic: bool = False,
    costs: str = "",
) -> Planner:
    """Return a planner that starts from the costs in a file, if the file has this kind of job.

    Raises InvalidOption if the file is invalid. Costs of another number of hosts, or of other rails, are not
    used. The planner's note says so.
    """
    options: dict[str, Any] = {"refused": refused, "fixed": fixed, "deterministic": deterministic}
    if not costs or fixed or len(rails) < 2:
        return Planner(rails, world_size, ledger, opening=bool(costs), **options)
    table, path = CostTable(rails, world_size), Path(costs)
    like = dump(table, rails, world_size)
    jobs = read(path) if path.exists() else ()
    found = next((job for job in jobs if str(job) == str(like)), None)
    note = "" if found else f"{path} is not there yet: no costs are loaded"
    if jobs and found is None:
        known = "; ".join(map(str, jobs))
        note = f"{path} has costs of other jobs ({known}), none of {like}: none are used"
    index = {rail.name: rail.index for rail in rails}
    for cost in found.costs if found else ():
        key = CostKey(cost.collective, cost.numbers, cost.size_class)
        table.put((key, index[cost.rail], cost.alone), Slowness((cost.slowness,), cost.samples))
    digest = str(found.costs) if found else ""
    return Planner(
        rails, world_size, ledger, costs=table, costs_digest=digest, opening=True, note=note, **options
    )
