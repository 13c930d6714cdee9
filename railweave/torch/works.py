# SPDX-License-Identifier: Apache-2.0
"""Handles of calls, as torch.distributed knows them: to wait for, or futures that are completed."""

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
CALLBACKS_S = 10.0  # that callbacks of futures may take after the group's end


def raise_as_torch(error: Exception) -> NoReturn:
    """Raise what torch's users catch; what was wrong with the arguments stays what it is."""
    if isinstance(error, InvalidOption | UnsupportedDType):
        raise error
    timed_out = isinstance(error, TimeoutError)  # JoinTimeout is one
    text = f"Timed out ({error})" if timed_out else f"{error}"
    raise dist.DistBackendError(f"railweave: {text}") from error


class Work(dist.Work):  # type: ignore[misc]
    """One call of a process group, which may be several of the communicator."""

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
        """`copies` are made when all that is pending has ended; `results` is what the future gives.

        `streams` are those of results on a GPU. There the call has ended when its copies are on a stream, and
        `wait` lets the caller's current stream wait for them.
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
        """Wait for the end; DistBackendError says why there was none. Without timeouts the group's holds."""
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
        """Whether it has ended, well or not."""
        ended = all(pending.done() for pending in self._pending)
        if ended and self.failure() is None and self._streams is not None:
            return bool(self._stored.query())
        return ended

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self.failure() is None

    def exception(self) -> Exception | None:
        """Return what it has failed with, if it has."""
        return self.failure() if self.is_completed() else None

    def failure(self) -> Exception | None:
        """Wait, and return what it has failed with; None if it has not."""
        try:
            self._settle(self._timeout_s)
        except Exception as error:
            return error
        self._timing.ended()
        return None

    def result(self) -> Any:
        """Wait, and return the tensors."""
        self.wait()
        return self.results

    def _source_rank(self) -> int:
        """Return the sender, of a receive."""
        return int(self._pending[0].source_rank())

    def get_future(self) -> Any:
        """Return a future of the tensors, which is completed from another thread."""
        with self._lock:
            if self._future is not None:
                return self._future
            end: Any = self._streams.future() if self._streams else torch.futures.Future()
            # DistributedDataParallel does not survive `set_exception`; what `then` raises is well.
            self._future = end.then(self._outcome)
        self._completions.add(self, end)
        return self._future

    def complete(self, end: Any) -> None:
        """Give a future the results, or the error; call it when the work has ended, or to wait until then."""
        error = self.failure()
        with self._streams.completing() if self._streams else nullcontext():
            end.set_result(self.results if error is None else error)

    def _outcome(self, end: Any) -> Any:
        outcome = end.value()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Completions:
    """Completes futures in the order in which they were asked for, so that callbacks run alike on all ranks.

    A callback may make calls and wait for their futures, but not for futures that were asked for elsewhere
    after its own.
    """

    def __init__(self) -> None:
        """There is a thread as soon as there is a future."""
        self._queue: SimpleQueue[tuple[Work, Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, work: Work, end: Any) -> None:
        """When the work has ended, complete its future `end`; in a callback, at once."""
        if threading.current_thread() is self._thread:
            work.complete(end)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="railweave futures", daemon=True)
            self._thread.start()
        self._queue.put((work, end))

    def close(self) -> None:
        """Wait for the thread, which ends when all futures are complete; not for ever, and not in a callback.

        A thread that comes back from torch's code after the interpreter has ended takes the process down.
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
    """Return a timeout in seconds; None for torch's ways to say that there is none."""
    seconds = timeout.total_seconds() if timeout is not None else 0.0
    return seconds if seconds > 0 else None
