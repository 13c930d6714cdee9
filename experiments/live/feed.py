# SPDX-License-Identifier: Apache-2.0
"""Messages for any number of readers, as server-sent events."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
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
        self._changed = threading.Condition()

    def publish(self, message: Mapping[str, Any]) -> None:
        """Send a message to all streams."""
        with self._changed:
            self._kept.append(_event("state", message))
            self._count += 1
            self._changed.notify_all()

    def end(self) -> None:
        """End all streams."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def texts(self) -> Iterator[str]:
        """Yield the text of one stream. The stream ends early if its reader lags too far behind."""
        yield _event("hello", self._greeting())
        place = self._count - len(self._kept)
        while True:
            with self._changed:
                heard = self._changed.wait_for(lambda: self._count > place or self._ended, QUIET_S)  # noqa: B023
                new, kept = self._count - place, list(self._kept)
            if not heard:
                yield ": waiting\n\n"
            elif new > len(kept):
                return
            elif new:
                place += new
                yield "".join(kept[-new:])
            else:
                yield _event("end", {})
                return


def _event(name: str, value: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"
