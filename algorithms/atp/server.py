# SPDX-License-Identifier: Apache-2.0
"""The parameter server of ATP without I/O. It adds gradients, and answers when it has those of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railweave import sdk
from railweave.algorithms.atp.endpoint import MAX_WINDOW, SEQUENCES
from railweave.algorithms.atp.packet import GRADIENT, RESULT, Packet


@dataclass
class _Sum:
    """A sequence number's sum so far."""

    ranks: int
    numbers: NDArray[Any]


class Server(sdk.Server):
    """The server of one job. It requests nothing, because workers resend packets without a result."""

    def __init__(self, job: sdk.Job) -> None:
        """Begin without gradients."""
        super().__init__(job)
        self._newest = -1  # greatest sequence number that was completed
        self._sums: dict[int, _Sum] = {}
        self._results: dict[int, bytes] = {}

    def receive(self, datagram: bytes) -> tuple[bytes, int] | None:
        """Take a datagram. Return a result and its receivers as bits, or None if nothing is to be sent."""
        packet = Packet.decode(datagram, self.job.lanes)
        if packet is None or packet.kind != GRADIENT or packet.job != self.job.number:
            return None
        if not packet.ranks or packet.ranks & ~self._everybody:
            return None
        return self._gradient(packet)

    @property
    def _everybody(self) -> int:
        return (1 << self.job.ranks) - 1

    def _gradient(self, packet: Packet) -> tuple[bytes, int] | None:
        # A worker sends at most MAX_WINDOW packets ahead of its oldest packet without a result. Its sequence
        # numbers therefore lie from `first` to below `first + 2 * MAX_WINDOW`.
        first = self._newest + 1 - MAX_WINDOW
        sequence = first + (packet.sequence - first) % SEQUENCES
        if sequence >= first + 2 * MAX_WINDOW or sequence in self._results:
            result = self._results.get(sequence)
            return (result, packet.ranks) if result else None
        held = self._sums.get(sequence)
        if held is None:
            held = self._sums[sequence] = _Sum(0, np.zeros(self.job.lanes, np.int32))
        if not held.ranks & packet.ranks:
            held.ranks |= packet.ranks
            held.numbers += packet.numbers
        if held.ranks != self._everybody:
            return None
        return self._complete(sequence, held.numbers), self._everybody

    def _complete(self, sequence: int, numbers: NDArray[Any]) -> bytes:
        payload = numbers.astype(">i4").tobytes()
        result = Packet(RESULT, 0, self.job.number, sequence % SEQUENCES, self._everybody, payload).encode()
        del self._sums[sequence]
        self._results[sequence] = result
        if sequence > self._newest:
            for old in range(self._newest + 1 - MAX_WINDOW, sequence + 1 - MAX_WINDOW):
                self._results.pop(old, None)
            self._newest = sequence
        return result
