# SPDX-License-Identifier: Apache-2.0
"""A rank of one of many jobs that share switches. It makes calls until it is stopped, and checks all results.

    python -m railweave.experiments.contenders.algorithm_series ALGORITHM TOPOLOGY PLANE BYTES NUMBER

The rank has the messages and the signal of `railweave.experiments.endless`.
"""

from __future__ import annotations

import itertools
import signal
import sys
import time

import numpy as np

from railweave.experiments.contenders.algorithm import joined
from railweave.experiments.endless import STOP
from railweave.experiments.messages import emit, run_worker
from railweave.experiments.problem import ITEM, problem

TIMEOUT_S = 120.0


def work() -> None:
    """Make calls until rank 0 marks a call as the last one, in its first element."""
    name, path, plane_name = sys.argv[1:4]
    size, number = int(sys.argv[4]), int(sys.argv[5])
    stopped: list[int] = []
    signal.signal(STOP, lambda received, _: stopped.append(received))
    endpoint = joined(name, path, plane_name, TIMEOUT_S, number)
    rank = endpoint.rank
    task = problem(size // ITEM - 1, "int32", "sum", rank, endpoint.ranks, number)
    given, out = (np.zeros(size // ITEM, np.int32) for _ in range(2))
    for call in itertools.count():
        task.fill(call, given[1:])
        given[0] = rank == 0 and bool(stopped)
        begin = time.monotonic()
        endpoint.all_reduce(given, out, "sum")
        end = time.monotonic()
        counts = {"done": 1, "bytes": size, "longest_s": end - begin, "rss_bytes": 0, "rails": {}}
        emit("calls", rank=rank, calls=[[call, begin, end, 0.0, [[plane_name, begin, end, size]]]], **counts)
        if wrong := task.wrong(call, out[1:]):
            emit("wrong", rank=rank, elements=wrong)
        if out[0]:
            break
    endpoint.close()


if __name__ == "__main__":
    sys.exit(run_worker(work))
