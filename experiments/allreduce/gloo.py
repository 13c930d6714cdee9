# SPDX-License-Identifier: Apache-2.0
"""One rank of Gloo, through PyTorch, in a benchmark: `python -m railweave.experiments.allreduce.gloo`.

Gloo reduces in place, so the input is copied before the clock starts, not while it runs.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import numpy as np
from railweave.experiments.allreduce.loop import Contender, Measurement, measure
from railweave.experiments.allreduce.problem import Array
from railweave.experiments.messages import emit, run_worker

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
        np.copyto(out, given)
        tensor(out)

    def reduce(_given: Array, out: Array) -> None:
        dist.all_reduce(tensor(out), op=ops[measurement.op])

    contender = Contender(dist.get_rank(), dist.get_world_size(), reduce, dist.barrier, prepare=prepare)
    measure(contender, measurement)
    emit("done", rank=int(os.environ["RANK"]), version=torch.__version__)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(run_worker(work))
