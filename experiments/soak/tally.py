# SPDX-License-Identifier: Apache-2.0
"""The results of a soak so far: counts, errors, and the growth of memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.table import Table

from railweave.experiments import tables
from railweave.experiments.trace import RankTrace, error_texts, wrong_elements
from railweave.experiments.units import format_bytes

WARM_UP = 0.25  # share of the time: memory pools grow until the largest tensors have been used
LEAST_S = 60.0  # shortest time over which a slope is given
HOUR_S = 3600.0
MOST_TEXTS = 20


@dataclass
class Tally:
    """All counts. They grow during the run."""

    begin: float = 0.0
    ranks: Sequence[RankTrace] = ()
    faults: Counter[str] = field(default_factory=Counter)
    stuck: int = 0  # calls of all ranks that took so long that no new faults were injected
    judged: int = 0  # calls that were long enough to be compared with their time limit
    late: list[str] = field(default_factory=list)  # calls that exceeded their time limit
    rss_mib: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # (s, MiB) by process

    @property
    def begun(self) -> bool:
        """Whether a rank has completed a call."""
        return any(trace.done for trace in self.ranks)

    def memory(self, process: str, rss_mib: float) -> None:
        """Add a sample of a process's resident memory."""
        self.rss_mib.setdefault(process, []).append((time.monotonic() - self.begin, rss_mib))

    @property
    def errors(self) -> list[str]:
        """The errors of all ranks."""
        return error_texts(self.ranks)

    @property
    def wrong(self) -> int:
        """The number of wrong elements of all ranks."""
        return wrong_elements(self.ranks)

    def failed(self) -> str:
        """Return the failures as text; empty if there are no failures."""
        found = {"errors": len(self.errors), "wrong elements": self.wrong, "late calls": len(self.late)}
        return ", ".join(f"{count} {name}" for name, count in found.items()) if any(found.values()) else ""

    def sample(self) -> dict[str, Any]:
        """Return the counts so far, for the record. Counts by rail are those since rank 0 last joined."""
        rails = self.ranks[0].rails if self.ranks else {}
        return {
            "calls": min((trace.done for trace in self.ranks), default=0),
            "bytes": min((trace.bytes for trace in self.ranks), default=0),
            "wrong": self.wrong,
            "errors": len(self.errors),
            "stuck": self.stuck,
            "faults": self.faults.total(),
            "failovers": {name: counts.get("failures", 0) for name, counts in rails.items()},
            "rails": rails,
            "rss_mib": {name: round(series[-1][1], 1) for name, series in self.rss_mib.items()},
        }

    def summary(self) -> dict[str, Any]:
        """Return the counts and the growth of memory as JSON values."""
        return {
            "ok": not self.failed(),
            **self.sample(),
            "rows": [
                {"rank": rank, "calls": t.done, "bytes": t.bytes, "wrong": t.wrong, "longest_s": t.longest_s}
                for rank, t in enumerate(self.ranks)
            ],
            "minutes": round((time.monotonic() - self.begin) / 60, 2) if self.begin else 0.0,
            "longest_s": max((trace.longest_s for trace in self.ranks), default=0.0),
            "by_fault": self.faults,
            "error_texts": self.errors[:MOST_TEXTS],
            "judged": self.judged,
            "late": self.late[:MOST_TEXTS],
            "growth_mib_per_hour": {name: growth(series) for name, series in self.rss_mib.items()},
        }

    def line(self) -> str:
        """Return the counts in one line."""
        found = self.summary()
        words = (
            f"{found['calls']:,} calls",
            f"{format_bytes(found['bytes'])} per rank",
            f"{found['faults']} faults",
            f"{sum(found['failovers'].values())} failovers",
            f"{found['longest_s']:.2f} s at most between two calls",
            f"{found['errors']} errors",
            f"{found['wrong']} wrong",
            f"rank 0 has {found['rss_mib'].get('rank 0', 0.0):.0f} MiB",
        )
        return f"{found['minutes']:.0f} min: {', '.join(words)}"

    def table(self) -> Table:
        """Return the counts so far, one per line."""
        found = self.summary()
        faults = ", ".join(f"{count} {name}" for name, count in self.faults.most_common())
        slopes = found["growth_mib_per_hour"].items()
        growing = ", ".join(f"{name} {slope:+.1f}" for name, slope in slopes if slope is not None)
        rows = {
            "calls of each rank": f"{found['calls']:,}",
            "tensors of each rank": format_bytes(found["bytes"]),
            "faults": f"{found['faults']}: {faults}" if faults else "none",
            "failovers": ", ".join(f"{name} {count}" for name, count in found["failovers"].items()),
            "longest time between two calls": f"{found['longest_s']:.2f} s",
            "errors": "\n".join([str(found["errors"]), *found["error_texts"]]),
            "wrong elements": str(found["wrong"]),
            "calls over their time limit": "\n".join([f"{len(self.late)} of {self.judged}", *found["late"]]),
            "memory": ", ".join(f"{name} {rss:.0f} MiB" for name, rss in found["rss_mib"].items()),
            "memory growth (MiB/hour)": growing or "unknown: the run was too short",
        }
        title = f"soak of {found['minutes']:.1f} minutes"
        return tables.table(("", ""), rows.items(), left=2, title=title, box=None, show_header=False)


def growth(series: Sequence[tuple[float, float]]) -> float | None:
    """Return the slope of memory in MiB per hour after the warm-up, by least squares; None if too short."""
    warm = [(at, rss) for at, rss in series if at >= series[-1][0] * WARM_UP]
    times, rss = np.array(warm, dtype=float).reshape(-1, 2).T
    if not warm or np.ptp(times) < LEAST_S:
        return None
    return round(float(np.polyfit(times, rss, 1)[0]) * HOUR_S, 2)
