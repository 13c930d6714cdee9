# SPDX-License-Identifier: Apache-2.0
"""A rank of one of many jobs that share switches. It makes calls until it is stopped, and checks all results.

    python -m railweave.experiments.contenders.atp.series TOPOLOGY PLANE BYTES NUMBER

The rank has the messages and the signal of `railweave.experiments.endless`.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from railweave.experiments.contenders import Contender, Job
from railweave.experiments.contenders.atp.endpoint import Atp
from railweave.experiments.endless import STOP
from railweave.experiments.messages import emit, run_worker
from railweave.topologies.serialize import load

TIMEOUT_S = 120.0


def work() -> None:
    """Make calls until rank 0 marks a call as the last one, in its first element."""
    path, name, rank, number = sys.argv[1], sys.argv[2], int(os.environ["RANK"]), int(sys.argv[4])
    stopped: list[int] = []
    signal.signal(STOP, lambda received, _: stopped.append(received))
    addresses = tuple(nic.address for nic in load(path).plane(name).nics)
    ranks = len(addresses)
    job = Job(Contender("atp", "atp"), ranks, (name,), {name: addresses}, "", TIMEOUT_S, {}, topology=path)
    endpoint = Atp(job, rank, number)
    inputs = np.random.default_rng(number).integers(-(2**20), 2**20, (ranks, int(sys.argv[3]) // 4), np.int32)
    given, total = inputs[rank], inputs.sum(axis=0, dtype=np.int32)
    out = np.empty_like(given)
    last = False
    while not last:
        given[0] = rank == 0 and bool(stopped)
        begin = time.monotonic()
        endpoint.all_reduce(given, out, "sum")
        end = time.monotonic()
        counts = {"done": 1, "bytes": out.nbytes, "longest_s": end - begin, "rss_bytes": 0, "rails": {}}
        emit("calls", rank=rank, calls=[[0, begin, end, 0.0, [[name, begin, end, out.nbytes]]]], **counts)
        last = bool(out[0])
        if wrong := int(np.count_nonzero(out[1:] != total[1:])):
            emit("wrong", rank=rank, elements=wrong)
        np.add(given, 1, out=given)  # results that are left over are wrong
        np.add(total, ranks, out=total)
    endpoint.close()


if __name__ == "__main__":
    sys.exit(run_worker(work))
