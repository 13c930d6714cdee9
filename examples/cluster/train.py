# SPDX-License-Identifier: Apache-2.0
"""Train a multilayer perceptron on handwritten digits, one rank per process, without PyTorch.

Run one of:

RANK=0 WORLD_SIZE=2 RAILWEAVE_CLUSTER=/etc/railweave/cluster.yaml python train.py
srun --ntasks-per-node 1 python train.py
mpirun -H node0,node1 -x RAILWEAVE_CLUSTER python train.py
torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint node0 train.py
"""

from __future__ import annotations

import sys
import zlib

import numpy as np

import railweave
from railweave.experiments.training.model import Training, TrainingOptions, load_digits

STEPS = 100


def main() -> None:
    """Train, and print the bytes that each rail carried."""
    digits, held_out = load_digits()
    training = Training(TrainingOptions(STEPS), digits)
    gradient = np.zeros_like(training.model.parameters)
    with railweave.init() as comm:
        for step in range(STEPS):
            loss = training.model.gradient(training.next_batch(comm.world_size)[comm.rank], gradient)
            comm.all_reduce(gradient, op="avg", out=gradient)
            training.update(gradient)
            if step % 10 == 0:
                print(f"rank {comm.rank}, step {step}: loss {loss:.4f}")
        rails = ", ".join(f"{rail.name} {rail.payload_bytes / 1e6:.1f} MB" for rail in comm.stats().rails)
    accuracy, digest = training.model.accuracy(held_out), zlib.crc32(training.model.parameters)
    print(f"rank {comm.rank}: accuracy {accuracy:.3f}, parameters {digest:08x}, over {rails}")


if __name__ == "__main__":
    sys.exit(main())
