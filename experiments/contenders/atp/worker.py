# SPDX-License-Identifier: Apache-2.0
"""A worker of ATP without I/O: it sends gradients in a window, takes results, and resends lost packets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railweave.experiments.contenders.atp.packet import GRADIENT, LANES, MOST, RESEND, RESULT, SCALE, Packet

MAX_WINDOW = 256  # packets between the oldest without a result and the newest; the server relies on it
FIRST_WINDOW = 8.0
LEAST_WINDOW = 2.0
MOST_DELAY_S = 0.05  # beyond the shortest time; a longer delay means a queue, and the window is halved
OVERTAKEN = 3  # a packet counts as lost after this many results of later packets
LEAST_TIMEOUT_S, MOST_TIMEOUT_S = 0.5, 5.0
SEQUENCES = 1 << 32


class Overflow(ArithmeticError):
    """A number is too large: a sum of such numbers may not fit the fixed point."""


@dataclass
class _Flight:
    """A gradient on its way."""

    sent_s: float
    timeout_s: float
    overtaken: int = 0
    resent: bool = False


@dataclass
class Worker:
    """One rank of a job. Sequence numbers go on from call to call."""

    rank: int
    ranks: int
    job: int
    lanes: int = LANES
    window: float = FIRST_WINDOW  # packets
    resends: int = 0
    _next: int = 0  # sequence number of the first packet that has not been sent
    _end: int = 0  # sequence number of the first packet after this call
    _oldest: int = 0  # sequence number of the oldest packet without a result
    _starting: bool = True  # slow start: each result makes the window larger by 1
    _flights: dict[int, _Flight] = field(default_factory=dict)
    _lost: list[int] = field(default_factory=list)  # packets to resend now
    _shortest_s: float = float("inf")
    _smoothed_s: float = 0.0
    _cut_s: float = float("-inf")  # when the window was cut last

    def begin(self, given: NDArray[Any]) -> None:
        """Begin a call of float32 or int32. Sums of int32 wrap.

        Raises Overflow if floats are too large for their sum.
        """
        numbers: NDArray[Any] = given
        if given.dtype.kind == "f":
            numbers = np.rint(given.astype(np.float64) * SCALE)
            most = MOST // self.ranks
            if not (np.abs(numbers) <= most).all():
                raise Overflow(
                    f"float32 beyond {most / SCALE:g} do not fit the fixed point of {self.ranks} ranks"
                )
        packets = -(-given.size // self.lanes)
        padded = np.zeros(packets * self.lanes, ">i4")
        padded[: given.size] = numbers
        self._given = padded.view(np.uint8).reshape(packets, 4 * self.lanes)
        self._sums = np.zeros((packets, self.lanes), np.int32)
        self._begin, self._end = self._next, self._next + packets

    def finish(self, out: NDArray[Any]) -> None:
        """Write the call's sum."""
        sums = self._sums.reshape(-1)[: out.size]
        out[:] = sums / SCALE if out.dtype.kind == "f" else sums

    @property
    def done(self) -> bool:
        """Whether the call is complete."""
        return self._oldest == self._end

    def deadline(self) -> float:
        """Return the time of the next timeout; infinity if no packet is in flight."""
        return min((f.sent_s + f.timeout_s for f in self._flights.values()), default=float("inf"))

    def transmit(self, now_s: float) -> bytes | None:
        """Return the next packet to send now, or None."""
        for sequence, flight in self._flights.items():
            if flight.sent_s + flight.timeout_s <= now_s and sequence not in self._lost:
                self._lost.append(sequence)
                flight.timeout_s = min(2 * flight.timeout_s, MOST_TIMEOUT_S)
                self._cut(now_s, LEAST_WINDOW)
        if self._lost:
            sequence = self._lost.pop(0)
            flight = self._flights[sequence]
            flight.sent_s, flight.resent, flight.overtaken = now_s, True, 0
            self.resends += 1
            return self._packet(sequence, RESEND)
        if self._next < min(self._end, self._oldest + MAX_WINDOW) and len(self._flights) < int(self.window):
            self._flights[self._next] = _Flight(now_s, self._timeout_s)
            self._next += 1
            return self._packet(self._next - 1, 0)
        return None

    def receive(self, datagram: bytes, now_s: float) -> None:
        """Take a datagram. It is ignored unless it is the result of a packet in flight."""
        packet = Packet.decode(datagram, self.lanes)
        if packet is None or packet.kind != RESULT or packet.job != self.job:
            return
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
        head = Packet(GRADIENT, flags, self.job, sequence % SEQUENCES, 1 << self.rank, payload)
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
