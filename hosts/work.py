# SPDX-License-Identifier: Apache-2.0
"""Handles of asynchronous calls."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Protocol

from railweave.hosts.errors import InvalidOption

FOREVER_S = 1e9


class Waits(Protocol):
    """The methods that a Work needs of its communicator. A Work keeps the communicator alive."""

    def _wait(self, op_index: int, timeout: float | None) -> None: ...

    def _done(self, op_index: int) -> bool: ...


class Work:
    """A handle of an asynchronous call, which may still be in progress."""

    def __init__(self, comm: Waits, op_index: int, result: Any) -> None:
        """Make a handle; only communicators do this."""
        self._comm = comm
        self._op_index = op_index
        self._result = result

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the end of the call, and return its result.

        Args:
            timeout: Seconds to wait. None: the communicator's `timeout_s`, after which the communicator ends.

        Returns:
            `out`, or the new array.

        Raises:
            TimeoutError: The call has not ended within `timeout`. It goes on, and you can wait again.
            InvalidOption: `timeout` is no number.
            RailweaveError: The call has failed, with one of the errors that the call itself raises.
        """
        self._comm._wait(self._op_index, _seconds(timeout))
        return self._result

    def done(self) -> bool:
        """Return whether `wait` would return at once."""
        return self._comm._done(self._op_index)


class CompletedWork(Work):
    """A handle of a call that was complete at once, because its job has one rank."""

    def wait(self, timeout: float | None = None) -> Any:
        """Return the result."""
        _seconds(timeout)
        return self._result

    def done(self) -> bool:
        """Return True."""
        return True


def _seconds(timeout: float | None) -> float | None:
    """Check a caller's timeout, and bound it."""
    if timeout is None:
        return None
    seconds = min(timeout, FOREVER_S) if isinstance(timeout, Real) else math.nan
    if math.isnan(seconds):
        raise InvalidOption(
            f"timeout is {timeout!r}", "seconds, or None for the communicator's own", "correct the timeout"
        )
    return seconds
