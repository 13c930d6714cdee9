# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a series tell, kept so that a trial can ask what a fault has done to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from railweave.experiments.following import Ended, Following
from railweave.topologies.lab.lab import Lab


@dataclass(frozen=True)
class Slow:
    """A call that took long; times of CLOCK_MONOTONIC."""

    begin: float
    end: float


@dataclass
class RankLog:
    """One rank's words."""

    joined: float = 0.0
    progress: float = 0.0  # end of the last call that was told of
    wrong: int = 0
    slow: list[Slow] = field(default_factory=list)
    errors: list[Ended] = field(default_factory=list)

    def held_up_after(self, since: float) -> Slow | None:
        """Return what has held up this rank for longest after `since`; None if no call was slow."""
        later = [Slow(max(slow.begin, since), slow.end) for slow in self.slow if slow.end > since]
        return max(later, key=lambda slow: slow.end - slow.begin, default=None)

    def error_after(self, since: float) -> Ended | None:
        """Return the first error after `since`."""
        return next((error for error in self.errors if error.at >= since), None)


class Watch(Following[RankLog]):
    """Reads what the workers of a lab print, in a task of its own."""

    def __init__(self, lab: Lab, ranks: int) -> None:
        """Begin with ranks of which nothing is known."""
        super().__init__(lab, [RankLog() for _ in range(ranks)])

    def take(self, log: RankLog, message: dict[str, Any]) -> None:
        """Enter what a rank has told."""
        match message["event"]:
            case "joined":
                log.joined = message["at"]
            case "tick":
                log.progress = message["at"]
                log.wrong += message["wrong"]
            case "slow":
                log.slow.append(Slow(message["begin"], message["end"]))
            case "error":
                log.errors.append(Ended.told(message))

    @property
    def wrong(self) -> int:
        """Wrong elements so far, of all ranks."""
        return sum(log.wrong for log in self.logs)
