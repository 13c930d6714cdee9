# SPDX-License-Identifier: Apache-2.0
"""Idle time-outs of table entries."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

SHORTEST_US = 50_000  # replaces shorter time-outs, as the specification says
_SPARE = 64  # outdated items that do not matter

Key: TypeAlias = tuple[str, int]  # table and handle of an entry


class IdleTimers:
    """The times at which to look at entries: a time-out after their last known hit.

    So a scan costs time only for entries that may be idle.
    """

    def __init__(self) -> None:
        """Begin without timers."""
        self._timers: dict[Key, tuple[int, int]] = {}  # deadline and time-out
        self._queue: list[tuple[int, Key]] = []  # a heap of deadlines, some of them outdated

    def set(self, key: Key, timeout_us: int, now_us: int) -> None:
        """Start an entry's timer; a time-out of 0 ends it."""
        if timeout_us == 0:
            self._timers.pop(key, None)
            return
        timeout_us = max(timeout_us, SHORTEST_US)
        self._start(key, now_us + timeout_us, timeout_us)
        if len(self._queue) > 2 * len(self._timers) + _SPARE:
            self._queue = [(deadline, key) for key, (deadline, _) in self._timers.items()]
            heapq.heapify(self._queue)

    def expired(
        self, now_us: int, last_hit_us: Callable[[str, int], int], most: int
    ) -> tuple[list[Key], bool]:
        """Look at up to `most` entries. Return the idle ones, and whether more are due.

        An entry is idle if no packet has hit it for its time-out. Its timer starts again.
        """
        found: list[Key] = []
        for _ in range(most):
            if not self._queue or self._queue[0][0] > now_us:
                return found, False
            deadline, key = heapq.heappop(self._queue)
            current, timeout_us = self._timers.get(key, (0, 0))
            if current != deadline:
                continue  # the timer has ended, or was set again
            deadline = last_hit_us(*key) + timeout_us
            if deadline <= now_us:
                found.append(key)
                deadline = now_us + timeout_us
            self._start(key, deadline, timeout_us)
        return found, True

    def _start(self, key: Key, deadline_us: int, timeout_us: int) -> None:
        self._timers[key] = deadline_us, timeout_us
        heapq.heappush(self._queue, (deadline_us, key))
