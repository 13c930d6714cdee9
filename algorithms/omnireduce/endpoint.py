# SPDX-License-Identifier: Apache-2.0
"""A rank of OmniReduce. It sends its blocks that are not zero, and reports its next one in every round."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from railweave import sdk

HEADER = struct.Struct("!II")  # sequence number of the stream's round, and the next block
NONE = 2**32 - 1  # no block follows
TIMEOUT_S, MOST_TIMEOUT_S = 0.05, 1.0  # until a packet without a result is sent again; it doubles


class Endpoint(sdk.Endpoint):
    """Stream s handles the blocks s, s + streams, s + 2 streams and so on, one packet at a time.

    Sequence numbers go on from call to call. All ranks count the same rounds, because results end them.
    """

    def __init__(self, job: sdk.Job, rank: int) -> None:
        """Begin with round 1 of each stream. Even rounds use one half of the cells, odd rounds the other."""
        super().__init__(job, rank)
        self._streams = sdk.cells_of(job) // 2
        self._sequences = [self._streams + stream for stream in range(self._streams)]
        self._currents = [NONE] * self._streams  # current block of each stream
        self._due = np.full(self._streams, np.inf)  # when each stream sends next; infinity if it has ended
        self._open = 0  # streams that have not ended
        self._timeout_s = np.full(self._streams, TIMEOUT_S)
        self._bytes = {HEADER.size, HEADER.size + 4 * job.lanes}  # of a packet

    def begin(self, given: sdk.Array, op: str) -> None:
        """Cut the numbers into blocks, and look for those that are not zero."""
        lanes, streams = self.job.lanes, self._streams
        self._size, self._count = given.size, -(-given.size // lanes)
        rounds = -(-self._count // streams)
        self._blocks = np.zeros((rounds * streams, lanes), ">i4")
        self._blocks.reshape(-1)[: given.size] = given
        self._sums = np.zeros(self._blocks.shape, np.int32)
        self._present = (self._blocks != 0).any(axis=1)
        own = np.where(self._present, np.arange(rounds * streams), NONE).reshape(rounds, streams)
        self._nexts = np.full(own.shape, NONE)  # for each block, the next one of its stream that is not zero
        self._nexts[:-1] = np.minimum.accumulate(own[:0:-1])[::-1]
        self._open = min(streams, self._count)
        self._currents[: self._open] = range(self._open)
        self._due[: self._open] = -np.inf

    def transmit(self, now: float, budget: int) -> list[bytes]:
        """Return the packets of streams that are due."""
        due = np.flatnonzero(self._due <= now)[:budget]
        self.resends += int(np.isfinite(self._due[due]).sum())
        self._due[due] = now + self._timeout_s[due]
        self._timeout_s[due] = np.minimum(2 * self._timeout_s[due], MOST_TIMEOUT_S)
        return [self._packet(stream) for stream in due.tolist()]

    def receive(self, datagrams: Sequence[memoryview], now: float) -> None:
        """Take the results of current rounds."""
        for datagram in datagrams:
            if len(datagram) in self._bytes:
                sequence, following = HEADER.unpack_from(datagram)
                stream = sequence % self._streams
                if self._due[stream] < np.inf and sequence == self._sequences[stream]:
                    self._take(stream, following, datagram[HEADER.size :])

    @property
    def position(self) -> int:
        """The first round that no stream has used."""
        return int(max(self._sequences) // self._streams) + 1

    def start_at(self, position: int) -> None:
        """Begin with this round in each stream."""
        self._sequences = [position * self._streams + stream for stream in range(self._streams)]

    def deadline(self) -> float:
        """Return when the next stream is due."""
        return float(self._due.min())

    @property
    def done(self) -> bool:
        """Whether all streams have ended."""
        return self._open == 0

    @property
    def result(self) -> sdk.Array:
        """The sum."""
        return self._sums.reshape(-1)[: self._size]

    def _packet(self, stream: int) -> bytes:
        block = self._currents[stream]
        head = HEADER.pack(self._sequences[stream], int(self._nexts.flat[block]))
        return head + self._blocks[block].tobytes() if self._present[block] else head

    def _take(self, stream: int, following: int, numbers: memoryview) -> None:
        """Take a result, and begin the next round of its stream."""
        block, ends = self._currents[stream], following == NONE
        if not ends and not (block < following < self._count and following % self._streams == stream):
            return  # forged
        if numbers:
            self._sums[block] = np.frombuffer(numbers, ">i4")
        self._sequences[stream] = (self._sequences[stream] + self._streams) % 2**32
        self._currents[stream], self._due[stream] = following, np.inf if ends else -np.inf
        self._open -= ends
        self._timeout_s[stream] = TIMEOUT_S
