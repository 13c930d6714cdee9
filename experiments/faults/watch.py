# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a series have reported, kept to measure the effect of a fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from railweave.experiments.following import Following, RankError
from railweave.topologies.lab.lab import Lab


@dataclass(frozen=True)
class Slow:
    """A call that took long; times of CLOCK_MONOTONIC."""

    begin: float
    end: float


@dataclass
class RankLog:
    """What one rank has reported."""

    joined: float = 0.0
    progress: float = 0.0  # end of the last call that was reported
    wrong: int = 0
    slow: list[Slow] = field(default_factory=list)
    errors: list[RankError] = field(default_factory=list)

    def held_up_after(self, since: float) -> Slow | None:
        """Return this rank's longest slow call after `since`; None if no call was slow."""
        later = [Slow(max(slow.begin, since), slow.end) for slow in self.slow if slow.end > since]
        return max(later, key=lambda slow: slow.end - slow.begin, default=None)

    def error_after(self, since: float) -> RankError | None:
        """Return the first error after `since`."""
        return next((error for error in self.errors if error.at >= since), None)


class Watch(Following[RankLog]):
    """Reads the messages of a lab's workers."""

    def __init__(self, lab: Lab, ranks: int) -> None:
        """Begin with empty logs."""
        super().__init__(lab, [RankLog() for _ in range(ranks)])

    def take(self, log: RankLog, message: dict[str, Any]) -> None:
        """Enter a rank's message."""
        match message["event"]:
            case "joined":
                log.joined = message["at"]
            case "tick":
                log.progress = message["at"]
                log.wrong += message["wrong"]
            case "slow":
                log.slow.append(Slow(message["begin"], message["end"]))
            case "error":
                log.errors.append(RankError.of(message))

    @property
    def wrong(self) -> int:
        """Wrong elements so far, of all ranks."""
        return sum(log.wrong for log in self.logs)
