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
    """A network with one fault: a host's link or a whole rail is cut for good. Agents answer at once."""

    def __init__(self, seed: int, ranks: int, rails: int, known: int) -> None:
        """Plan the cut for a random time in the second after `known` ns."""
        super().__init__(seed)
        self.known = known
        self.ranks, self.rails, self.quiet = ranks, rails, True
        self.network = Network(rails, QUIET, seed)
        self.mended, self.down_since = [-1] * rails, [-SECOND] * rails
        self.applied_at: list[int] = []

    def repair(self, action: Callable[[], None], within: tuple[int, int]) -> None:
        """Repair nothing."""

    def soon(self, host: Host, action: Callable[[], None]) -> None:
        """Let the agent do something at once."""
        self.network.at(self.network.now, partial(self.act, host, action))

    def applied(self, host: Host, commit: recovery.Commit, now: int) -> None:
        """Store when a rank has applied the decision."""
        super().applied(host, commit, now)
        self.applied_at.append(now)

    def pause_ms(self) -> float:
        """Return the time from the cut until the last rank has applied the decision."""
        self.hosts = [Host(self, rank) for rank in range(self.ranks)]
        for host in self.hosts:
            self.network.add(host)
            self.work(host)
        cut_at = self.known + self.random.randrange(SECOND)
        self.network.at(cut_at, self.random.choice((self.cut_host, self.cut_rail)))
        self.network.run_until(cut_at + SECOND, lambda: len(self.applied_at) == self.ranks)
        return (self.applied_at[self.ranks - 1] - cut_at) / MILLISECOND


def pauses_ms(ranks: int, rails: int, cuts: int, known: int = 3 * SECOND // 2) -> list[float]:
    """Return the pauses of `cuts` cuts, sorted by length."""
    return sorted(QuietNetwork(seed, ranks, rails, known).pause_ms() for seed in range(cuts))
