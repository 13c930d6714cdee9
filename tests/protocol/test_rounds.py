# SPDX-License-Identifier: Apache-2.0
"""The time that the agreement on rails takes, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from protocol.recovery_network import QUIET, Host, Network
from protocol.recovery_schedules import BusyMachine, Schedule
from protocol.virtual_time import MILLISECOND, SECOND

from railweave._rigs import recovery

SHAPES = ((2, 2), (4, 2), (8, 3))  # ranks, rails
AIM_MS = 80  # from a cut to the decision
AIM_EARLY_MS = 180  # for a rail that is almost unknown


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
        for rank in range(self.ranks):
            self.work(Host(self, rank))
        cut_at = self.known + self.random.randrange(SECOND)
        self.network.at(cut_at, self.random.choice((self.cut_host, self.cut_rail)))
        self.network.run_until(cut_at + SECOND, lambda: len(self.applied_at) == self.ranks)
        return (self.applied_at[self.ranks - 1] - cut_at) / MILLISECOND


def pauses_ms(ranks: int, rails: int, cuts: int, known: int = 3 * SECOND // 2) -> list[float]:
    """Return the pauses of `cuts` cuts, sorted by length."""
    return sorted(QuietNetwork(seed, ranks, rails, known).pause_ms() for seed in range(cuts))


def test_pauses(record_property: Callable[[str, object], None]) -> None:
    for ranks, rails in SHAPES:
        pauses = pauses_ms(ranks, rails, 20)
        assert pauses[-1] < AIM_MS
        record_property(
            "summary", f"recovery: {ranks} ranks, {rails} rails: cut to decision {pauses[-1]:.1f} ms at most"
        )


def test_pauses_of_a_job_that_has_just_begun() -> None:
    """Ranks are more patient with an almost unknown rail, but still exclude it within 180 ms."""
    for ranks, rails in SHAPES:
        assert pauses_ms(ranks, rails, 10, known=SECOND // 10)[-1] < AIM_EARLY_MS


@pytest.mark.parametrize("seed", range(3))
def test_nobody_suspects_a_rail_for_processes_that_run_late(seed: int) -> None:
    BusyMachine(seed).run()
