# SPDX-License-Identifier: Apache-2.0
"""Hosts on a bridge and agents with an RDMA rail, all in this process. Each rank has a namespace."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from system.namespaces import inside, ip, namespace, path_of

from railweave._native.agent import Agent, Call
from railweave._native.collectives import DType, ReduceOp
from railweave.topologies.lab import counters
from railweave.topologies.lab.shaping import counting_queue

NIC = "eth0"
WAIT_S = 30.0
RAIL, TCP = 0, 1
SECRET = bytes(range(32))

Result = TypeVar("Result")


@dataclass(frozen=True)
class Hosts:
    """Rank r has address 10.3.0.(r+1) on NIC in its namespace; port{r} of the bridge leads to it."""

    namespaces: tuple[int, ...]
    switch: int

    def address(self, rank: int) -> str:
        return f"10.3.0.{rank + 1}"

    def mac(self, rank: int) -> str:
        return f"02:00:00:03:00:{rank + 1:02x}"

    def bytes_sent(self, rank: int) -> int:
        """Return the bytes that the interface's queue counts: it counts the frames of a super-packet."""
        with inside(self.namespaces[rank]):
            done = subprocess.run(counters.COMMAND, check=True, capture_output=True, text=True)
        return counters.parse(done.stdout)[NIC].bytes_sent

    def lay(self, rank: int, mac: str | None = None) -> None:
        """Make the link of a rank, whose interface has this MAC address (default: the rank's)."""
        with inside(self.switch):
            address = ("address", mac or self.mac(rank))
            peer = ("peer", "name", NIC, *address, "netns", path_of(self.namespaces[rank]))
            ip("link", "add", f"port{rank}", "type", "veth", *peer)
            ip("link", "set", f"port{rank}", "master", "bridge", "up")
        with inside(self.namespaces[rank]):
            ip("address", "add", f"{self.address(rank)}/24", "dev", NIC)
            ip("link", "set", NIC, "up")
            subprocess.run(["tc", *counting_queue(NIC).split()], check=True)


@contextmanager
def bridged(count: int) -> Iterator[Hosts]:
    """Connect `count` hosts to a bridge."""
    with ExitStack() as stack:
        switch = stack.enter_context(namespace())
        hosts = Hosts(tuple(stack.enter_context(namespace()) for _ in range(count)), switch)
        with inside(switch):
            ip("link", "add", "bridge", "type", "bridge")
            ip("link", "set", "bridge", "up")
        for rank in range(count):
            hosts.lay(rank)
        yield hosts


class Job:
    """Agents of all ranks, joined, each with one RDMA rail and perhaps a TCP rail on the same interface."""

    def __init__(self, hosts: Hosts, *, with_tcp: bool = False, peer_timeout_s: float = 5.0) -> None:
        self.hosts = hosts
        self.size = len(hosts.namespaces)
        self._arrays: list[NDArray[np.float32]] = []
        self.agents: list[Agent] = []
        self.queue_pairs: list[list[int]] = []
        ports, control = [], []
        for rank in range(self.size):
            at = (hosts.address(rank), NIC)
            with inside(hosts.namespaces[rank]):  # for the agent's threads and connections
                agent = Agent(rank, self.size)
                agent.set_secret(SECRET)
                self.queue_pairs.append(agent.add_rdma("rdma", *at, 0, peer_timeout_s)[1])
                if with_tcp:
                    ports.append((hosts.address(rank), agent.add_tcp("tcp", *at)[1]))
                    control.append([(hosts.address(rank), agent.open_control(rail)) for rail in (RAIL, TCP)])
            self.agents.append(agent)
        members = [
            (hosts.address(rank), hosts.mac(rank), self.queue_pairs[rank]) for rank in range(self.size)
        ]
        self.on_every_rank(lambda rank: self.agents[rank].connect_rdma(RAIL, members))
        if with_tcp:
            connect = self.on_every_rank(lambda rank: self.agents[rank].connect_tcp(TCP, ports, WAIT_S))
            assert connect == [[]] * self.size
            places = [[of_rank[rail] for of_rank in control] for rail in (RAIL, TCP)]
            self.on_every_rank(lambda rank: self.agents[rank].enable_recovery(places, [0, 0]))

    def on_every_rank(self, work: Callable[[int], Result]) -> list[Result]:
        """Run `work` for each rank, each in its own thread in its host's namespace."""

        def there(rank: int) -> Result:
            with inside(self.hosts.namespaces[rank]):
                return work(rank)

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(there, range(self.size)))

    def submit(self, rank: int, x: NDArray[np.float32], out: NDArray[np.float32] | None = None) -> int:
        """Start a sum, and return its op index. The arrays live as long as the job."""
        out = np.empty_like(x) if out is None else out
        self._arrays += [x, out]
        call = Call(DType.FLOAT32, ReduceOp.SUM, x.size)
        point = self.agents[rank].plan_point()
        op: int = point[0]
        self.agents[rank].submit(point, call, x, out, [(RAIL, 0, x.size)])
        return op

    def all_reduce(self, rank: int, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Sum `x` over all ranks. AssertionError with the agent's message if it fails."""
        out = np.empty_like(x)
        op = self.submit(rank, x, out)
        assert self.agents[rank].wait(op, WAIT_S), "the time is up"
        failure = self.agents[rank].failure_of(op)
        assert failure is None, failure.message
        return out

    def close(self, linger_s: float = 2.0) -> None:
        self.on_every_rank(lambda rank: self.agents[rank].close(linger_s))


@contextmanager
def job(hosts: Hosts) -> Iterator[Job]:
    """Make a job, and close it when the block ends."""
    made = Job(hosts)
    try:
        yield made
    finally:
        made.close()
