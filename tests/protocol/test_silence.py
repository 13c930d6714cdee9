# SPDX-License-Identifier: Apache-2.0
"""A rank that computes is not silent. A rank whose process stands still is silent, and counts as lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from protocol.jobs import StaticJob

from railweave._native.agent import Agent, Call, FailureKind
from railweave._native.collectives import DType, ReduceOp
from railweave.hosts.communicator import Communicator

TIMEOUT_S = 1.0
DEADLINE_S = 30.0

try:
    Agent(0, 2).add_rdma("rdma", "127.0.0.1", "lo")
except (OSError, RuntimeError) as error:
    NO_RDMA = f"no rdma rail here: {error}"
else:
    NO_RDMA = ""

needs_rdma = pytest.mark.skipif(bool(NO_RDMA), reason=NO_RDMA or "-")
RAILS = ["tcp=tcp@lo", pytest.param("rdma=rdma@lo", marks=needs_rdma)]


@pytest.mark.parametrize("rails", RAILS)
def test_a_rank_that_computes_for_longer_than_the_timeout_is_not_lost(rails: str) -> None:
    """Each rank has its own loop, so it is heard although a rank computes in Python for two timeouts."""

    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(10, np.float32))
        big = np.ones(1 << 20, np.float32)  # more than the kernel buffers, so the sender waits
        if comm.rank == 1:
            end = time.monotonic() + 2 * TIMEOUT_S
            while time.monotonic() < end:
                sum(range(1000))
        assert comm.all_reduce(big)[0] == 2

    StaticJob(2).run(work, rails, peer_timeout_s=TIMEOUT_S)


PEER = """
import sys
import numpy as np
from railweave._native.agent import Agent, Call
from railweave._native.collectives import DType, ReduceOp
tcp_port, *numbers = map(int, sys.argv[1:])
agent = Agent(1, 2)
agent.set_secret(bytes(32))
rails = []
if tcp_port:
    tcp, port = agent.add_tcp("tcp", "127.0.0.1", "lo")
    rails.append(tcp)
if numbers:
    rdma, own = agent.add_rdma("rdma", "127.0.0.1", "lo")
    rails.append(rdma)
print(port if tcp_port else 0, *(own if numbers else ()), flush=True)
if tcp_port:
    assert agent.connect_tcp(tcp, [("127.0.0.1", tcp_port), ("127.0.0.1", port)], 30) == []
if numbers:
    mac = "00:00:00:00:00:00"
    agent.connect_rdma(rdma, [("127.0.0.1", mac, numbers), ("127.0.0.1", mac, own)])
x, out = np.ones(1 << 20, np.float32), np.empty(1 << 20, np.float32)
while True:
    point = op, _ = agent.plan_point()
    agent.submit(point, Call(DType.FLOAT32, ReduceOp.SUM, x.size), x, out, [(rails[-1], 0, x.size)])
    assert agent.wait(op, 30)
    assert agent.failure() is None, agent.failure().message
"""


class Pair:
    """Rank 0 in this process and rank 1 in another. The last of the given rails carries the calls."""

    def __init__(self, *, tcp: bool, rdma: bool) -> None:
        self.agent = Agent(0, 2)
        self.agent.set_secret(bytes(32))
        port, numbers = 0, []
        if tcp:
            index, port = self.agent.add_tcp("tcp", "127.0.0.1", "lo", 0, TIMEOUT_S)
        if rdma:
            index, numbers = self.agent.add_rdma("rdma", "127.0.0.1", "lo", 0, TIMEOUT_S)
        self.rail = index
        arguments = [sys.executable, "-P", "-c", PEER, str(port), *map(str, numbers)]
        self.peer = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert self.peer.stdout is not None
        peer_port, *theirs = map(int, self.peer.stdout.readline().split())
        if tcp:
            places = [("127.0.0.1", port), ("127.0.0.1", peer_port)]
            assert self.agent.connect_tcp(0, places, DEADLINE_S) == []
        if rdma:
            mac = "00:00:00:00:00:00"
            members = [("127.0.0.1", mac, numbers), ("127.0.0.1", mac, theirs)]
            self.agent.connect_rdma(index, members)
        self.call()

    def call(self) -> int:
        x, self.out = np.ones(1 << 20, np.float32), np.empty(1 << 20, np.float32)
        self.x = x
        point = self.agent.plan_point()
        op: int = point[0]
        call = Call(DType.FLOAT32, ReduceOp.SUM, x.size)
        self.agent.submit(point, call, x, self.out, [(self.rail, 0, x.size)])
        assert self.agent.wait(op, DEADLINE_S)
        return op

    def close(self) -> None:
        self.peer.kill()
        self.peer.communicate()
        self.agent.close(0)


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(**request.param)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("pair", "number"),
    [
        ({"tcp": True, "rdma": False}, signal.SIGSTOP),
        ({"tcp": True, "rdma": False}, signal.SIGKILL),
        pytest.param({"tcp": False, "rdma": True}, signal.SIGSTOP, marks=needs_rdma),
        pytest.param({"tcp": False, "rdma": True}, signal.SIGKILL, marks=needs_rdma),
        pytest.param({"tcp": True, "rdma": True}, signal.SIGKILL, marks=needs_rdma),
    ],
    indirect=["pair"],
    ids=str,
)
def test_a_process_that_stands_still_or_is_killed_is_named(pair: Pair, number: signal.Signals) -> None:
    killed, failure = time.monotonic(), None
    os.kill(pair.peer.pid, number)
    for _ in range(10_000):
        failure = pair.agent.failure_of(pair.call())
        if failure is not None:
            break
    assert failure is not None
    assert (failure.kind, failure.rank) == (FailureKind.PEER_LOST, 1)
    assert time.monotonic() - killed < 5
