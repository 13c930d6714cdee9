# SPDX-License-Identifier: Apache-2.0
"""Parameter servers over TCP: every rank pushes its tensor to them, and pulls the sum.

Pushes and pulls overlap, chunk by chunk. All ranks push at once, and nothing prevents the incast. The option
`servers` is the number of servers, 1 by default. The first ranks serve, each an equal part of the tensor.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Mapping, Sequence

import numpy as np

from railweave.experiments import limits
from railweave.experiments.contenders import Array, Contender, Endpoint, Implementation, Job
from railweave.experiments.contenders.ring import accept, left_s, reach
from railweave.topologies.model import Plane

PORT = 29503
CHUNK_BYTES = 16 << 10  # a server sums a chunk when it has the chunk from all ranks
AHEAD_BYTES = 48 << 10  # a rank's pushes ahead of its pulls; more from 15 ranks overflow the server's queue


class Kind(Implementation):
    """Pushes and pulls on one plane."""

    def __init__(self, contender: Contender) -> None:
        """Take the contender that it runs."""
        super().__init__(contender)
        self.servers = int(contender.options.get("servers", 1))

    def limit_bps(self, plane: Plane, collective: str) -> float:
        """Return the limit of a server's link.

        The link carries the server's part for every other rank, and the other parts of the server's tensor.
        """
        return limits.over_link(plane, (len(plane.nics) - 1 + self.servers - 1) / self.servers)

    def connect(self, job: Job, rank: int) -> Endpoint:
        """Connect with the servers. The first ranks also become servers."""
        places = [(address, PORT) for address in job.addresses[job.planes[0]]]
        deadline = time.monotonic() + job.timeout_s
        with contextlib.ExitStack() as stack, contextlib.ExitStack() as listening:
            server = None
            if rank < self.servers:
                server = listening.enter_context(socket.create_server(places[rank], backlog=job.size))
            pushes = {}
            for other in range(self.servers):
                if other != rank:
                    pushes[other] = stack.enter_context(reach(places[other], rank, 0, deadline))
            clients = accept(server, rank, job.size, deadline) if server else []
            stack.pop_all()
        return Ps(rank, self.servers, pushes, [peer for peer, _ in clients], job.timeout_s)


class Stream:
    """A connection, and the bytes of a call that it has sent and received."""

    def __init__(self, peer: socket.socket) -> None:
        """Take a connected socket."""
        peer.setblocking(False)
        self.socket = peer
        self._to_send = self._to_receive = memoryview(b"")
        self.sent = self.received = 0
        self.may_send = 0  # bytes that are ready to be sent

    def begin(self, to_send: Array, to_receive: Array, may_send: int) -> None:
        """Begin a call."""
        self._to_send = to_send.view(np.uint8).data
        self._to_receive = to_receive.view(np.uint8).data
        self.sent, self.received, self.may_send = 0, 0, may_send

    @property
    def size(self) -> int:
        """The bytes of the call's tensor."""
        return len(self._to_send)

    @property
    def waits_for(self) -> int:
        """The events of `selectors` that the stream waits for; 0 if it can do nothing now."""
        reads = selectors.EVENT_READ if self.received < len(self._to_receive) else 0
        return reads | (selectors.EVENT_WRITE if self.sent < self.may_send else 0)

    @property
    def done(self) -> bool:
        """Whether all is sent and received."""
        return self.received == len(self._to_receive) and self.sent == len(self._to_send)

    def progress(self, events: int) -> None:
        """Send and receive without blocking. Raise ConnectionError if the peer has left."""
        with contextlib.suppress(BlockingIOError):
            if events & selectors.EVENT_WRITE:
                self.sent += self.socket.send(self._to_send[self.sent : self.may_send])
        with contextlib.suppress(BlockingIOError):
            if events & selectors.EVENT_READ:
                got = self.socket.recv_into(self._to_receive[self.received :])
                if not got:
                    raise ConnectionError("a rank or the parameter server has left")
                self.received += got


class Ps(Endpoint):
    """A rank that pushes and pulls. It may also be a server, which adds its own numbers locally."""

    def __init__(
        self,
        rank: int,
        servers: int,
        pushes: Mapping[int, socket.socket],
        serves: Sequence[socket.socket],
        timeout_s: float,
    ) -> None:
        """Take the connections.

        `pushes` are connections with other servers, by rank. `serves` are connections with ranks that push to
        this server, in the order of the ranks.
        """
        self._rank, self._servers, self._timeout_s = rank, servers, timeout_s
        self._pushes = {server: Stream(peer) for server, peer in pushes.items()}
        self._serves = [Stream(peer) for peer in serves]
        self._streams = [*self._pushes.values(), *self._serves]
        self._ahead = max(CHUNK_BYTES, AHEAD_BYTES // servers)
        self._own: Array = np.zeros(0, np.float32)
        self._pushed: list[Array] = []
        self._summed = 0  # elements

    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        """Push, pull and add. Sums overwrite numbers in `out` that the server has already received."""
        bounds = [out.size * part // self._servers for part in range(self._servers + 1)]
        for server, stream in self._pushes.items():
            part = slice(bounds[server], bounds[server + 1])
            stream.begin(given[part], out[part], min(self._ahead, given[part].nbytes))
        if self._serves:
            self._own, self._summed = out[bounds[self._rank] : bounds[self._rank + 1]], 0
            self._pushed = [np.empty_like(self._own) for _ in self._serves]
            for stream, pushed in zip(self._serves, self._pushed, strict=True):
                stream.begin(self._own, pushed, 0)
        self._drive()

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

    def _advance(self) -> None:
        """React to the bytes that have arrived."""
        for stream in self._pushes.values():
            stream.may_send = min(stream.received + self._ahead, stream.size)
        if self._serves:
            self._add()

    def _add(self) -> None:
        """Add chunk by chunk. A complete chunk may be sent to all ranks."""
        own = self._own
        complete = min(stream.received for stream in self._serves) // own.itemsize
        step = CHUNK_BYTES // own.itemsize
        while (end := min(self._summed + step, own.size)) <= complete and self._summed < own.size:
            for pushed in self._pushed:
                own[self._summed : end] += pushed[self._summed : end]
            self._summed = end
        for stream in self._serves:
            stream.may_send = self._summed * own.itemsize

    def close(self) -> None:
        """Close all connections."""
        for stream in self._streams:
            stream.socket.close()
