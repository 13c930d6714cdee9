# SPDX-License-Identifier: Apache-2.0
"""Two queue pairs joined by a bad link, in virtual time."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railweave._native import roce
from railweave._native.roce import Completion, Operation, QueuePair, QueuePairOptions

Buffer = NDArray[np.uint8]
MS = 1_000_000


def all_sent(end: End, now: int = 0) -> list[bytes]:
    """What a queue pair sends at this time."""
    return list(iter(lambda: end.qp.transmit(now), None))


def buffer(data: bytes | int) -> Buffer:
    """A buffer with these bytes, or a zeroed one of this size."""
    return np.zeros(data, np.uint8) if isinstance(data, int) else np.frombuffer(data, np.uint8).copy()


def address(array: Buffer) -> int:
    """The remote address of a registered buffer."""
    return int(array.ctypes.data)


@dataclass(frozen=True)
class NetworkConditions:
    """What the link does to packets: probabilities, and the greatest extra delay of a reordered one."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay_ns: int = 50_000
    late_ns: int = 300_000


@dataclass
class End:
    """One queue pair, its memory and what it has completed."""

    qp: QueuePair
    memory: roce.MemoryRegions
    completions: list[Completion] = field(default_factory=list)

    def drain(self) -> None:
        while (completion := self.qp.poll()) is not None:
            self.completions.append(completion)

    def statuses(self) -> list[tuple[int, roce.Status]]:
        return [(completion.id, completion.status) for completion in self.completions]


class Pair:
    """Ends `a` and `b`; PSNs start so that they wrap early unless told otherwise."""

    def __init__(
        self,
        conditions: NetworkConditions | None = None,
        *,
        seed: int = 0,
        psn_a: int = 2**24 - 5,
        psn_b: int = 2**24 - 2,
        **options: Any,
    ) -> None:
        self.now = 0
        self.conditions = conditions or NetworkConditions()
        self.random = random.Random(seed)
        self.a = self._end(0x111, 0x222, psn_a, psn_b, options)
        self.b = self._end(0x222, 0x111, psn_b, psn_a, options)
        self._flying: list[tuple[int, int, End, bytes]] = []
        self._serial = 0
        self.sent: list[dict[str, Any]] = []

    @staticmethod
    def _end(qpn: int, peer: int, psn: int, peer_psn: int, options: dict[str, Any]) -> End:
        memory = roce.MemoryRegions()
        return End(QueuePair(QueuePairOptions(qpn, peer, psn, peer_psn, **options), memory), memory)

    def _launch(self, target: End, packet: bytes) -> None:
        conditions = self.conditions
        copies = 2 if self.random.random() < conditions.duplication else 1
        for _ in range(copies):
            if self.random.random() < conditions.loss:
                continue
            late = self.random.random() < conditions.reordering
            arrival = (
                self.now + conditions.delay_ns + (self.random.randrange(conditions.late_ns) if late else 0)
            )
            heapq.heappush(self._flying, (arrival, self._serial, target, packet))
            self._serial += 1

    def _transmit(self) -> None:
        for end, other in ((self.a, self.b), (self.b, self.a)):
            while (packet := end.qp.transmit(self.now)) is not None:
                self.sent.append(roce.parse(packet) or {})
                self._launch(other, packet)
            end.drain()

    def _next_time(self) -> int | None:
        deadlines = [end.qp.deadline for end in (self.a, self.b)]
        times = [time for time in deadlines if time is not None] + [entry[0] for entry in self._flying[:1]]
        return max(self.now, min(times)) if times else None

    def run(self, limit_ns: int = 60_000 * MS) -> None:
        """Until nothing is under way, no timer runs and nothing is left to send."""
        self._transmit()
        while (time := self._next_time()) is not None:
            assert time < limit_ns, "the pair has not come to rest"
            self.now = time
            while self._flying and self._flying[0][0] <= time:
                _, _, end, packet = heapq.heappop(self._flying)
                end.qp.receive(packet, time)
            for end in (self.a, self.b):
                if end.qp.deadline is not None and end.qp.deadline <= time:
                    end.qp.expire(time)
            self._transmit()

    def write(self, data: bytes, id: int = 1, immediate: int | None = None) -> Buffer:  # noqa: A002
        """a writes `data` into a new buffer of b, which is returned."""
        into = buffer(len(data))
        rkey = self.b.memory.add(into, roce.REMOTE_WRITE)
        self.a.qp.post(
            id, Operation.WRITE, buffer(data), immediate=immediate, remote_address=address(into), rkey=rkey
        )
        return into

    def read(self, data: bytes, id: int = 1) -> Buffer:  # noqa: A002
        """a reads `data` from a new buffer of b into the buffer that is returned."""
        source, into = buffer(data), buffer(len(data))
        rkey = self.b.memory.add(source, roce.REMOTE_READ)
        self.a.qp.post(id, Operation.READ, into, remote_address=address(source), rkey=rkey)
        return into

    def send(
        self,
        data: bytes,
        id: int = 1,  # noqa: A002
        room: int | None = None,
        *,
        quiet: bool = False,
    ) -> Buffer:
        """a sends `data`, b receives into the buffer that is returned."""
        into = buffer(len(data) if room is None else room)
        self.b.qp.post_receive(id, into)
        self.a.qp.post(id, Operation.SEND, buffer(data), quiet=quiet)
        return into
