# SPDX-License-Identifier: Apache-2.0
"""One sweep per number of hosts: in-network latency should not grow with it, a ring's does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railweave.experiments.allreduce.run import Row, Sweep
from railweave.experiments.allreduce.run import run as run_sweep
from railweave.experiments.scenario import Scenario


@dataclass(frozen=True)
class ScalingResult:
    """The sweeps, by number of hosts."""

    sweeps: Sequence[Sweep]

    @property
    def ok(self) -> bool:
        """Whether no element was wrong."""
        return all(sweep.ok for sweep in self.sweeps)

    @property
    def versions(self) -> dict[str, str]:
        """The versions of all software that was measured."""
        return {name: version for sweep in self.sweeps for name, version in sweep.versions.items()}

    def curves(self) -> dict[tuple[str, int], list[Row]]:
        """Return the rows of each (contender, size in bytes), by hosts."""
        curves: dict[tuple[str, int], list[Row]] = {}
        for sweep in self.sweeps:
            for row in (row for rows in sweep.rows.values() for row in rows):
                curves.setdefault((row.contender, row.bytes), []).append(row)
        return curves


async def run(
    scenarios: Sequence[Scenario],
    out: Path,
    on_phase: Callable[[str], None] = lambda _: None,
    on_row: Callable[[Row], None] = lambda _: None,
) -> ScalingResult:
    """Run one sweep after the other; raises LabError and OptionError."""
    return ScalingResult([await run_sweep(each, out / each.name, on_phase, on_row) for each in scenarios])


def as_json(result: ScalingResult) -> dict[str, Any]:
    """Return the curves for machines; times in microseconds."""
    return {
        "rows": [
            {
                "contender": contender,
                "version": result.sweeps[0].version(contender) or None,
                "bytes": size,
                "points": [
                    {
                        "hosts": row.ranks,
                        "time_us_median": row.median_s * 1e6,
                        "time_us_p99": row.p99_s * 1e6,
                        "limit_fraction": row.limit_fraction,
                        "wrong": row.wrong,
                    }
                    for row in rows
                ],
            }
            for (contender, size), rows in result.curves().items()
        ],
        "ok": result.ok,
    }
