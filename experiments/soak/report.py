# SPDX-License-Identifier: Apache-2.0
"""The summary of a soak as text."""

from __future__ import annotations

from rich.table import Table

from railweave.experiments.soak.tally import Tally
from railweave.experiments.units import format_bytes


def table(tally: Tally) -> Table:
    """Return the counts so far, one per line."""
    found = tally.summary()
    made = Table(
        title=f"soak of {found['minutes']:.1f} minutes",
        title_justify="left",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    faults = ", ".join(f"{count} {name}" for name, count in tally.faults.most_common())
    growth = ", ".join(
        f"{name} {slope:+.1f}" for name, slope in found["growth_mib_per_hour"].items() if slope is not None
    )
    rows = {
        "calls of each rank": f"{found['calls']:,}",
        "tensors of each rank": format_bytes(found["bytes"]),
        "faults": f"{found['faults']}: {faults}" if faults else "none",
        "failovers": ", ".join(f"{name} {count}" for name, count in found["failovers"].items()),
        "longest time between two calls": f"{found['longest_s']:.2f} s",
        "errors": "\n".join([str(found["errors"]), *found["error_texts"]]),
        "wrong elements": str(found["wrong"]),
        "calls over their time limit": "\n".join([f"{len(tally.late)} of {tally.judged}", *found["late"]]),
        "memory": ", ".join(f"{name} {rss:.0f} MiB" for name, rss in found["rss_mib"].items()),
        "memory growth (MiB/hour)": growth or "unknown: the run was too short",
    }
    for name, text in rows.items():
        made.add_row(name, text)
    return made
