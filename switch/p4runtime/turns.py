# SPDX-License-Identifier: Apache-2.0
"""The event loop divided among long requests, so that none of them makes the others wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

SLICE_S = 0.00025  # of work, before the loop takes a step for others; an RPC takes about ten

_T = TypeVar("_T")


class Turns:
    """One slice of one request at a time; between two slices the loop runs."""

    def __init__(self) -> None:
        """Nothing is to be done."""
        self._turn = asyncio.Lock()

    async def chunks(self, work: Iterator[_T]) -> AsyncIterator[list[_T]]:
        """What `work` yields, in the order in which it comes, a list for each slice."""
        done = False
        while not done:
            async with self._turn:
                chunk, done = _slice(work)
                await asyncio.sleep(0)  # with the turn in hand: the next slice, whoever's, comes later
            yield chunk


def _slice(work: Iterator[_T]) -> tuple[list[_T], bool]:
    end = time.perf_counter() + SLICE_S
    chunk = []
    for item in work:
        chunk.append(item)
        if time.perf_counter() >= end:
            return chunk, False
    return chunk, True
