# SPDX-License-Identifier: Apache-2.0
"""Follows what the ranks of a running lab tell, so that a trial can wait for what it wants to see."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from railweave.experiments.messages import read
from railweave.topologies.errors import LabError
from railweave.topologies.lab.lab import Lab

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
        self._over: LabError | None = None  # why nothing more will come

    @abstractmethod
    def take(self, log: Log, message: dict[str, Any]) -> None:
        """Enter into a rank's log what it has told."""

    async def read(self) -> None:
        """Read until all workers have ended well; LabError if one ends otherwise."""
        over = LabError("all ranks have ended")
        try:
            async for line in self._lab.events():
                message = read(line.text)
                if message is None:
                    continue
                async with self._news:
                    self.take(self.logs[message["rank"]], message)
                    self._news.notify_all()
        except LabError as error:
            over = error
            raise
        finally:
            self._over = over
            async with self._news:
                self._news.notify_all()

    async def until(self, holds: Callable[[Sequence[Log]], bool], deadline_s: float) -> bool:
        """Wait until something holds of the logs; False if it does not within the deadline.

        LabError, as `read` has it, if it cannot come any more.
        """
        try:
            async with asyncio.timeout(deadline_s), self._news:
                await self._news.wait_for(lambda: self._over or holds(self.logs))
        except TimeoutError:
            return False
        if self._over and not holds(self.logs):
            raise self._over
        return True


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have cleaned up, whatever they end by."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
