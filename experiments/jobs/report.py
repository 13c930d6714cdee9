# SPDX-License-Identifier: Apache-2.0
"""The result of several jobs that share links, as a table and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from railweave.experiments import tables
from railweave.experiments.jobs.run import JobsResult


def table(result: JobsResult) -> Table:
    """Return a row per job: throughput and share on every rail, and the reason for an unused rail."""
    rails = [plane.name for plane in result.options.topology.planes]
    per_rail = [title for rail in rails for title in (f"{rail} (Mbit/s)", "share")]
    rows = []
    for row in result.rows:
        got = [text for rail in rails for text in (f"{row.bps[rail] / 1e6:.1f}", f"{row.share[rail]:.1%}")]
        not_used = "; ".join(f"{rail}: {reason}" for rail, reason in row.why.items())
        rows.append((row.job, *got, str(row.calls), str(row.wrong), not_used or "-"))
    title = f"{len(result.rows)} jobs at once, for {result.window_s:.1f} s"
    return tables.table(("job", *per_rail, "calls", "#wrong", "not used"), rows, title=title, box=None)


def utilisations(result: JobsResult) -> list[str]:
    """Return all jobs' throughput relative to every shaped rail's limit."""
    lines = []
    for plane in result.options.topology.planes:
        fraction = result.utilisation(plane.name)
        if fraction is not None:
            lines.append(
                f"{plane.name}: all jobs together reach {fraction:.1%} of the physical limit of the links."
            )
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
