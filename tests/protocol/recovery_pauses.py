# SPDX-License-Identifier: Apache-2.0
"""The time between a cut and the decision on all ranks, on a quiet network, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from protocol.recovery_hosts import Host
from protocol.recovery_network import QUIET, Network
from protocol.recovery_schedules import Schedule
from protocol.virtual_time import MILLISECOND, SECOND

from railweave._native import recovery

SHAPES = ((2, 2), (4, 2), (8, 3))  # ranks, rails


class QuietNetwork(Schedule):
    """Nothing happens but one cut, of a host's link or of a whole rail, for good; agents answer at once."""

    def __init__(self, seed: int, ranks: int, rails: int, known: int) -> None:
        """Let the cut come within a second, once rails have been known for so long (ns)."""
        super().__init__(seed)
        self.known = known
        self.ranks, self.rails, self.quiet = ranks, rails, True
        self.network = Network(rails, QUIET, seed)
        self.mended, self.down_since = [-1] * rails, [-SECOND] * rails
        self.applied_at: list[int] = []

    def repair(self, action: Callable[[], None], within: tuple[int, int]) -> None:
        """Nothing is repaired."""

    def soon(self, host: Host, action: Callable[[], None]) -> None:
        """Let the agent do something at once."""
        self.network.at(self.network.now, partial(self.act, host, action))

    def applied(self, host: Host, commit: recovery.Commit, now: int) -> None:
        """Write it down."""
        super().applied(host, commit, now)
        self.applied_at.append(now)

    def pause_ms(self) -> float:
        """From the cut until the last rank has applied the decision."""
        self.hosts = [Host(self, rank) for rank in range(self.ranks)]
        for host in self.hosts:
            self.network.add(host)
            self.work(host)
        cut_at = self.known + self.random.randrange(SECOND)
        self.network.at(cut_at, self.random.choice((self.cut_host, self.cut_rail)))
        self.network.run_until(cut_at + SECOND, lambda: len(self.applied_at) == self.ranks)
        return (self.applied_at[self.ranks - 1] - cut_at) / MILLISECOND


def pauses_ms(ranks: int, rails: int, cuts: int, known: int = 3 * SECOND // 2) -> list[float]:
    """Of that many cuts, in order of length."""
    return sorted(QuietNetwork(seed, ranks, rails, known).pause_ms() for seed in range(cuts))
