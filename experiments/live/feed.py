# SPDX-License-Identifier: Apache-2.0
"""Messages for any number of readers, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

KEPT_MESSAGES = 240  # for readers that come late; who is further behind begins again
QUIET_S = 5.0  # without messages, a stream gets a comment: that shows whether its reader is there


class Feed:
    """Messages for all streams; late and slow readers get the last ones again."""

    def __init__(self, greeting: Callable[[], Mapping[str, Any]]) -> None:
        """Begin each stream with what `greeting` returns."""
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
        """Yield the text of one stream; it ends early for a reader that is too far behind."""
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
