# SPDX-License-Identifier: Apache-2.0
"""One rank of the training, in a host of the lab: it uses railweave as any program would.

The rank reports to the lab with one JSON object per line on stdout. Times are of CLOCK_MONOTONIC, which all
hosts share.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from railweave.experiments.messages import emit
from railweave.experiments.training.model import Training, TrainingOptions, load_digits
from railweave.hosts.communicator import Communicator


def train(comm: Communicator, steps: int, seed: int, out: str) -> None:
    """Train this rank's part of every batch, and report."""
    digits, held_out = load_digits()
    training = Training(TrainingOptions(steps=steps, seed=seed), digits)
    gradient = np.zeros_like(training.model.parameters)
    comm.barrier()  # all ranks start the first step together
    emit("start", rank=comm.rank, time=time.monotonic(), slices=_slices(comm))
    for step in range(steps):
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
            slices=_slices(comm),
        )
    parameters = training.model.parameters
    if comm.rank == 0:
        np.save(Path(out) / "parameters.npy", parameters)
    comm.barrier()
    emit(
        "done",
        rank=comm.rank,
        slices=_slices(comm),
        accuracy=training.model.accuracy(held_out),
        digest=hashlib.sha256(parameters.tobytes()).hexdigest(),
    )


def _slices(comm: Communicator) -> list[dict[str, Any]]:
    """Return the slices since the last call, as in a rank's report."""
    return [asdict(record) for record in comm.drain_records()]
