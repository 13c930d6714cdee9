# SPDX-License-Identifier: Apache-2.0
"""One rank of railweave in a benchmark: `python -m railweave.experiments.allreduce.worker`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import railweave
from railweave.experiments.allreduce.loop import Contender, Measurement, measure
from railweave.experiments.messages import emit, rail_counts, run_worker, slices
from railweave.experiments.problem import Array


def work() -> None:
    """Join the job, measure, report what the rails did."""
    measurement = Measurement.parse(__doc__)
    token = np.zeros(1, np.int32)
    with railweave.init() as comm:

        def prepare(given: Array, out: Array) -> None:
            if measurement.collective == "broadcast" and comm.rank == measurement.root:
                np.copyto(out, given)

        def call(given: Array, out: Array) -> None:
            match measurement.collective:
                case "all_reduce":
                    comm.all_reduce(given, op=measurement.op, out=out)
                case "reduce_scatter":
                    comm.reduce_scatter(given, op=measurement.op, out=out)
                case "all_gather":
                    comm.all_gather(given, out=out)
                case "broadcast":
                    comm.broadcast(out, root=measurement.root)

        def meet() -> None:
            comm.all_reduce(token, op="max", out=token)

        def details() -> dict[str, Any]:
            payload: dict[str, int] = {}
            for piece in slices(comm):
                if piece["survey"]:
                    continue
                payload[piece["rail"]] = payload.get(piece["rail"], 0) + piece["bytes"]
            return {"payload": payload}

        measure(Contender(comm.rank, comm.world_size, call, meet, prepare, details), measurement)
        counts = {name: vars(rail) for name, rail in rail_counts(comm).items()}
        emit("done", rank=comm.rank, rails=counts)


if __name__ == "__main__":
    sys.exit(run_worker(work))
