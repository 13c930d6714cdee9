# SPDX-License-Identifier: Apache-2.0
"""Handles of asynchronous calls."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Protocol

from railweave.hosts.errors import InvalidOption

FOREVER_S = 1e9


class Waits(Protocol):
    """What a Work needs of its communicator, which lives as long as the work does."""

    def _wait(self, op_index: int, timeout: float | None) -> None: ...

    def _done(self, op_index: int) -> bool: ...


class Work:
    """A collective call that may still run."""

    def __init__(self, comm: Waits, op_index: int, result: Any) -> None:
        """Communicators make these."""
        self._comm = comm
        self._op_index = op_index
        self._result = result

    def wait(self, timeout: float | None = None) -> Any:
        """Wait and return the result: `out`, or the new array.

        TimeoutError after `timeout` seconds: the call goes on, and can be waited for again. Without a
        timeout, the communicator's own holds, and ends the communicator.
        """
        self._comm._wait(self._op_index, _seconds(timeout))
        return self._result

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._comm._done(self._op_index)


class CompletedWork(Work):
    """A call that was complete when it was made: of one rank."""

    def wait(self, timeout: float | None = None) -> Any:
        """Return the result."""
        _seconds(timeout)
        return self._result

    def done(self) -> bool:
        """Return True."""
        return True


def _seconds(timeout: float | None) -> float | None:
    """Check a time-out of a caller."""
    if timeout is None:
        return None
    seconds = min(timeout, FOREVER_S) if isinstance(timeout, Real) else math.nan
    if math.isnan(seconds):
        raise InvalidOption(
            f"timeout is {timeout!r}", "seconds, or None for the communicator's own", "correct the timeout"
        )
    return seconds
