# SPDX-License-Identifier: Apache-2.0
"""How several jobs shared their links, as a table and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from railweave.experiments.jobs.run import JobRow, JobsResult


def table(result: JobsResult) -> Table:
    """Return a row per job: throughput and share of every rail, and why a rail is not used."""
    rails = [plane.name for plane in result.options.topology.planes]
    made = Table(
        title=f"{len(result.rows)} concurrent jobs, measured over {result.window_s:.1f} s in which all ran"
    )
    made.add_column("job")
    for rail in rails:
        made.add_column(f"{rail} (Mbit/s)", justify="right")
        made.add_column("share", justify="right")
    made.add_column("calls", justify="right")
    made.add_column("#wrong", justify="right")
    made.add_column("not used")
    for row in result.rows:
        cells = [row.job]
        for rail in rails:
            cells += [f"{row.bps[rail] / 1e6:.1f}", f"{row.share[rail]:.1%}"]
        made.add_row(*cells, str(row.calls), str(row.wrong), _not_used(row))
    return made


def utilisations(result: JobsResult) -> list[str]:
    """Return all jobs' throughput relative to every shaped rail's limit."""
    lines = []
    for plane in result.options.topology.planes:
        fraction = result.utilisation(plane.name)
        if fraction is not None:
            lines.append(f"{plane.name}: all jobs together {fraction:.1%} of the physical limit")
    return lines


def as_json(result: JobsResult) -> dict[str, Any]:
    """Return the result as JSON values; rates are bits of tensors per second."""
    options = result.options
    return {
        "hosts": len(options.topology.hosts),
        "topology": options.topology.name,
        "switch": options.lab.switch_target,
        "bytes": options.bytes,
        "window_s": result.window_s,
        "utilisation": {plane.name: result.utilisation(plane.name) for plane in options.topology.planes},
        "rows": [asdict(row) for row in result.rows],
        "ok": result.ok,
    }


def _not_used(row: JobRow) -> str:
    return "; ".join(f"{rail}: {reason}" for rail, reason in row.why.items())
