# SPDX-License-Identifier: Apache-2.0
"""Two queue pairs joined by a bad link, in virtual time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from protocol.virtual_time import Link, Process, World

from railweave._rigs import roce
from railweave._rigs.roce import Completion, Operation, QueuePair, QueuePairOptions

Buffer = NDArray[np.uint8]
MS = 1_000_000


def all_sent(end: End, now: int = 0) -> list[bytes]:
    """Return the packets that a queue pair sends at this time."""
    return list(iter(lambda: end.qp.transmit(now), None))


def buffer(data: bytes | int) -> Buffer:
    """Return a buffer with these bytes, or a zeroed buffer of this size."""
    return np.zeros(data, np.uint8) if isinstance(data, int) else np.frombuffer(data, np.uint8).copy()


def address(array: Buffer) -> int:
    """Return the remote address of a registered buffer."""
    return int(array.ctypes.data)


class End(Process):
    """One queue pair, its memory and its completions."""

    world: Pair
    peer: End

    def __init__(self, world: Pair, options: QueuePairOptions) -> None:
        self.memory = roce.MemoryRegions()
        self.qp = QueuePair(options, self.memory)
        super().__init__(world, self.qp)
        self.completions: list[Completion] = []

    def deadline(self) -> int | None:
        return self.qp.deadline

    def transmit(self, packet: bytes) -> None:
        self.world.sent.append(roce.parse(packet) or {})
        self.world.send(self, packet, self.peer.arrive)

    def event(self, completion: Completion) -> None:
        self.completions.append(completion)

    def statuses(self) -> list[tuple[int, roce.Status]]:
        return [(completion.id, completion.status) for completion in self.completions]


class Pair(World):
    """Ends `a` and `b`. By default their PSNs wrap early."""

    def __init__(
        self,
        link: Link | None = None,
        *,
        seed: int = 0,
        psn_a: int = 2**24 - 5,
        psn_b: int = 2**24 - 2,
        **options: Any,
    ) -> None:
        super().__init__(seed, link)
        self.a = End(self, QueuePairOptions(0x111, 0x222, psn_a, psn_b, **options))
        self.b = End(self, QueuePairOptions(0x222, 0x111, psn_b, psn_a, **options))
        self.a.peer, self.b.peer = self.b, self.a
        self.sent: list[dict[str, Any]] = []

    def rest(self, limit_ns: int = 60_000 * MS) -> None:
        """Run until nothing is under way, no timer runs and nothing is left to send."""
        for end in (self.a, self.b):
            end.pump()
        self.drain(limit_ns - self.now)

    def write(self, data: bytes, id: int = 1, immediate: int | None = None) -> Buffer:  # noqa: A002
        """Let a write `data` into a new buffer of b. Return the buffer."""
        into = buffer(len(data))
        rkey = self.b.memory.add(into)
        self.a.qp.post(
            id, Operation.WRITE, buffer(data), immediate=immediate, remote_address=address(into), rkey=rkey
        )
        return into

    def deliver(
        self,
        data: bytes,
        id: int = 1,  # noqa: A002
        room: int | None = None,
        *,
        quiet: bool = False,
    ) -> Buffer:
        """Let a send `data`. Return the buffer into which b receives it."""
        into = buffer(len(data) if room is None else room)
        self.b.qp.post_receive(id, into)
        self.a.qp.post(id, Operation.SEND, buffer(data), quiet=quiet)
        return into
