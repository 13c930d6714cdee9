# SPDX-License-Identifier: Apache-2.0
"""A program for a kernel that takes no UDP super-packets from packet sockets. It prints one JSON line."""

from __future__ import annotations

import json
import sys

import numpy as np
from system.rdma_hosts import RAIL, bridged, job

from railweave.commands.checks import run_checks

COUNT = 1 << 18


def sums() -> dict[str, object]:
    """Sum over RDMA rails, and return the agent's counts and the interface's counts."""
    with bridged(2) as hosts:
        before = hosts.bytes_sent(0)
        with job(hosts) as made:
            x = np.arange(COUNT, dtype=np.float32)
            for _ in range(3):
                results = made.on_every_rank(lambda rank: made.all_reduce(rank, x))
        stats = made.agents[0].stats()[RAIL]
        return {
            "right": all((result == 2 * x).all() for result in results),
            "refused": stats.segmentation_refused,
            "retransmissions": stats.retransmissions,
            "counted": stats.bytes_sent,
            "sent": hosts.bytes_sent(0) - before,
        }


def doctor() -> dict[str, object]:
    """Return the doctor's finding about UDP super-packets."""
    (found,) = (finding for finding in run_checks() if finding.name == "UDP super-packets (RDMA rails)")
    return vars(found)


if __name__ == "__main__":
    print(json.dumps({"sums": sums, "doctor": doctor}[sys.argv[1]]()))
