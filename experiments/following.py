# SPDX-License-Identifier: Apache-2.0
"""Follows the messages of a lab's ranks, so that a trial can wait for a condition on them."""

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
class RankError:
    """An error that ended a rank's communicator; the time is CLOCK_MONOTONIC's."""

    at: float
    kind: str  # the exception's class
    lost: int | None  # the rank that PeerLost names
    text: str

    @classmethod
    def of(cls, message: dict[str, Any]) -> RankError:
        """Read a worker's message `error`."""
        return cls(message["at"], message["kind"], message["lost"], message["text"])


class Following(ABC, Generic[Log]):
    """Reads the messages of a lab's workers into one log per rank."""

    def __init__(self, lab: Lab, logs: Sequence[Log]) -> None:
        """Begin with empty logs."""
        self.logs = logs
        self._lab = lab
        self._changed = asyncio.Condition()
        self._ended: LabError | None = None  # why no more messages will come

    @abstractmethod
    def take(self, log: Log, message: dict[str, Any]) -> None:
        """Enter a message into the rank's log."""

    async def read(self) -> None:
        """Read until all workers have ended with status 0; LabError if one ends otherwise."""
        ended = LabError("all ranks have ended")
        try:
            async for line in self._lab.events():
                message = read(line.text)
                if message is None:
                    continue
                async with self._changed:
                    self.take(self.logs[message["rank"]], message)
                    self._changed.notify_all()
        except LabError as error:
            ended = error
            raise
        finally:
            self._ended = ended
            async with self._changed:
                self._changed.notify_all()

    async def until(self, holds: Callable[[Sequence[Log]], bool], deadline_s: float) -> bool:
        """Wait until a condition holds for the logs; False if it does not within the deadline.

        LabError, as from `read`, if no more messages will come.
        """
        try:
            async with asyncio.timeout(deadline_s), self._changed:
                await self._changed.wait_for(lambda: self._ended or holds(self.logs))
        except TimeoutError:
            return False
        if self._ended and not holds(self.logs):
            raise self._ended
        return True


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended; their exceptions are ignored."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
