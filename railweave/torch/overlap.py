# SPDX-License-Identifier: Apache-2.0
"""Measure the time of a group's calls, and the part during which the program waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """The key of calls whose times are added up together."""

    collective: str
    op: str  # empty for collectives without an operation
    dtype: str
    bytes: int  # of the whole tensor

    @classmethod
    def of(cls, collective: str, op: str | None, tensors: Sequence[Any]) -> Kind:
        """Return the kind of a call; if it has several tensors, the kind of the largest."""
        largest = max(tensors, key=lambda x: x.nbytes, default=None)
        if largest is None:
            return cls(collective, "", "", 0)
        return cls(collective, op or "", str(largest.dtype).removeprefix("torch."), largest.nbytes)


@dataclass
class Times:
    """The number and the times of all ended calls of one kind."""

    calls: int = 0
    total_s: float = 0.0  # seconds from the calls to their ends
    exposed_s: float = 0.0  # the part in which the program waited


class Overlap:
    """Adds up the times of a group's calls.

    A program that waits for futures, as DistributedDataParallel does, makes no visible `wait`. It is assumed
    to compute until it has made its last call, and to wait from then on.
    """

    def __init__(self) -> None:
        """Begin without calls."""
        self.lock = threading.Lock()  # guards all times
        self._times: dict[Kind, Times] = {}
        self.last_call_at = 0.0

    def begin(self, kind: Kind) -> Timing:
        """Record that a call begins now."""
        self.last_call_at = time.monotonic()
        return Timing(self, kind, self.last_call_at)

    def add(self, kind: Kind, total_s: float, exposed_s: float) -> None:
        """Record that a call has ended. The caller holds the lock."""
        times = self._times.setdefault(kind, Times())
        times.calls += 1
        times.total_s += total_s
        times.exposed_s += exposed_s

    def times(self) -> Mapping[Kind, Times]:
        """Return the times so far, in the order in which the kinds first ended."""
        with self.lock:
            return {kind: replace(times) for kind, times in self._times.items()}


class Timing:
    """The time of one call. It ends once: at the first wait, or when the future is completed."""

    def __init__(self, overlap: Overlap, kind: Kind, begin: float) -> None:
        """Make a timing; only `Overlap.begin` does this."""
        self._overlap = overlap
        self._kind = kind
        self._begin = begin
        self._open = True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Measure a wait for the call's end, in this block."""
        since = time.monotonic()
        yield
        self._end(since)

    def waited(self) -> None:
        """Record the end of a call for which the program waited from its beginning."""
        self._end(self._begin)

    def ended(self) -> None:
        """Record the end of a call without a visible wait."""
        self._end(max(self._begin, self._overlap.last_call_at))

    def _end(self, waited_since: float) -> None:
        with self._overlap.lock:
            if self._open and self._kind.bytes:
                self._open = False
                now = time.monotonic()
                self._overlap.add(self._kind, now - self._begin, now - waited_since)
