# SPDX-License-Identifier: Apache-2.0
"""Run a benchmark: repetitions, medians with intervals, tables and JSON."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railweave.experiments import provenance, tables, units
from railweave.experiments.cpu import CpuTimes, cpu_times
from railweave.experiments.errors import OptionError
from railweave.experiments.measures import Measured

if TYPE_CHECKING:
    from rich.table import Table

REPORT = "report this: it is an error of railweave"  # the remedy where a result was wrong
OnPhase = Callable[[str], None]
Parameters = Mapping[str, str | int]


@dataclass(frozen=True)
class Reading:
    """Numbers that one repetition has measured: a line of a table."""

    table: str
    parameters: Parameters
    numbers: Mapping[str, tuple[float, str]]  # value and unit, by name


# Measures every line once. The folder is for logs.
Measure = Callable[[Path, OnPhase], AsyncIterator[Reading]]


@dataclass(frozen=True)
class Part:
    """A part of a benchmark, which can be measured alone."""

    measure: Measure
    limit: str  # the resource that limits the numbers
    notes: Sequence[str]  # the meaning of the numbers


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, ready to run."""

    name: str
    parts: Mapping[str, Part]
    missing: tuple[str, ...] = ()  # measurements that this machine cannot make, with reasons

    def only(self, names: Sequence[str]) -> Benchmark:
        """Return the benchmark with some of its parts. Raise OptionError for an unknown part, or none."""
        for name in names or [""]:
            if name not in self.parts:
                raise OptionError(f"--parts {name!r}", f"one of {', '.join(self.parts)}", "correct the name")
        return replace(self, parts={name: self.parts[name] for name in names})


@dataclass(frozen=True)
class Row:
    """The samples of one number. Its value is their median."""

    table: str
    parameters: Parameters
    name: str
    unit: str
    samples: list[float] = field(default_factory=list)

    @cached_property
    def measured(self) -> Measured:
        """Return the median with its interval."""
        return Measured.of(self.samples)

    def as_json(self) -> dict[str, Any]:
        """Return the row for machines."""
        found = self.measured
        head = {"table": self.table, **self.parameters, "name": self.name}
        numbers = {"value": found.value, "unit": self.unit, "low": found.low, "high": found.high}
        return {**head, **numbers, "repetitions": found.rounds}

    def text(self) -> str:
        """Return the value with three digits, and the interval's larger half."""
        found = self.measured
        value, half = found.value, max(found.high - found.value, found.value - found.low)
        if not half:
            return units.number_text(value, 3)
        spread = f"{half / abs(value):.0%}" if value else units.number_text(half, 2)
        return f"{units.number_text(value, 3)} ±{spread}"


@dataclass(frozen=True)
class Result:
    """All rows of a benchmark, and the use of the cores meanwhile."""

    benchmark: Benchmark
    rows: tuple[Row, ...]
    cpu: CpuTimes

    def tables(self) -> Iterator[Table]:
        """Yield the tables, with a line for each set of parameters."""
        for title in dict.fromkeys(row.table for row in self.rows):
            rows = [row for row in self.rows if row.table == title]
            keys = list(rows[0].parameters)
            names = list(dict.fromkeys((row.name, row.unit) for row in rows))
            lines: dict[tuple[str, ...], dict[tuple[str, str], str]] = {}
            for row in rows:
                line = lines.setdefault(tuple(map(str, row.parameters.values())), {})
                line[row.name, row.unit] = row.text()
            yield tables.table(
                [*keys, *("\n".join(name) for name in names)],
                [(*line, *(cells.get(name, "-") for name in names)) for line, cells in lines.items()],
                left=len(keys),
                box=None,
                title=title,
            )

    def notes(self) -> str:
        """Return the notes for the reader of the tables."""
        parts = self.benchmark.parts
        meaning = dict.fromkeys(note for part in parts.values() for note in part.notes)
        missing = (f"not measured: {each}" for each in self.benchmark.missing)
        limits = (f"limit of {name}: {part.limit}" for name, part in parts.items())
        shares = f"{self._share('idle_s'):.0%} idle, {self._share('stolen_s'):.0%} stolen"
        spread = "±: 95 % interval of the median"
        return tables.notes(*meaning, spread, *missing, *limits, f"{os.cpu_count()} cores, {shares}")

    def as_json(self) -> dict[str, Any]:
        """Return the result for machines. It has no wrong result, since such a result is an error."""
        return {
            "ok": True,
            "commit": provenance.commit(),
            "benchmark": self.benchmark.name,
            "rows": [row.as_json() for row in self.rows],
            "missing": list(self.benchmark.missing),
            "limits": {name: part.limit for name, part in self.benchmark.parts.items()},
            "cores": os.cpu_count(),
            "idle": round(self._share("idle_s"), 3),
            "stolen": round(self._share("stolen_s"), 3),
        }

    def _share(self, count: str) -> float:
        return float(getattr(self.cpu, count)) / (self.cpu.total_s or 1)


async def run(benchmark: Benchmark, repeat: int, folder: Path, on_phase: OnPhase) -> Result:
    """Measure everything `repeat` times, interleaved: a slow minute affects all rows."""
    rows: dict[tuple[Any, ...], Row] = {}
    before = cpu_times({})
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, repeat + 1):
        for name, part in benchmark.parts.items():
            tell = partial(_tell, on_phase, f"{name}, repetition {number} of {repeat}")
            async for reading in part.measure(folder, tell):
                for number_name, (value, unit) in reading.numbers.items():
                    key = (reading.table, *reading.parameters.items(), number_name)
                    row = Row(reading.table, reading.parameters, number_name, unit)
                    rows.setdefault(key, row).samples.append(value)
    return Result(benchmark, tuple(rows.values()), cpu_times({}) - before)


def _tell(on_phase: OnPhase, about: str, text: str) -> None:
    on_phase(f"{about}: {text}")
