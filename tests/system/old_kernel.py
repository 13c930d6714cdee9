# SPDX-License-Identifier: Apache-2.0
"""A program for a kernel that takes no UDP super-packets from packet sockets. It prints one JSON line."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from system.namespaces import inside
from system.rdma_hosts import NIC, bridged

from railweave._native.agent import Agent, Call
from railweave._native.collectives import DType, ReduceOp
from railweave.commands.checks import run_checks

RAIL, RANKS = 0, 2
COUNT = 1 << 18
WAIT_S = 30.0


def sums() -> dict[str, object]:
    """Sum over RDMA rails, and return the agent's counts and the interface's counts."""
    x = np.arange(COUNT, dtype=np.float32)

    def all_reduce(agent: Agent) -> bool:
        out = np.empty_like(x)
        point = op, _ = agent.plan_point()
        agent.submit(point, Call(DType.FLOAT32, ReduceOp.SUM, COUNT), x, out, [(RAIL, 0, COUNT)])
        return agent.wait(op, WAIT_S) and agent.failure_of(op) is None and bool((out == RANKS * x).all())

    with bridged(RANKS) as hosts, ThreadPoolExecutor(RANKS) as pool:
        agents, members = [], []
        for rank in range(RANKS):
            agents.append(Agent(rank, RANKS))
            agents[rank].set_secret(bytes(32))
            with inside(hosts.namespaces[rank]):
                _, queue_pairs = agents[rank].add_rdma("rdma", hosts.address(rank), NIC)
            members.append((hosts.address(rank), hosts.mac(rank), queue_pairs))
        before = hosts.bytes_sent(0)
        for agent in agents:
            agent.connect_rdma(RAIL, members)
        right = [all(pool.map(all_reduce, agents)) for _ in range(3)]
        list(pool.map(lambda agent: agent.close(2.0), agents))
        stats = agents[0].stats()[RAIL]
        return {
            "right": all(right),
            "refused": stats.segmentation_refused,
            "counted": stats.bytes_sent,
            "sent": hosts.bytes_sent(0) - before,
        }


def doctor() -> dict[str, object]:
    """Return the doctor's finding about UDP super-packets."""
    (found,) = (finding for finding in run_checks() if finding.name == "UDP super-packets (RDMA rails)")
    return vars(found)


if __name__ == "__main__":
    print(json.dumps({"sums": sums, "doctor": doctor}[sys.argv[1]]()))
