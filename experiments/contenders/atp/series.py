# SPDX-License-Identifier: Apache-2.0
"""A rank of one of many jobs: `python -m railweave.experiments.contenders.atp.series JOB RANK NUMBER`.

The rank makes calls for the seconds of the job's workload, and checks every element. It reports the begin and
the end of each call.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from railweave.experiments.contenders import Job
from railweave.experiments.contenders.atp import file_of
from railweave.experiments.contenders.atp.endpoint import Atp
from railweave.experiments.messages import emit, run_worker
from railweave.topologies.values import build


def work() -> None:
    """Make calls until rank 0 marks a call as the last one, in its first element."""
    job = build(Job, json.loads(Path(sys.argv[1]).read_text()), "job")
    rank, number = int(sys.argv[2]), int(sys.argv[3])
    count, seconds = job.workload["bytes"] // 4, job.workload["seconds"]
    inputs = np.random.default_rng(number).integers(-(2**20), 2**20, (job.size, count), np.int32)
    given, total = inputs[rank], inputs.sum(axis=0, dtype=np.int32)
    out = np.empty_like(given)
    endpoint = Atp(job, rank, number, file_of(job, number))
    begun = time.monotonic()
    calls: list[tuple[float, float]] = []
    wrong, last = 0, False
    while not last:
        given[0] = rank == 0 and time.monotonic() - begun > seconds
        at = time.monotonic()
        endpoint.all_reduce(given, out, "sum")
        calls.append((at, time.monotonic()))
        last = bool(out[0])
        wrong += int(np.count_nonzero(out[1:] != total[1:]))
        np.add(given, 1, out=given)  # results that are left over are wrong
        np.add(total, job.size, out=total)
    emit("calls", rank=rank, number=number, calls=calls, wrong=wrong)
    endpoint.close()


if __name__ == "__main__":
    sys.exit(run_worker(work))
