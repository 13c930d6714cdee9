# SPDX-License-Identifier: Apache-2.0
"""Messages for any number of readers, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

KEPT_MESSAGES = 240  # for late readers; the stream of a reader that lags further behind ends
QUIET_S = 5.0  # time without messages until a stream gets a comment, which detects a lost reader


class Feed:
    """Messages for all streams. Late and slow readers get the last KEPT_MESSAGES messages."""

    def __init__(self, greeting: Callable[[], Mapping[str, Any]]) -> None:
        """Begin each stream with the message that `greeting` returns."""
        self._greeting = greeting
        self._kept: deque[str] = deque(maxlen=KEPT_MESSAGES)
        self._count = 0
        self._ended = False
        self._changed = asyncio.Event()  # replaced with every change

    def publish(self, message: Mapping[str, Any]) -> None:
        """Send a message to all streams."""
        self._kept.append(_event("state", message))
        self._count += 1
        self._wake()

    def end(self) -> None:
        """End all streams."""
        self._ended = True
        self._wake()

    async def texts(self) -> AsyncGenerator[str, None]:
        """Yield the text of one stream. The stream ends early if its reader lags too far behind."""
        yield _event("hello", self._greeting())
        place = self._count - len(self._kept)
        while True:
            new, place, changed = self._count - place, self._count, self._changed
            if new > len(self._kept):
                return
            if new:
                yield "".join(list(self._kept)[-new:])
            elif self._ended:
                yield _event("end", {})
                return
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), QUIET_S)
                if self._changed is changed:
                    yield ": waiting\n\n"

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _event(name: str, value: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"
