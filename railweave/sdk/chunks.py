# SPDX-License-Identifier: Apache-2.0
"""The endpoint for programs that include `algorithm/chunk.p4`: numbered chunks in a window."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import final

import numpy as np

from railweave.sdk.machines import Array, Endpoint, Job
from railweave.sdk.states import cells_of

HEADER = 4  # bytes of the sequence number
LEAST_TIMEOUT_S, MOST_TIMEOUT_S = 0.1, 1.0  # until a chunk without a result is sent again
OVERTAKEN = 3  # a chunk is sent again after the results of this many later chunks


class ChunkEndpoint(Endpoint):
    """Sends the chunks of a window, and repeats those that get no result.

    The window is half as large as the number of the job's cells in the switch; `chunk.p4` tells why.
    Subclasses convert a rank's numbers to packets, and results of packets to the result.
    """

    wide = False
    """Whether the program defines WIDE_RESULTS: results have twice as many lanes as a rank's packets."""

    def __init__(self, job: Job, rank: int) -> None:
        """Begin with sequence number 1."""
        super().__init__(job, rank)
        self.size = 0  # elements of the call's input
        self._window = cells_of(job) // 2
        self._first = self._next = 1  # sequence numbers of this call's first chunk, and of the next new chunk
        self._smoothed_s = 0.0  # time until a result
        self._load(np.zeros((0, job.lanes), np.int32))

    @abstractmethod
    def pack(self, given: Array, op: str) -> Array:
        """Return the numbers of the packets, int32 with a row for each.

        A row has the header's fields behind the sequence number, if there are any, and `job.lanes` numbers.
        """

    @abstractmethod
    def unpack(self, results: Array) -> Array:
        """Return the result of the call from the numbers of the result packets, in the form of `pack`."""

    def follow(self, results: Array) -> Array | None:
        """Return further packets that depend on the results so far, in the form of `pack`.

        None means that there are no further packets. Only the results of the last packets go to `unpack`.
        """
        return None

    def rows(self, numbers: Array, width: int = 0) -> Array:
        """Return a vector as rows of `width` numbers, filled up with 0. The default is a packet's lanes."""
        width = width or self.job.lanes
        found = np.zeros((max(1, -(-numbers.size // width)), width), numbers.dtype)
        found.reshape(-1)[: numbers.size] = numbers
        return found

    @final
    def begin(self, given: Array, op: str) -> None:
        """Cut the numbers into packets."""
        self.size = given.size
        self._load(self.pack(given, op))

    def _load(self, numbers: Array) -> None:
        count, words = numbers.shape
        sequences = (np.arange(count) + self._next).astype(">u4")
        self._first, self._next = self._next, (self._next + count) % 2**32
        self._packets = np.empty((count, HEADER + 4 * words), np.uint8)
        self._packets[:, :HEADER] = sequences.view(np.uint8).reshape(count, HEADER)
        self._packets[:, HEADER:] = numbers.astype(">i4").view(np.uint8)
        self._results = np.zeros((count, words + self.wide * self.job.lanes), ">i4")
        self._missing = np.ones(count, bool)
        self._due = np.full(count, -np.inf)  # when each chunk is sent next
        self._sent = np.zeros(count)  # when each chunk was sent; NaN if it was sent again
        self._overtaken = np.zeros(count, np.int32)  # results of later chunks
        self._oldest = 0  # index of the first chunk without a result

    @final
    def transmit(self, now: float, budget: int) -> Array:
        """Return chunks of the window that are due."""
        window = slice(self._oldest, self._oldest + self._window)
        due = self._missing[window] & (self._due[window] <= now)
        chosen = self._oldest + np.flatnonzero(due)[:budget]
        again = np.isfinite(self._due[chosen])
        self.resends += int(again.sum())
        self._sent[chosen] = np.where(again, np.nan, now)
        self._due[chosen] = now + min(max(LEAST_TIMEOUT_S, 4 * self._smoothed_s), MOST_TIMEOUT_S)
        return self._packets[chosen]

    @final
    def receive(self, datagrams: Sequence[memoryview], now: float) -> None:
        """Take the results of chunks."""
        for datagram in datagrams:
            if len(datagram) == HEADER + 4 * self._results.shape[1]:
                chunk = (int.from_bytes(datagram[:HEADER]) - self._first) % 2**32
                if chunk < len(self._missing) and self._missing[chunk] and np.isfinite(self._due[chunk]):
                    self._missing[chunk] = False
                    self._results[chunk] = np.frombuffer(datagram, ">i4", offset=HEADER)
                    if not np.isnan(self._sent[chunk]):
                        self._learn(chunk, now)
        before = self._oldest
        while not self.done and not self._missing[self._oldest]:
            self._oldest += 1
        if self.done and before < self._oldest:
            further = self.follow(self._results.astype(np.int32))
            if further is not None:
                self._load(further)

    def _learn(self, chunk: int, now: float) -> None:
        """Learn from the result of a chunk that was sent once: its time, and the chunks that it overtook."""
        took_s = now - self._sent[chunk]
        self._smoothed_s += (took_s - self._smoothed_s) / 8
        earlier = slice(self._oldest, chunk)
        self._overtaken[earlier] += 1
        lost = self._missing[earlier] & (self._overtaken[earlier] == OVERTAKEN)
        self._due[earlier][lost] = now

    @final
    def deadline(self) -> float:
        """Return when the next chunk of the window is due."""
        window = slice(self._oldest, self._oldest + self._window)
        return float(np.min(self._due[window][self._missing[window]], initial=np.inf))

    @property
    def position(self) -> int:
        """The number of the next new chunk."""
        return self._next

    def start_at(self, position: int) -> None:
        """Number chunks from `position`."""
        self._first = self._next = position

    @property
    def done(self) -> bool:
        """Whether all chunks have results."""
        return self._oldest == len(self._missing)

    @property
    def result(self) -> Array:
        """The result of the call."""
        return self.unpack(self._results.astype(np.int32))
