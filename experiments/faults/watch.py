# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a series tell, kept so that a trial can ask what a fault has done to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from railweave.experiments.messages import read
from railweave.topologies.lab import Lab


@dataclass(frozen=True)
class Slow:
    """A call that took long; times of CLOCK_MONOTONIC."""

    begin: float
    end: float


@dataclass(frozen=True)
class Ended:
    """An error that ended a rank's communicator."""

    at: float
    kind: str  # the exception's class
    lost: int | None  # the rank that PeerLost names
    text: str


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


class Watch:
    """Reads what the workers of a lab print, in a task of its own."""

    def __init__(self, lab: Lab, ranks: int) -> None:
        """Begin with ranks of which nothing is known."""
        self.logs = [RankLog() for _ in range(ranks)]
        self._lab = lab
        self._news = asyncio.Condition()

    async def read(self) -> None:
        """Read until all workers have ended well; LabError if one ends otherwise."""
        async for line in self._lab.events():
            message = read(line.text)
            if message is None:
                continue
            async with self._news:
                self._take(message)
                self._news.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        log = self.logs[message["rank"]]
        match message["event"]:
            case "joined":
                log.joined = message["at"]
            case "tick":
                log.progress = message["at"]
                log.wrong += message["wrong"]
            case "slow":
                log.slow.append(Slow(message["begin"], message["end"]))
            case "error":
                log.errors.append(Ended(message["at"], message["kind"], message["lost"], message["text"]))

    async def until(self, holds: Callable[[Sequence[RankLog]], bool], deadline_s: float) -> bool:
        """Wait until something holds of the logs; False if it does not within the deadline."""
        try:
            async with asyncio.timeout(deadline_s), self._news:
                await self._news.wait_for(lambda: holds(self.logs))
        except TimeoutError:
            return False
        return True

    @property
    def wrong(self) -> int:
        """Wrong elements so far, of all ranks."""
        return sum(log.wrong for log in self.logs)
