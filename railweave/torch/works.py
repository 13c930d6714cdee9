# SPDX-License-Identifier: Apache-2.0
"""Handles of calls for torch.distributed, and the completion of their futures."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from railweave.hosts.errors import InvalidOption, RailweaveError, UnsupportedDType
from railweave.torch.overlap import Timing
from railweave.torch.staging import SideStreams

log = logging.getLogger(__name__)

Copies = list[tuple[torch.Tensor, torch.Tensor]]  # target and source
CALLBACKS_S = 10.0  # time for callbacks of futures after the group's end


def raise_as_torch(error: Exception) -> NoReturn:
    """Raise an error as DistBackendError, which torch's users catch. Argument errors pass through."""
    if isinstance(error, InvalidOption | UnsupportedDType):
        raise error
    timed_out = isinstance(error, TimeoutError)  # JoinTimeout is one
    text = f"Timed out ({error})" if timed_out else f"{error}"
    raise dist.DistBackendError(f"railweave: {text}") from error


class Work(dist.Work):  # type: ignore[misc]
    """A handle of one call of a process group, which may be several calls of the communicator."""

    def __init__(
        self,
        pending: Sequence[Any],
        copies: Copies,
        results: Any,
        timeout_s: float | None,
        completions: Completions,
        timing: Timing,
        streams: SideStreams | None = None,
    ) -> None:
        """Make a handle of pending calls.

        `copies` are made when all pending calls have ended. `results` is the value of the future. `streams`
        are given if the results are on a GPU. Such a call has ended when its copies are on a stream, and
        `wait` lets the caller's current stream wait for these copies.
        """
        super().__init__()
        self._pending = pending
        self.copies = copies
        self.results = results
        self._timeout_s = timeout_s
        self._completions = completions
        self._timing = timing
        self._streams = streams
        self._stored: Any = None  # event
        self._lock = threading.Lock()  # of copies and future
        self._future: Any = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end. Raises DistBackendError if the call fails, or exceeds its timeout.

        The default timeout is the group's.
        """
        if self._pending or self.copies:
            with self._timing.waiting():
                self._settle(seconds_of(timeout) or self._timeout_s)
        if self._streams is not None:
            self._streams.join(self._stored)
        return True

    synchronize = wait

    def _settle(self, timeout_s: float | None) -> None:
        try:
            for pending in self._pending:
                pending.wait(timeout_s)
        except (RailweaveError, TimeoutError) as error:
            raise_as_torch(error)
        with self._lock:
            if self._streams is not None:
                self._stored = self._stored or self._streams.store(self.copies)
            else:
                for target, source in self.copies:
                    target.copy_(source)
            self.copies = []

    def is_completed(self) -> bool:
        """Return whether the call has ended, with or without success."""
        ended = all(pending.done() for pending in self._pending)
        if ended and self.failure() is None and self._streams is not None:
            return bool(self._stored.query())
        return ended

    def is_success(self) -> bool:
        """Return whether the call has ended with success."""
        return self.is_completed() and self.failure() is None

    def exception(self) -> Exception | None:
        """Return the call's error, if it has failed."""
        return self.failure() if self.is_completed() else None

    def failure(self) -> Exception | None:
        """Wait for the end, and return the error, or None."""
        try:
            self._settle(self._timeout_s)
        except Exception as error:
            return error
        self._timing.ended()
        return None

    def result(self) -> Any:
        """Wait for the end, and return the tensors."""
        self.wait()
        return self.results

    def _source_rank(self) -> int:
        """Return the sender of a receive."""
        return int(self._pending[0].source_rank())

    def get_future(self) -> Any:
        """Return a future of the tensors. Another thread completes it."""
        with self._lock:
            if self._future is not None:
                return self._future
            end: Any = self._streams.future() if self._streams else torch.futures.Future()
            # DistributedDataParallel crashes after `set_exception`. It handles an exception raised in `then`.
            self._future = end.then(self._outcome)
        self._completions.add(self, end)
        return self._future

    def complete(self, end: Any) -> None:
        """Wait for the end, and complete a future with the results or the error."""
        error = self.failure()
        with self._streams.completing() if self._streams else nullcontext():
            end.set_result(self.results if error is None else error)

    def _outcome(self, end: Any) -> Any:
        outcome = end.value()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Completions:
    """Completes futures in the order of their creation, so that callbacks run in the same order on all ranks.

    A callback may make calls and wait for their futures. It must not wait for other futures that were created
    after its own.
    """

    def __init__(self) -> None:
        """Begin without a thread; the first future starts one."""
        self._queue: SimpleQueue[tuple[Work, Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, work: Work, end: Any) -> None:
        """Complete a work's future `end` when the work has ended. In a callback, wait for it at once."""
        if threading.current_thread() is self._thread:
            work.complete(end)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="railweave futures", daemon=True)
            self._thread.start()
        self._queue.put((work, end))

    def close(self) -> None:
        """Wait up to CALLBACKS_S for the thread, which ends when all futures are complete.

        A thread that returns from torch's code after the interpreter's end would crash the process. In a
        callback, do not wait.
        """
        self._queue.put(None)
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(CALLBACKS_S)
            if self._thread.is_alive():
                log.warning("callbacks of futures still run, %g s after their group has ended", CALLBACKS_S)

    def _run(self) -> None:
        while self._complete(self._queue.get()):
            pass

    def _complete(self, first: tuple[Work, Any] | None) -> bool:
        if first is None:
            return False
        work, end = first
        work.complete(end)
        return True


def seconds_of(timeout: timedelta | None) -> float | None:
    """Return a timeout in seconds; None for each of torch's values that mean no timeout."""
    seconds = timeout.total_seconds() if timeout is not None else 0.0
    return seconds if seconds > 0 else None
