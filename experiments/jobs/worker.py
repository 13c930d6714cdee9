# SPDX-License-Identifier: Apache-2.0
"""One rank of one of several jobs: `python -m railweave.experiments.jobs.worker`.

Sums int32 tensors one after another until rank 0 gets SIGUSR1. Element 0 carries the request to stop: only
rank 0 sets it, so all ranks see it in the result of the same call.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time

import numpy as np
from numpy.typing import NDArray

import railweave
from railweave.experiments.endless import Signal
from railweave.experiments.messages import emit, rail_counts, run_worker, slices
from railweave.hosts.communicator import Communicator

REPORT_EVERY_S = 1.0


def work() -> None:
    """Join, sum, report every second which slices have ended, and at the end what was wrong or not used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, required=True)
    given = parser.parse_args()
    stop = Signal.listen(signal.SIGUSR1)
    with railweave.init() as comm:
        emit("joined", rank=comm.rank)
        mine, expected = _tensors(given.bytes // 4, comm.rank, comm.world_size)
        result = np.empty_like(mine)
        calls = wrong = 0
        report = 0.0
        while not result[0] or not calls:
            mine[0] = comm.rank == 0 and stop.received
            comm.all_reduce(mine, out=result)
            calls += 1
            wrong += int(np.count_nonzero(result[1:] != expected[1:]))
            if time.monotonic() >= report:
                report = time.monotonic() + REPORT_EVERY_S
                emit("slices", rank=comm.rank, slices=slices(comm))
        emit("slices", rank=comm.rank, slices=slices(comm))
        counts = {name: vars(rail) for name, rail in rail_counts(comm).items()}
        emit("done", rank=comm.rank, calls=calls, wrong=wrong, rails=counts, why=refused(comm))


def refused(comm: Communicator) -> dict[str, str]:
    """Return why the controller has refused rails."""
    return {each.rail: each.detail for each in comm.why() if not each.calls}


def _tensors(count: int, rank: int, ranks: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return this rank's tensor and the sum of all."""
    all_of_them = [
        np.random.default_rng([count, other]).integers(-(1 << 26), 1 << 26, count, np.int32)
        for other in range(ranks)
    ]
    return all_of_them[rank], np.sum(all_of_them, axis=0, dtype=np.int32)


if __name__ == "__main__":
    sys.exit(run_worker(work))
