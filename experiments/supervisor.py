# SPDX-License-Identifier: Apache-2.0
"""Supervise the ranks of a lab: start them, read their output, wait for conditions, and end them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from railweave.experiments.endless import STOP
from railweave.experiments.hosts import JobOptions, start_rank
from railweave.experiments.messages import read
from railweave.experiments.trace import RankTrace
from railweave.topologies.errors import LabError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.processes import Child

T = TypeVar("T")
OnLine = Callable[[int, str], None]  # (rank, line)
OnMessage = Callable[[int, dict[str, Any]], None]

START_S = 60.0  # time limit until all ranks of a job have begun


class Supervisor:
    """The ranks of one or several jobs in a lab."""

    def __init__(self, lab: Lab) -> None:
        """Take the lab. Nothing is started yet."""
        self.lab = lab
        self._readers: dict[Child, Callable[[str], None]] = {}
        self._changed = asyncio.Condition()
        self._ended: LabError | None = None  # the reason, once no more lines can arrive

    async def start(self, job: JobOptions, on_line: OnLine) -> list[Child]:
        """Start a rank in every host, in the order of the hosts. `on_line` gets each line of output."""
        return [await self.start_rank(job, rank, on_line) for rank in range(len(self.lab.topology.hosts))]

    async def start_rank(self, job: JobOptions, rank: int, on_line: OnLine) -> Child:
        """Start one rank of a job in its host."""
        child = await start_rank(self.lab, job, rank)
        self._readers[child] = partial(on_line, rank)
        return child

    async def read(self, silence_s: float | None = None) -> None:
        """Read until all ranks have ended with status 0. Raise LabError if a rank ends with another status.

        Raises TimeoutError if no rank prints a line for `silence_s`.
        """
        loop = asyncio.get_running_loop()
        ended = LabError("all ranks have ended", "ranks that run", "start a job first")
        try:
            async with asyncio.timeout(silence_s) as limit:
                async for line in self.lab.events():
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

    async def until(self, holds: Callable[[], bool], deadline_s: float | None) -> bool:
        """Wait until a condition on the output holds. Return False if it does not hold by the deadline.

        Raises LabError, as `read` does, if no more lines can arrive.
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
        """Wait until all ranks have begun, which `holds` tells. Raise LabError after START_S seconds."""
        if not await self.until(holds, START_S):
            raise LabError(
                f"no progress of all ranks within {START_S:g} s",
                "calls of all ranks",
                f"read the logs in {self.lab.out}",
            )

    async def stop(self, *leaders: Child, deadline_s: float) -> None:
        """Let endless jobs end after a common last call.

        `leaders` are the jobs' ranks 0. `read` must be running. Raises LabError if a job is still running at
        the deadline.
        """
        for leader in leaders:
            leader.signal(STOP)
        if not await self.until(lambda: self._ended is not None, deadline_s):
            raise LabError(
                f"the ranks have not ended within {deadline_s:g} s",
                "their end by then",
                f"read the logs in {self.lab.out}",
            )


class EndlessJob:
    """A job that makes calls until it is stopped, and the reports of its ranks."""

    def __init__(
        self,
        supervisor: Supervisor,
        options: JobOptions,
        on_message: OnMessage = lambda _rank, _message: None,
    ) -> None:
        """Take the job, whose command is that of `endless.Calls`. Nothing is started yet."""
        self.traces = [RankTrace() for _ in supervisor.lab.topology.hosts]
        self.children: dict[int, Child] = {}
        self._supervisor = supervisor
        self._options = options
        self._on_message = on_message

    async def start(self) -> None:
        """Start all ranks."""
        for rank in range(len(self.traces)):
            await self.start_rank(rank)

    async def start_rank(self, rank: int) -> None:
        """Start one rank, or start it again."""
        self.children[rank] = await self._supervisor.start_rank(self._options, rank, messages(self._take))

    def _take(self, rank: int, message: dict[str, Any]) -> None:
        self.traces[rank].take(message)
        self._on_message(rank, message)

    async def begun(self) -> None:
        """Wait until every rank has completed a call. Raise LabError after START_S seconds."""
        await self._supervisor.begun(lambda: all(trace.done for trace in self.traces))

    async def until(self, holds: Callable[[RankTrace], object], deadline_s: float) -> bool:
        """Wait until a condition holds for all ranks. Return False if it does not hold by the deadline."""
        return await self._supervisor.until(lambda: all(map(holds, self.traces)), deadline_s)


def messages(take: OnMessage) -> OnLine:
    """Return a function that passes the messages in a rank's lines to `take`, with the rank."""

    def on_line(rank: int, text: str) -> None:
        if (message := read(text)) is not None:
            take(rank, message)

    return on_line


async def alongside(main: Coroutine[Any, Any, T], *others: Coroutine[Any, Any, Any]) -> T:
    """Run `main` to its end and return its result. `others` run beside it. An error in one of them ends all.

    All coroutines have ended when the function returns. Their effects, such as a fault, are undone.
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
    """Cancel tasks and wait until they have ended. Their exceptions are ignored."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
