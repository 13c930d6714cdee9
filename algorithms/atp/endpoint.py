# SPDX-License-Identifier: Apache-2.0
"""A worker of ATP. It sends gradients in a window, takes results, and resends lost packets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railweave import sdk
from railweave.algorithms.atp.packet import GRADIENT, RESEND, RESULT, Packet

MAX_WINDOW = 256  # packets between the oldest without a result and the newest; the server relies on it
FIRST_WINDOW = 8.0
LEAST_WINDOW = 2.0
MOST_DELAY_S = 0.05  # beyond the shortest time; a longer delay means a queue, and the window is halved
OVERTAKEN = 3  # a packet counts as lost after this many results of later packets
LEAST_TIMEOUT_S, MOST_TIMEOUT_S = 0.5, 5.0
SEQUENCES = 1 << 32
SCALE = 10**6  # fixed-point units per 1.0
MOST = 2**31 - 1


class Overflow(ValueError):
    """A number is too large: a sum of such numbers may not fit the fixed point."""


@dataclass
class _Flight:
    """A gradient on its way."""

    sent_s: float
    timeout_s: float
    overtaken: int = 0
    resent: bool = False


class Endpoint(sdk.Endpoint):
    """A worker. Sequence numbers go on from call to call."""

    def __init__(self, job: sdk.Job, rank: int) -> None:
        """Begin with a small window."""
        super().__init__(job, rank)
        self.window = FIRST_WINDOW  # packets
        self._next = 0  # sequence number of the first packet that has not been sent
        self._end = 0  # sequence number of the first packet after this call
        self._oldest = 0  # sequence number of the oldest packet without a result
        self._starting = True  # slow start: each result makes the window larger by 1
        self._flights: dict[int, _Flight] = {}
        self._lost: list[int] = []  # packets to resend now
        self._shortest_s = float("inf")
        self._smoothed_s = 0.0
        self._cut_s = float("-inf")  # when the window was cut last

    def begin(self, given: NDArray[Any], op: str) -> None:
        """Begin a call of float32 or int32. Sums of int32 wrap.

        Raises Overflow if floats are too large for their sum.
        """
        numbers: NDArray[Any] = given
        lanes = self.job.lanes
        if given.dtype.kind == "f":
            numbers = np.rint(given.astype(np.float64) * SCALE)
            most = MOST // self.job.ranks
            if not (np.abs(numbers) <= most).all():
                raise Overflow(
                    f"float32 beyond {most / SCALE:g} do not fit the fixed point of {self.job.ranks} ranks"
                )
        packets = -(-given.size // lanes)
        padded = np.zeros(packets * lanes, ">i4")
        padded[: given.size] = numbers
        self._given, self._size, self._dtype = (
            padded.view(np.uint8).reshape(packets, -1),
            given.size,
            given.dtype,
        )
        self._sums = np.zeros((packets, lanes), np.int32)
        self._begin, self._end = self._next, self._next + packets

    @property
    def result(self) -> NDArray[Any]:
        """The call's sum."""
        sums = self._sums.reshape(-1)[: self._size]
        return (sums / SCALE).astype(self._dtype) if self._dtype.kind == "f" else sums

    @staticmethod
    def error_bound(given: Sequence[sdk.Array]) -> float:
        """Return the error of rounding each rank's number to fixed point."""
        return len(given) / (2 * SCALE)

    @property
    def done(self) -> bool:
        """Whether the call is complete."""
        return self._oldest == self._end

    def deadline(self) -> float:
        """Return the time of the next timeout; infinity if no packet is in flight."""
        return min((f.sent_s + f.timeout_s for f in self._flights.values()), default=float("inf"))

    def transmit(self, now: float, budget: int) -> list[bytes]:
        """Return packets: lost ones first, then new ones within the window."""
        for sequence, flight in self._flights.items():
            if flight.sent_s + flight.timeout_s <= now and sequence not in self._lost:
                self._lost.append(sequence)
                flight.timeout_s = min(2 * flight.timeout_s, MOST_TIMEOUT_S)
                self._cut(now, LEAST_WINDOW)
        packets: list[bytes] = []
        while self._lost and len(packets) < budget:
            sequence = self._lost.pop(0)
            flight = self._flights[sequence]
            flight.sent_s, flight.resent, flight.overtaken = now, True, 0
            self.resends += 1
            packets.append(self._packet(sequence, RESEND))
        end = min(self._end, self._oldest + MAX_WINDOW)
        while self._next < end and len(self._flights) < int(self.window) and len(packets) < budget:
            self._flights[self._next] = _Flight(now, self._timeout_s)
            packets.append(self._packet(self._next, 0))
            self._next += 1
        return packets

    def receive(self, datagrams: Sequence[memoryview], now: float) -> None:
        """Take datagrams. All but the results of packets in flight are ignored."""
        for datagram in datagrams:
            packet = Packet.decode(datagram, self.job.lanes)
            if packet is not None and packet.kind == RESULT and packet.job == self.job.number:
                self._take(packet, now)

    def _take(self, packet: Packet, now_s: float) -> None:
        sequence = self._oldest + ((packet.sequence - self._oldest) % SEQUENCES)
        flight = self._flights.pop(sequence, None)
        if flight is None:
            return
        self._sums[sequence - self._begin] = packet.numbers
        if sequence in self._lost:
            self._lost.remove(sequence)
        while self._oldest < self._next and self._oldest not in self._flights:
            self._oldest += 1
        if not flight.resent:
            self._learn(now_s - flight.sent_s, now_s)
        for earlier, other in self._flights.items():
            if earlier < sequence and not other.resent:
                other.overtaken += 1
                if other.overtaken == OVERTAKEN:
                    self._lost.append(earlier)
                    self._cut(now_s, self.window / 2)

    def _packet(self, sequence: int, flags: int) -> bytes:
        payload = self._given[sequence - self._begin].tobytes()
        head = Packet(GRADIENT, flags, self.job.number, sequence % SEQUENCES, 1 << self.rank, payload)
        return head.encode()

    @property
    def _timeout_s(self) -> float:
        return min(max(LEAST_TIMEOUT_S, 4 * self._smoothed_s), MOST_TIMEOUT_S)

    def _learn(self, took_s: float, now_s: float) -> None:
        """Adapt the window: additive increase while results come soon, multiplicative decrease in a queue."""
        self._shortest_s = min(self._shortest_s, took_s)
        self._smoothed_s += (took_s - self._smoothed_s) / 8 if self._smoothed_s else took_s
        if took_s > self._shortest_s + MOST_DELAY_S:
            self._cut(now_s, self.window / 2)
        else:
            self.window = min(self.window + (1.0 if self._starting else 1.0 / self.window), MAX_WINDOW)

    def _cut(self, now_s: float, to: float) -> None:
        """Make the window smaller, at most once per round trip."""
        if now_s - self._cut_s > self._smoothed_s:
            self.window = max(to, LEAST_WINDOW)
            self._cut_s, self._starting = now_s, False
