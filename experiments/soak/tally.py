# SPDX-License-Identifier: Apache-2.0
"""The results of a soak so far: counts, errors, and the growth of memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from railweave.experiments.units import format_bytes

WARM_UP = 0.25  # share of the time: memory pools grow until the largest tensors have been used
LEAST_S = 60.0  # shortest time over which a slope is given
HOUR_S = 3600.0


@dataclass
class RankTally:
    """One rank's counts."""

    calls: int = 0
    bytes: int = 0
    wrong: int = 0  # number of wrong elements
    longest_s: float = 0.0  # longest time between the ends of two calls
    rails: dict[str, dict[str, Any]] = field(default_factory=dict)  # counts by rail since the last join


@dataclass
class Tally:
    """All counts. They grow during the run."""

    begin: float = 0.0
    ranks: dict[int, RankTally] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    stuck: int = 0  # calls of all ranks that took so long that no new faults were injected
    judged: int = 0  # calls that were long enough to be compared with their time limit
    late: list[str] = field(default_factory=list)  # calls that exceeded their time limit
    errors: list[str] = field(default_factory=list)
    rss_mib: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # (s, MiB) by process

    def tick(self, rank: int, message: dict[str, Any]) -> None:
        """Add a rank's counts since its last message."""
        tally = self.ranks.setdefault(rank, RankTally())
        tally.calls += message["calls"]
        tally.bytes += message["bytes"]
        tally.wrong += message["wrong"]
        tally.longest_s = max(tally.longest_s, message["longest_s"])
        tally.rails = message["rails"]
        self.memory(f"rank {rank}", message["rss_mib"])

    def memory(self, process: str, rss_mib: float) -> None:
        """Add a sample of a process's resident memory."""
        self.rss_mib.setdefault(process, []).append((time.monotonic() - self.begin, rss_mib))

    @property
    def calls(self) -> int:
        """The number of calls that every rank has completed."""
        return min((tally.calls for tally in self.ranks.values()), default=0)

    def failovers(self) -> dict[str, int]:
        """Return the number of exclusions since rank 0 last joined, by rail."""
        rails = self.ranks[0].rails if 0 in self.ranks else {}
        return {name: counts["failures"] for name, counts in rails.items()}

    def failed(self) -> str:
        """Return the failures as text; empty if there are no failures."""
        found = {"errors": len(self.errors), "wrong elements": self.wrong, "late calls": len(self.late)}
        return ", ".join(f"{count} {name}" for name, count in found.items()) if any(found.values()) else ""

    @property
    def wrong(self) -> int:
        """The number of wrong elements of all ranks."""
        return sum(tally.wrong for tally in self.ranks.values())

    def sample(self) -> dict[str, Any]:
        """Return the counts so far, for the record."""
        return {
            "calls": self.calls,
            "bytes": min((tally.bytes for tally in self.ranks.values()), default=0),
            "wrong": self.wrong,
            "errors": len(self.errors),
            "stuck": self.stuck,
            "faults": self.faults.total(),
            "failovers": self.failovers(),
            "rails": self.ranks[0].rails if 0 in self.ranks else {},
            "rss_mib": {name: round(series[-1][1], 1) for name, series in self.rss_mib.items()},
        }

    def summary(self) -> dict[str, Any]:
        """Return the counts and the growth of memory as JSON values."""
        return {
            "ok": not self.failed(),
            **self.sample(),
            "rows": [
                {"rank": rank, "calls": t.calls, "bytes": t.bytes, "wrong": t.wrong, "longest_s": t.longest_s}
                for rank, t in sorted(self.ranks.items())
            ],
            "minutes": round((time.monotonic() - self.begin) / 60, 2) if self.begin else 0.0,
            "longest_s": max((tally.longest_s for tally in self.ranks.values()), default=0.0),
            "by_fault": dict(self.faults),
            "error_texts": self.errors[:20],
            "judged": self.judged,
            "late": self.late[:20],
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


def growth(series: Sequence[tuple[float, float]]) -> float | None:
    """Return the slope of memory in MiB per hour after the warm-up, by least squares; None if too short."""
    if not series:
        return None
    warm = series[-1][0] * WARM_UP
    late = [(at, rss) for at, rss in series if at >= warm]
    if late[-1][0] - late[0][0] < LEAST_S:
        return None
    mean_at = sum(at for at, _ in late) / len(late)
    mean_rss = sum(rss for _, rss in late) / len(late)
    spread = sum((at - mean_at) ** 2 for at, _ in late)
    slope = sum((at - mean_at) * (rss - mean_rss) for at, rss in late) / spread
    return round(slope * HOUR_S, 2)
