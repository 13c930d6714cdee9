# SPDX-License-Identifier: Apache-2.0
"""How long a group's calls take, and for how much of that the program has to wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """Calls that are alike."""

    collective: str
    op: str  # empty where there is none
    dtype: str
    bytes: int  # of the whole tensor

    @classmethod
    def of(cls, collective: str, op: str | None, tensors: Sequence[Any]) -> Kind:
        """Return the kind of a call; of several at once, that of the largest."""
        largest = max(tensors, key=lambda x: x.nbytes, default=None)
        if largest is None:
            return cls(collective, "", "", 0)
        return cls(collective, op or "", str(largest.dtype).removeprefix("torch."), largest.nbytes)


@dataclass
class Times:
    """Of all calls of one kind that have ended; in seconds."""

    calls: int = 0
    total_s: float = 0.0  # from the call to its end
    exposed_s: float = 0.0  # of that, in which the program waited


class Overlap:
    """Adds up the times of a group's calls.

    A program that waits for a future, as DistributedDataParallel does, is not seen waiting: it is taken to
    compute until it has made the last of its calls, and to wait from there on.
    """

    def __init__(self) -> None:
        """There are no calls yet."""
        self.lock = threading.Lock()  # of all times
        self._times: dict[Kind, Times] = {}
        self.last_call_at = 0.0

    def begin(self, kind: Kind) -> Timing:
        """Note that a call is made now."""
        self.last_call_at = time.monotonic()
        return Timing(self, kind, self.last_call_at)

    def add(self, kind: Kind, total_s: float, exposed_s: float) -> None:
        """Note that one has ended; with the lock."""
        times = self._times.setdefault(kind, Times())
        times.calls += 1
        times.total_s += total_s
        times.exposed_s += exposed_s

    def times(self) -> Mapping[Kind, Times]:
        """Return the times so far, in the order of the first ends."""
        with self.lock:
            return {kind: replace(times) for kind, times in self._times.items()}


class Timing:
    """The time of one call, which ends once: where it was waited for, or where its future was completed."""

    def __init__(self, overlap: Overlap, kind: Kind, begin: float) -> None:
        """Made by `Overlap.begin`."""
        self._overlap = overlap
        self._kind = kind
        self._begin = begin
        self._open = True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait for the end in this block."""
        since = time.monotonic()
        yield
        self._end(since)

    def waited(self) -> None:
        """Note the end, which was waited for from the beginning."""
        self._end(self._begin)

    def ended(self) -> None:
        """Note the end, which nobody was seen to wait for."""
        self._end(max(self._begin, self._overlap.last_call_at))

    def _end(self, waited_since: float) -> None:
        with self._overlap.lock:
            if self._open and self._kind.bytes:
                self._open = False
                now = time.monotonic()
                self._overlap.add(self._kind, now - self._begin, now - waited_since)
