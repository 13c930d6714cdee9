# SPDX-License-Identifier: Apache-2.0
"""A parameter server on rank 0, over TCP: every rank pushes its tensor there, and pulls the sum.

Pushes and pulls overlap, chunk by chunk. All ranks push at once: the incast is as it is.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from railweave.experiments.contenders import Array, Endpoint, Implementation, Job
from railweave.experiments.contenders.ring import left_s, reach
from railweave.hosts.limits import payload_fraction
from railweave.topologies.model import Plane

PORT = 29503
CHUNK_BYTES = 16 << 10  # summed at once, when all have come
AHEAD_BYTES = 48 << 10  # that a rank pushes beyond what it has pulled: more of 15 overflow the server's queue
RANK = struct.Struct("!I")


class Kind(Implementation):
    """Pushes and pulls on one plane."""

    def limit_bps(self, plane: Plane, collective: str) -> float:
        """The server's link carries the tensor of every other rank, each way."""
        return plane.rate_bps * payload_fraction("tcp") / (len(plane.nics) - 1)

    def connect(self, job: Job, rank: int) -> Endpoint:
        """Connect with the server, or be it."""
        at = job.addresses[job.planes[0]][0], PORT
        deadline = time.monotonic() + job.timeout_s
        if rank:
            with contextlib.ExitStack() as stack:
                peer = stack.enter_context(reach(at, deadline))
                peer.sendall(RANK.pack(rank))
                stack.pop_all()
            return Worker(peer, job.timeout_s)
        return Server(accept(at, job.size, deadline), job.timeout_s)


class Stream:
    """A connection, and how far it is with what it sends and receives in a call."""

    def __init__(self, peer: socket.socket) -> None:
        """Take a connected socket."""
        peer.setblocking(False)
        self.socket = peer
        self._to_send = self._to_receive = memoryview(b"")
        self.sent = self.received = 0
        self.may_send = 0  # so much of it is there

    def begin(self, to_send: Any, to_receive: Any, may_send: int) -> None:
        """Begin a call."""
        self._to_send, self._to_receive = memoryview(to_send).cast("B"), memoryview(to_receive).cast("B")
        self.sent, self.received, self.may_send = 0, 0, may_send

    @property
    def size(self) -> int:
        """The bytes of the call's tensor."""
        return len(self._to_send)

    @property
    def waits_for(self) -> int:
        """What it waits for, of selectors' events; 0 where nothing can be done now."""
        reads = selectors.EVENT_READ if self.received < len(self._to_receive) else 0
        return reads | (selectors.EVENT_WRITE if self.sent < self.may_send else 0)

    @property
    def done(self) -> bool:
        """Whether all is sent and received."""
        return self.received == len(self._to_receive) and self.sent == len(self._to_send)

    def progress(self, events: int) -> None:
        """Send and receive what is possible; ConnectionError if the peer has left."""
        with contextlib.suppress(BlockingIOError):
            if events & selectors.EVENT_WRITE:
                self.sent += self.socket.send(self._to_send[self.sent : self.may_send])
        with contextlib.suppress(BlockingIOError):
            if events & selectors.EVENT_READ:
                got = self.socket.recv_into(self._to_receive[self.received :])
                if not got:
                    raise ConnectionError("a rank or the parameter server has left")
                self.received += got


class _Streams(Endpoint):
    """What server and workers have in common: they drive connections until all are done."""

    def __init__(self, peers: Sequence[socket.socket], timeout_s: float) -> None:
        self._streams = [Stream(peer) for peer in peers]
        self._timeout_s = timeout_s

    def _advance(self) -> None:
        """What follows from what has arrived."""

    def _drive(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        with selectors.DefaultSelector() as selector:
            waiting: dict[Stream, int] = {}
            while not all(stream.done for stream in self._streams):
                for stream in self._streams:
                    if (events := stream.waits_for) != waiting.get(stream, 0):
                        if waiting.pop(stream, 0):
                            selector.unregister(stream.socket)
                        if events:
                            selector.register(stream.socket, events, stream)
                            waiting[stream] = events
                for key, events in selector.select(left_s(deadline)):
                    key.data.progress(events)
                self._advance()

    def close(self) -> None:
        """Leave."""
        for stream in self._streams:
            stream.socket.close()


class Worker(_Streams):
    """A rank that pushes and pulls."""

    def __init__(self, peer: socket.socket, timeout_s: float) -> None:
        """Take the connection with the server."""
        super().__init__([peer], timeout_s)

    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        """Push `given`, pull the sum. What arrives takes the place of what the server has had already."""
        self._streams[0].begin(given, out, min(AHEAD_BYTES, given.nbytes))
        self._drive()

    def _advance(self) -> None:
        (stream,) = self._streams
        stream.may_send = min(stream.received + AHEAD_BYTES, stream.size)


class Server(_Streams):
    """Rank 0: adds its own tensor without the network."""

    def __init__(self, peers: Sequence[socket.socket], timeout_s: float) -> None:
        """Take the connections with the other ranks, in their order."""
        super().__init__(peers, timeout_s)
        self._out: Array = np.zeros(0, np.float32)
        self._pushed: list[Array] = []
        self._summed = 0  # elements

    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        """Add what the others push, chunk by chunk; a chunk goes to all when it is complete."""
        self._out, self._summed = out, 0
        self._pushed = [np.empty_like(out) for _ in self._streams]
        for stream, pushed in zip(self._streams, self._pushed, strict=True):
            stream.begin(out, pushed, 0)
        self._drive()

    def _advance(self) -> None:
        out = self._out
        complete = min(stream.received for stream in self._streams) // out.itemsize
        step = CHUNK_BYTES // out.itemsize
        while (end := min(self._summed + step, out.size)) <= complete and self._summed < out.size:
            for pushed in self._pushed:
                out[self._summed : end] += pushed[self._summed : end]
            self._summed = end
        for stream in self._streams:
            stream.may_send = self._summed * out.itemsize


def accept(at: tuple[str, int], ranks: int, deadline: float) -> list[socket.socket]:
    """Return a connection with each of the other ranks, in their order.

    TimeoutError where ranks have not come by the deadline, ConnectionError where what comes is no rank.
    """
    peers: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as stack, socket.create_server(at, backlog=ranks) as server:
        while len(peers) < ranks - 1:
            server.settimeout(left_s(deadline))
            peer = stack.enter_context(server.accept()[0])
            peer.settimeout(left_s(deadline))
            sent = peer.recv(RANK.size, socket.MSG_WAITALL)
            rank = RANK.unpack(sent)[0] if len(sent) == RANK.size else 0
            if rank in peers or rank not in range(1, ranks):
                raise ConnectionError(f"a worker calls itself rank {rank} of {ranks}")
            peers[rank] = peer
        stack.pop_all()
    return [peers[rank] for rank in range(1, ranks)]
