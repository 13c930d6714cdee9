# SPDX-License-Identifier: Apache-2.0
"""A plain ring over TCP: the ring of railweave without striping, recovery or controller.

The baseline is therefore a strong one: pipelined native code, with recursive doubling for small tensors.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import time

from railweave._native.agent import Agent, Call
from railweave._native.collectives import Collective, ReduceOp
from railweave.experiments.contenders import Array, Endpoint, Implementation, Job
from railweave.experiments.problem import COLLECTIVES
from railweave.hosts.arrays import DTYPES
from railweave.hosts.errors import JoinTimeout
from railweave.hosts.failures import raise_failure
from railweave.protocol import SECRET_BYTES

MEETING_PORT = 29501  # on rank 0
PAUSE_S = 0.05  # between two attempts to connect
HELLO = struct.Struct("!IH")  # a rank, and a port where it listens

Place = tuple[str, int]  # IPv4 address and port


class Kind(Implementation):
    """A ring over one plane."""

    collectives = COLLECTIVES
    ops = ("sum", "max", "min", "avg")

    def connect(self, job: Job, rank: int) -> Endpoint:
        """Join the ring on the job's first plane."""
        return Ring(rank, job)


class Ring(Endpoint):
    """One rank of the ring."""

    def __init__(self, rank: int, job: Job, *, mptcp: bool = False, port: int = MEETING_PORT) -> None:
        """Connect with the other ranks on the job's first plane. All ranks meet at `port` of rank 0."""
        self._timeout_s = timeout_s = job.timeout_s
        addresses = job.addresses[job.planes[0]]
        self._agent = Agent(rank, len(addresses))
        # The further paths of Multipath TCP end at other addresses of this host.
        own = "0.0.0.0" if mptcp else addresses[rank]  # noqa: S104
        # The rate decides whether a tensor takes few steps or a ring. Small messages take one path.
        rate_bps = job.rates_bps.get(job.planes[0], 0)
        self._rail, mine = self._agent.add_tcp("ring", own, "", rate_bps, mptcp=mptcp)
        deadline = time.monotonic() + timeout_s
        secret, ports = meet(rank, len(addresses), (addresses[0], port), mine, deadline)
        members = list(zip(addresses, ports, strict=True))
        self._agent.set_secret(secret)
        missing = self._agent.connect_tcp(self._rail, members, deadline - time.monotonic())
        self._agent.forgo_recovery()
        raise_failure(self._agent.failure())
        if missing:
            raise JoinTimeout(
                f"no connection with rank {', '.join(map(str, missing))} after {timeout_s:g} s",
                "connections with all ranks",
                "read the logs of these ranks",
            )

    def all_reduce(self, given: Array, out: Array, op: str) -> None:
        """Reduce over all ranks."""
        self._call(Collective.ALL_REDUCE, given, out, out.size, op=op)

    def reduce_scatter(self, given: Array, out: Array, op: str) -> None:
        """Reduce over all ranks; `out` gets this rank's shard."""
        self._call(Collective.REDUCE_SCATTER, given, out, out.size, op=op)

    def all_gather(self, given: Array, out: Array) -> None:
        """Gather every rank's shard in `out`."""
        self._call(Collective.ALL_GATHER, given, out, given.size)

    def broadcast(self, out: Array, root: int) -> None:
        """Send the root's `out` to all."""
        self._call(Collective.BROADCAST, out, out, out.size, root=root)

    def all_gather_and_reduce_scatter(
        self, shard: Array, gathered: Array, tensor: Array, own: Array, op: str
    ) -> None:
        """Do both. They load the same links equally, so they take as long in sequence as at once."""
        begun = (
            self._begin(Collective.ALL_GATHER, shard, gathered, shard.size),
            self._begin(Collective.REDUCE_SCATTER, tensor, own, own.size, op=op),
        )
        for index in begun:
            self._end(index)

    def _call(
        self, collective: Collective, given: Array, out: Array, count: int, *, op: str = "sum", root: int = 0
    ) -> None:
        self._end(self._begin(collective, given, out, count, op=op, root=root))

    def _begin(
        self, collective: Collective, given: Array, out: Array, count: int, *, op: str = "sum", root: int = 0
    ) -> int:
        call = Call(DTYPES[out.dtype.char], ReduceOp[op.upper()], count, collective, root)
        point = index, _ = self._agent.plan_point(self._timeout_s)
        self._agent.submit(point, call, given, out, [(self._rail, 0, count)], start_now=False)
        return index

    def _end(self, index: int) -> None:
        if not self._agent.wait(index, self._timeout_s):
            raise TimeoutError(f"a call has not completed within {self._timeout_s:g} s")
        raise_failure(self._agent.failure_of(index))

    def close(self) -> None:
        """Leave the ring."""
        self._agent.close()


def meet(rank: int, ranks: int, at: Place, mine: int, deadline: float) -> tuple[bytes, list[int]]:
    """Exchange a secret of this job, and the ports of all ranks, through rank 0 at `at`.

    Raises TimeoutError and ConnectionError as `accept` does.
    """
    answer = struct.Struct(f"!{SECRET_BYTES}s{ranks}H")
    if rank:
        with reach(at, rank, mine, deadline) as peer:
            secret, *ports = answer.unpack(_read(peer, answer.size))
        return secret, ports
    secret = secrets.token_bytes(SECRET_BYTES)
    with socket.create_server(at, backlog=ranks) as server:
        others = accept(server, 0, ranks, deadline)
    ports = [mine, *(port for _, port in others)]
    for peer, _ in others:
        with peer:
            peer.sendall(answer.pack(secret, *ports))
    return secret, ports


def accept(server: socket.socket, own: int, ranks: int, deadline: float) -> list[tuple[socket.socket, int]]:
    """Return a connection with each of the other ranks, and its port, in the order of the ranks.

    Raises TimeoutError if a rank has not connected by the deadline, and ConnectionError if a client is not a
    rank.
    """
    peers: dict[int, tuple[socket.socket, int]] = {}
    with contextlib.ExitStack() as stack:
        while len(peers) < ranks - 1:
            server.settimeout(left_s(deadline))
            peer = stack.enter_context(server.accept()[0])
            peer.settimeout(left_s(deadline))
            rank, port = HELLO.unpack(_read(peer, HELLO.size))
            if rank in peers or rank == own or rank not in range(ranks):
                raise ConnectionError(f"a client calls itself rank {rank} of {ranks}")
            peers[rank] = peer, port
        stack.pop_all()
    return [peers[rank] for rank in sorted(peers)]


def reach(at: Place, rank: int, port: int, deadline: float) -> socket.socket:
    """Connect, and say who this rank is. Try again until somebody listens.

    Raises TimeoutError at the deadline.
    """
    while True:
        try:
            peer = socket.create_connection(at, left_s(deadline))
        except ConnectionRefusedError:
            time.sleep(min(PAUSE_S, left_s(deadline)))
        else:
            peer.settimeout(left_s(deadline))
            peer.sendall(HELLO.pack(rank, port))
            return peer


def _read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        received = peer.recv(size - len(data))
        if not received:
            raise ConnectionError("a client has left before it said who it is")
        data += received
    return data


def left_s(deadline: float) -> float:
    """Return the seconds until a deadline. Raise TimeoutError if it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the ranks have not met in time")
    return left
