# SPDX-License-Identifier: Apache-2.0
"""Order of requests: one at a time changes the switch, and long requests leave the event loop time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from railweave.switch.p4runtime.errors import Refused

SLICE_S = 0.0005  # of work, before the loop takes a step for other tasks; an RPC takes about five slices

_T = TypeVar("_T")


class Turns:
    """Serializes requests, and divides the event loop among those in progress."""

    def __init__(self) -> None:
        """Begin without work."""
        # Held by the request that reads or changes the state. First come, first served.
        self.exclusive = asyncio.Lock()
        self._slice = asyncio.Lock()

    async def to_the_end(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Execute `work` exclusively. Once begun, it goes on even if its client leaves."""
        await self.exclusive.acquire()
        task = asyncio.ensure_future(_outcome(work))
        task.add_done_callback(lambda _: self.exclusive.release())
        outcome = await asyncio.shield(task)
        if isinstance(outcome, Refused):
            raise outcome.again()
        return outcome

    async def shared(self, work: Iterator[_T]) -> AsyncIterator[list[_T]]:
        """Yield what `work` yields. All such work together gets one slice per step of the event loop."""
        done = False
        while not done:
            async with self._slice:
                chunk, done = _slice(work)
                await asyncio.sleep(0)
            yield chunk


async def slices(work: Iterator[_T]) -> AsyncIterator[list[_T]]:
    """Yield what exclusive `work` yields, a list for each slice of time."""
    done = False
    while not done:
        chunk, done = _slice(work)
        await asyncio.sleep(0)
        yield chunk


async def _outcome(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T | Refused:
    """Return a refusal as a value: a task keeps an exception that it raises, with all its frames."""
    try:
        return await work()
    except Refused as refusal:
        return refusal


def _slice(work: Iterator[_T]) -> tuple[list[_T], bool]:
    end = time.perf_counter() + SLICE_S
    chunk = []
    for item in work:
        chunk.append(item)
        if time.perf_counter() >= end:
            return chunk, False
    return chunk, True
