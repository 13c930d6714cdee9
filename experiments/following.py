# SPDX-License-Identifier: Apache-2.0
"""Follows what the ranks of a running lab tell, so that a trial can wait for what it wants to see."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from railweave.experiments.messages import read
from railweave.topologies.lab import Lab

Log = TypeVar("Log")


@dataclass(frozen=True)
class Ended:
    """An error that ended a rank's communicator; the time is CLOCK_MONOTONIC's."""

    at: float
    kind: str  # the exception's class
    lost: int | None  # the rank that PeerLost names
    text: str

    @classmethod
    def told(cls, message: dict[str, Any]) -> Ended:
        """Read a worker's `error`."""
        return cls(message["at"], message["kind"], message["lost"], message["text"])


class Following(ABC, Generic[Log]):
    """Reads what the workers of a lab print, in a task of its own, into one log per rank."""

    def __init__(self, lab: Lab, logs: Sequence[Log]) -> None:
        """Begin with logs of which nothing is known."""
        self.logs = logs
        self._lab = lab
        self._news = asyncio.Condition()

    @abstractmethod
    def take(self, log: Log, message: dict[str, Any]) -> None:
        """Enter into a rank's log what it has told."""

    async def read(self) -> None:
        """Read until all workers have ended well; LabError if one ends otherwise."""
        async for line in self._lab.events():
            message = read(line.text)
            if message is None:
                continue
            async with self._news:
                self.take(self.logs[message["rank"]], message)
                self._news.notify_all()

    async def until(self, holds: Callable[[Sequence[Log]], bool], deadline_s: float) -> bool:
        """Wait until something holds of the logs; False if it does not within the deadline."""
        try:
            async with asyncio.timeout(deadline_s), self._news:
                await self._news.wait_for(lambda: holds(self.logs))
        except TimeoutError:
            return False
        return True


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have cleaned up, whatever they end by."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
