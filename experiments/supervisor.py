# SPDX-License-Identifier: Apache-2.0
"""Supervises the ranks of a lab: starts them, reads what they print, waits for conditions, ends them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from railweave.experiments.hosts import JobOptions, start_rank
from railweave.experiments.messages import read
from railweave.topologies.errors import LabError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.processes import Child

T = TypeVar("T")
OnLine = Callable[[int, str], None]  # (rank, line)

START_S = 60.0  # until all ranks of a job have done something


class Supervisor:
    """The ranks of a lab, of one job or of several."""

    def __init__(self, lab: Lab) -> None:
        """Nothing is started yet."""
        self._lab = lab
        self._readers: dict[Child, Callable[[str], None]] = {}
        self._changed = asyncio.Condition()
        self._ended: LabError | None = None  # why no more lines will come

    async def start(self, job: JobOptions, on_line: OnLine) -> list[Child]:
        """Start a rank in every host, in their order; `on_line` gets each line that one prints."""
        return [await self.start_rank(job, rank, on_line) for rank in range(len(self._lab.topology.hosts))]

    async def start_rank(self, job: JobOptions, rank: int, on_line: OnLine) -> Child:
        """Start one rank of a job in its host."""
        child = await start_rank(self._lab, job, rank)
        self._readers[child] = partial(on_line, rank)
        return child

    async def read(self, silence_s: float | None = None) -> None:
        """Read until all ranks have ended with status 0; LabError if one ends otherwise.

        TimeoutError if nothing comes for `silence_s`.
        """
        loop = asyncio.get_running_loop()
        ended = LabError("all ranks have ended", "ranks that run", "start a job first")
        try:
            async with asyncio.timeout(silence_s) as limit:
                async for line in self._lab.events():
                    if silence_s is not None:
                        limit.reschedule(loop.time() + silence_s)
                    async with self._changed:
                        self._readers[line.child](line.text)
                        self._changed.notify_all()
        except LabError as error:
            ended = error
            raise
        finally:
            self._ended = ended
            async with self._changed:
                self._changed.notify_all()

    async def until(self, holds: Callable[[], bool], deadline_s: float) -> bool:
        """Wait until a condition on what was read holds; False if it does not within the deadline.

        LabError, as from `read`, if no more lines will come.
        """
        try:
            async with asyncio.timeout(deadline_s), self._changed:
                await self._changed.wait_for(lambda: self._ended or holds())
        except TimeoutError:
            return False
        if self._ended and not holds():
            raise self._ended
        return True

    async def begun(self, holds: Callable[[], bool]) -> None:
        """Wait until all ranks have begun, by this condition; LabError if they do not within START_S."""
        if not await self.until(holds, START_S):
            raise LabError(
                f"no progress of all ranks within {START_S:g} s",
                "calls of all ranks",
                f"read the logs in {self._lab.out}",
            )

    async def stop(self, *leaders: Child, deadline_s: float) -> None:
        """Have endless jobs end after a common last call; `leaders` are their ranks 0, and `read` is running.

        LabError if they do not end in time.
        """
        for leader in leaders:
            leader.signal(signal.SIGUSR1)
        if not await self.until(lambda: self._ended is not None, deadline_s):
            raise LabError(
                f"the ranks have not ended within {deadline_s:g} s",
                "their end by then",
                f"read the logs in {self._lab.out}",
            )


def messages(take: Callable[[int, dict[str, Any]], None]) -> OnLine:
    """Return what gives the messages among a rank's lines to `take`, with the rank."""

    def on_line(rank: int, text: str) -> None:
        if (message := read(text)) is not None:
            take(rank, message)

    return on_line


async def alongside(main: Coroutine[Any, Any, T], *others: Coroutine[Any, Any, Any]) -> T:
    """Run `main` to its end and return its result; others run beside it, and an error of any ends all.

    All have ended when this returns: what they have begun, such as a fault, is undone.
    """
    first = asyncio.create_task(main)
    beside = [asyncio.create_task(each) for each in others]
    running: set[asyncio.Task[Any]] = {first, *beside}
    try:
        while not first.done():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task  # raises its error
        return first.result()
    finally:
        await cancel(first, *beside)


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended; their exceptions are ignored."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
