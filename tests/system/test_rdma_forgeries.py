# SPDX-License-Identifier: Apache-2.0
"""Packets with a peer's forged address break a queue pair. Its rail is excluded, and the job goes on."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from system import rdma_hosts
from system.namespaces import dropping, inside
from system.rdma_hosts import RAIL, Hosts, bridged

from railweave._native.agent import Call, FailureKind
from railweave._native.collectives import DType, ReduceOp
from railweave._rigs import roce

DEADLINE_S = 30.0
ETH_P_ALL = 3  # also sees frames that a bridge takes
FIRST_ADDRESS = 0x0A030001
VERSION, ABORT, GOODBYE, SHORT = 4, 2, 3, 4  # version of control messages, and three types
CALL = Call(DType.INT32, ReduceOp.SUM, 1 << 18)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with bridged(2) as made:
        yield made


class Job(rdma_hosts.Job):
    """Two ranks that make calls while an attacker forges packets to rank 0."""

    def __init__(self, hosts: Hosts, *, with_tcp: bool) -> None:
        super().__init__(hosts, with_tcp=with_tcp, peer_timeout_s=5.0 if with_tcp else 2.0)
        self.done = False
        self.queue_pair = self.queue_pairs[0][1]  # rank 0's queue pair to rank 1

    def call(self, rank: int) -> None:
        """Sum, over the RDMA rail while it is up. Raise AssertionError if the sum fails."""
        agent = self.agents[rank]
        x = np.full(CALL.count, rank + 1, np.int32)
        out = np.empty_like(x)
        submitted = False
        while not submitted:
            point = op, _ = agent.plan_point(DEADLINE_S)
            alive = [True, False]
            for change in agent.changes(0):
                if change.from_op <= op:
                    alive = change.alive
            submitted = agent.submit(point, CALL, x, out, [(alive.index(True), 0, CALL.count)])
        assert agent.wait(op, DEADLINE_S), "the time is up"
        failure = agent.failure_of(op)
        assert failure is None, (failure.kind, failure.rail, failure.message)
        assert (out == 3).all()

    def calls_until(self, reached: Callable[[], bool]) -> None:
        """Let both ranks make the same number of calls, until `reached` is true."""
        latest = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < latest, "nothing has come of it"
            self.on_every_rank(lambda rank: [self.call(rank) for _ in range(10)])


class Forger:
    """An attacker that sees the ranks' packets, and answers rank 0 with the addresses of rank 1."""

    def __init__(self, hosts: Hosts, queue_pair: int) -> None:
        self.path = roce.Path(
            bytes.fromhex(hosts.mac(1).replace(":", "")),
            bytes.fromhex(hosts.mac(0).replace(":", "")),
            FIRST_ADDRESS + 1,
            FIRST_ADDRESS,
        )
        self.queue_pair = queue_pair
        self.sockets = []
        for port in ("port0", "port1"):
            with inside(hosts.switch):
                made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            made.bind((port, 0))
            made.settimeout(0.1)
            self.sockets.append(made)

    def sniff(self, port: int) -> int | None:
        """Return the packet number of the next request that arrives at this port, or None."""
        try:
            frame, (_, _, kind, *_) = self.sockets[port].recvfrom(1 << 16)
        except TimeoutError:
            return None
        if kind == socket.PACKET_OUTGOING or frame[36:38] != roce.UDP_PORT.to_bytes(2):
            return None
        return int.from_bytes(frame[51:54]) if frame[42] != roce.Opcode.ACKNOWLEDGE.value else None

    def send(self, transport: bytes) -> None:
        self.sockets[0].send(roce.seal(self.path, 1, transport))

    def refuse(self, code: int) -> None:
        """Send a NAK for the last request of rank 0."""
        if (number := self.sniff(0)) is not None:
            self.send(roce.build(roce.Opcode.ACKNOWLEDGE, self.queue_pair, number, aeth=(3, code, 0)))

    def intrude(self) -> None:
        """Send a write to memory that rank 0 has not offered, in place of rank 1's request."""
        if (number := self.sniff(1)) is not None:
            reth = (0, 0xBAD, 4)
            self.send(roce.build(roce.Opcode.WRITE_ONLY, self.queue_pair, number, b"evil", reth=reth))

    def say(self, kind: int, payload: bytes) -> None:
        """Send a control message, in place of rank 1's request."""
        if (number := self.sniff(1)) is not None:
            message = struct.pack("!BBHI", kind, VERSION, 0, 0) + payload
            self.send(roce.build(roce.Opcode.SEND_ONLY, self.queue_pair, number, message))

    def close(self) -> None:
        for each in self.sockets:
            each.close()


@contextmanager
def attacked(job: Job, forge: Callable[[Forger], None]) -> Iterator[None]:
    """Forge until the block ends. Drop rank 1's own RDMA packets, which would otherwise arrive first."""
    forger = Forger(job.hosts, job.queue_pair)

    def attack() -> None:
        while not job.done:
            forge(forger)

    with dropping(job.hosts.switch, {"port1": ""}), ThreadPoolExecutor(1) as pool:
        attacking = pool.submit(attack)
        try:
            yield
        finally:
            job.done = True
            attacking.result(DEADLINE_S)
            forger.close()


FORGERIES: dict[str, tuple[Callable[[Forger], None], str]] = {
    "invalid request": (lambda forger: forger.refuse(1), "refused a request as invalid"),
    "access error": (lambda forger: forger.refuse(2), "refused access to the memory"),
    "operational error": (lambda forger: forger.refuse(3), "reported an error of its own"),
    "intrusion": (Forger.intrude, "broke the connection with a request that makes no sense"),
    **{
        name: (partial(Forger.say, kind=kind, payload=payload), "that no rank of the job has written")
        for name, (kind, payload) in {
            "lost peer": (ABORT, struct.pack("!BiB", 0, 1, 0) + b"it has died"),
            "goodbye": (GOODBYE, b""),
            "other call": (SHORT, struct.pack("!IBBBBHHQQ", 999, 0, 0, 0, 0, 0, 0, 1, 1) + bytes(4)),
        }.items()
    },
}


@pytest.mark.parametrize(("forge", "reason"), FORGERIES.values(), ids=FORGERIES)
def test_a_forged_packet_costs_the_rail_and_not_the_job(
    hosts: Hosts, forge: Callable[[Forger], None], reason: str
) -> None:
    job = Job(hosts, with_tcp=True)
    try:
        with attacked(job, forge):
            job.calls_until(lambda: bool(job.agents[0].rail_states()[RAIL].failures))
        assert reason in job.agents[0].rail_states()[RAIL].last_failure
        job.calls_until(lambda: all(agent.rail_states()[RAIL].state == "up" for agent in job.agents))
        assert all(agent.failure() is None for agent in job.agents)
    finally:
        job.on_every_rank(lambda rank: job.agents[rank].close(1.0))


@pytest.mark.parametrize("name", ["invalid request", "lost peer"])
def test_without_another_rail_the_job_ends_with_the_name_of_the_rail(hosts: Hosts, name: str) -> None:
    forge, reason = FORGERIES[name]
    job = Job(hosts, with_tcp=False)
    try:
        with attacked(job, forge), pytest.raises(AssertionError, match=reason):
            job.calls_until(lambda: False)
        failure = job.agents[0].failure()
        assert failure is not None
        assert (failure.kind, failure.rail) == (FailureKind.RAIL_DOWN, "rdma")
    finally:
        job.on_every_rank(lambda rank: job.agents[rank].close(0.1))
