# SPDX-License-Identifier: Apache-2.0
"""One rank of the training, in a host of the lab: `python -m railweave.experiments.training.worker`.

Uses railweave as any program would: `railweave.init()` from the environment, and `all_reduce`. Reports to
the lab, one JSON object per line on stdout; times are CLOCK_MONOTONIC, which all hosts share.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path

import numpy as np

import railweave
from railweave.experiments.messages import emit, run_worker, slices
from railweave.experiments.training.model import Training, TrainingOptions, load_digits


def train(options: TrainingOptions, out: Path) -> None:
    """Train this rank's part of every batch, and report."""
    digits, held_out = load_digits()
    training = Training(options, digits)
    gradient = np.zeros_like(training.model.parameters)
    with railweave.init() as comm:
        comm.barrier()  # all ranks start the first step together
        emit("start", rank=comm.rank, time=time.monotonic(), slices=slices(comm))
        for step in range(options.steps):
            began = time.monotonic()
            loss = training.model.gradient(training.next_batch(comm.world_size)[comm.rank], gradient)
            computed = time.monotonic()
            comm.all_reduce(gradient, op="avg", out=gradient)
            reduced = time.monotonic()
            training.update(gradient)
            emit(
                "step",
                rank=comm.rank,
                step=step,
                loss=loss,
                began=began,
                computed=computed,
                reduced=reduced,
                slices=slices(comm),
            )
        parameters = training.model.parameters
        if comm.rank == 0:
            np.save(out / "parameters.npy", parameters)
        comm.barrier()
        emit(
            "done",
            rank=comm.rank,
            slices=slices(comm),
            accuracy=training.model.accuracy(held_out),
            digest=hashlib.sha256(parameters.tobytes()).hexdigest(),
        )


def main() -> int:
    """Read the options that the lab gives, and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    return run_worker(lambda: train(TrainingOptions(steps=given.steps, seed=given.seed), given.out))


if __name__ == "__main__":
    sys.exit(main())
