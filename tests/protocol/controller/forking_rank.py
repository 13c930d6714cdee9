# SPDX-License-Identifier: Apache-2.0
"""Each rank of test_forks.py runs this program: `python forking_rank.py CONTROLLER RANK RANKS`."""

from __future__ import annotations

import gc
import os
import select
import sys

import numpy as np

import railweave

DEADLINE_S = 30


def in_child(how: str, comm: railweave.Communicator) -> None:
    """Run as the child of a rank. End, or call the inherited communicator, whose calls must raise errors."""
    match how:
        case "exit":
            sys.exit(0)
        case "close":
            with comm:
                comm.close()
            sys.exit(0)
        case "call":
            for call in (comm.barrier, comm.stats, comm.why, lambda: comm.all_reduce(np.ones(8, "f"))):
                try:
                    call()
                except railweave.RailweaveError as error:
                    if "forked" in str(error):
                        continue
                os._exit(1)
            sys.exit(0)


def forked(how: str, comms: list[railweave.Communicator]) -> int:
    """Fork a child. Return its exit status, or -1 if it does not end."""
    child = os.fork()
    if child == 0:
        if how == "collect":
            comms.clear()
            gc.collect()
            os._exit(0)
        in_child(how, comms[0])
    handle = os.pidfd_open(child)
    if not select.select([handle], [], [], DEADLINE_S)[0]:
        os.kill(child, 9)
        os.waitpid(child, 0)
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    controller, rank, ranks = sys.argv[1:]
    rails = "tcp0=tcp@lo,tcp1=tcp@lo"
    comms = [railweave.init(rank=int(rank), world_size=int(ranks), controller=controller, rails=rails)]
    x = np.ones(1000, np.float32)
    for how in ("exit", "close", "call", "collect"):
        for _ in range(5):
            comms[0].all_reduce(x)
        if status := forked(how, comms):
            sys.exit(f"{how}: the child ended with {status}")
        for _ in range(20):
            assert comms[0].all_reduce(x)[0] == int(ranks)
    comms[0].close()
