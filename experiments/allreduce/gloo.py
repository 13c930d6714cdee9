# SPDX-License-Identifier: Apache-2.0
"""One rank of Gloo, through PyTorch, in a benchmark: `python -m railweave.experiments.allreduce.gloo`.

Gloo reduces and broadcasts in place, so the input is copied before the clock starts, not while it runs.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import numpy as np

from railweave.experiments.allreduce.loop import Contender, Measurement, measure
from railweave.experiments.messages import emit, run_worker
from railweave.experiments.problem import Array

TIMEOUT = timedelta(seconds=120)


def work() -> None:
    """Join the process group from the environment (torchrun's variables), measure, report."""
    import torch  # noqa: PLC0415 - optional
    import torch.distributed as dist  # noqa: PLC0415

    measurement = Measurement.parse(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    ops = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
    wrapped: dict[int, torch.Tensor] = {}

    def tensor(array: Array) -> torch.Tensor:
        return wrapped.setdefault(array.__array_interface__["data"][0], torch.from_numpy(array))

    def prepare(given: Array, out: Array) -> None:
        in_place = measurement.collective == "all_reduce"
        if in_place or (measurement.collective == "broadcast" and dist.get_rank() == measurement.root):
            np.copyto(out, given)

    def call(given: Array, out: Array) -> None:
        match measurement.collective:
            case "all_reduce":
                dist.all_reduce(tensor(out), op=ops[measurement.op])
            case "reduce_scatter":
                dist.reduce_scatter_tensor(tensor(out), tensor(given), op=ops[measurement.op])
            case "all_gather":
                dist.all_gather_into_tensor(tensor(out), tensor(given))
            case "broadcast":
                dist.broadcast(tensor(out), src=measurement.root)

    contender = Contender(dist.get_rank(), dist.get_world_size(), call, dist.barrier, prepare=prepare)
    measure(contender, measurement)
    emit("done", rank=int(os.environ["RANK"]), version=torch.__version__)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(run_worker(work))
