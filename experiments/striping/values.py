# SPDX-License-Identifier: Apache-2.0
"""What the striping experiments run, and what they find, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from railweave.experiments import statistics
from railweave.experiments.striping.worker import Plan
from railweave.hosts.limits import limit_bps
from railweave.topologies.model import Topology
from railweave.topologies.planes import planes


@dataclass(frozen=True)
class StripingOptions:
    """All experiments."""

    parts: Sequence[str]  # of PARTS
    hosts: int
    threshold_hosts: Sequence[int]  # of the part `thresholds`
    rate_bps: int
    sizes: Sequence[int]  # in bytes
    iters: int
    out: Path


@dataclass(frozen=True)
class Case:
    """One network, and what its ranks do."""

    part: str  # of the experiment: sizes, thresholds, convergence or overhead
    kinds: tuple[str, ...]  # of the rails
    rates_bps: tuple[int, ...]
    hosts: int
    plan: Plan
    # Rates of rails that change while it runs: after this many calls, this rail, this many bit/s.
    changes: tuple[tuple[int, str, int], ...] = ()

    @cached_property
    def topology(self) -> Topology:
        """The network."""
        return planes(self.hosts, self.kinds, self.rates_bps)

    @property
    def rails(self) -> tuple[str, ...]:
        """The rails' names."""
        return tuple(plane.name for plane in self.topology.planes)

    @property
    def name(self) -> str:
        """What people call it: `tcp+tcp, 100/30 Mbit/s, 4 hosts`."""
        rates = "/".join(f"{rate / 1e6:g}" for rate in dict.fromkeys(self.rates_bps))
        return f"{'+'.join(self.kinds)}, {rates} Mbit/s, {self.hosts} hosts"

    def limit_shares(self) -> dict[str, float]:
        """Return each rail's part of what all links allow together."""
        limits = [
            limit_bps(kind, rate, self.hosts) for kind, rate in zip(self.kinds, self.rates_bps, strict=True)
        ]
        return {rail: limit / sum(limits) for rail, limit in zip(self.rails, limits, strict=True)}


@dataclass(frozen=True)
class Row:
    """One size of one contender."""

    bytes: int
    contender: str  # rails joined by +
    seconds: Sequence[float]  # per call: of each block, mean over the ranks
    shares: Sequence[Mapping[str, float]]  # of each block, by rail
    wrong: int  # elements

    @property
    def median_s(self) -> float:
        """Return the median time of a call."""
        return statistics.median(self.seconds)

    def share(self, rail: str) -> float:
        """Return the median share of a rail."""
        return statistics.median([shares.get(rail, 0.0) for shares in self.shares])


@dataclass(frozen=True)
class Call:
    """One call of a trace."""

    place: int
    seconds: float  # mean over the ranks
    shares: Mapping[str, float]
    wrong: int


@dataclass(frozen=True)
class Found:
    """What a case has brought: rows, or a trace with the calls after which rates changed."""

    case: Case
    rows: Sequence[Row] = ()
    calls: Sequence[Call] = ()
    changed_after: Sequence[int] = ()

    @property
    def wrong(self) -> int:
        """Return the number of wrong elements."""
        return sum(row.wrong for row in self.rows) + sum(call.wrong for call in self.calls)
