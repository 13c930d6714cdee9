# SPDX-License-Identifier: Apache-2.0
"""One rank that sums until it is stopped, through any fault: `python -m railweave.experiments.faults.worker`.

Sums int32 tensors that change from call to call, so that a result left over from another call is wrong in
every element. Element 0 carries the request to stop.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from numpy.typing import NDArray

from railweave.experiments.endless import Signal, join_and
from railweave.experiments.messages import emit, run_worker
from railweave.hosts.communicator import Communicator

TICK_S = 0.1  # between two reports of progress
SLOW_S = 0.1  # longer calls are reported one by one


def work() -> None:
    """Join and sum, again after every error, until the signal to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, required=True)
    count = parser.parse_args().bytes // 4
    join_and(lambda comm, stop: _series(comm, count, stop))


def _series(comm: Communicator, count: int, stop: Signal) -> None:
    inputs = [_input(rank, count) for rank in range(comm.world_size)]
    base = inputs[comm.rank]
    total: NDArray[np.int32] = np.sum(np.stack(inputs), axis=0, dtype=np.int32)
    mine, result = np.empty_like(base), np.empty_like(base)
    calls = wrong = 0
    reported = 0.0
    while True:
        np.add(base, np.int32(calls), out=mine)
        mine[0] = comm.rank == 0 and stop.received
        begin = time.monotonic()
        comm.all_reduce(mine, out=result)
        end = time.monotonic()
        wrong += int(np.count_nonzero(result[1:] != total[1:] + np.int32(comm.world_size * calls)))
        calls += 1
        if end - begin > SLOW_S:
            emit("slow", rank=comm.rank, begin=begin, end=end)
        if end - reported > TICK_S or wrong or result[0]:
            emit("tick", rank=comm.rank, at=end, calls=calls, wrong=wrong)
            wrong, reported = 0, end
        if result[0]:
            return


def _input(rank: int, count: int) -> NDArray[np.int32]:
    return np.random.default_rng(rank).integers(-(1 << 30), 1 << 30, count, np.int32)


if __name__ == "__main__":
    sys.exit(run_worker(work))
