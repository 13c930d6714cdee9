# SPDX-License-Identifier: Apache-2.0
"""All-reduces with verified results, timed on all ranks of a testbed."""

from __future__ import annotations

import time

import numpy as np

import railweave
from railweave.experiments import statistics
from railweave.experiments.program.testbed import Testbed


def calls(comm: railweave.Communicator, size_bytes: int, count: int) -> tuple[list[float], int]:
    """Return the seconds of each call after a first one, and the wrong elements of all."""
    every = [
        np.random.default_rng(rank).integers(-9999, 9999, size_bytes // 4) for rank in range(comm.world_size)
    ]
    exact, own = sum(every).astype(np.int32), every[comm.rank].astype(np.int32)  # type: ignore[union-attr]
    times, wrong = [], 0
    for _ in range(1 + count):
        comm.barrier()
        begin = time.monotonic()
        got = comm.all_reduce(own)
        times.append(time.monotonic() - begin)
        wrong += int(np.count_nonzero(got != exact))
    return times[1:], wrong


def seconds(bed: Testbed, size_bytes: int, count: int) -> tuple[float, int]:
    """Return the median time of a call on its slowest rank, and the wrong elements of all calls."""
    values = bed.run(calls, size_bytes, count).wait().values
    slowest = [max(times) for times in zip(*(own for own, _ in values), strict=True)]
    return statistics.median(slowest), sum(count for _, count in values)
