# SPDX-License-Identifier: Apache-2.0
"""The same training in one process, and how far the network's rounding may take a run away from it.

What can be proven is a bound per operation: how much one averaged gradient may differ from the exact average.
What that becomes after many steps of training is not proven but measured: the training is run again with
every element of every averaged gradient moved by its whole bound, in a random direction. `SAFETY` times
the greatest distance of these runs from the exact one is the bound that a run over the network is held to.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from railweave.experiments.bounds import average_error_bound
from railweave.experiments.training.model import Array, Digits, Training, TrainingOptions, load_digits

SAFETY = 4
MOVED_RUNS = 2


@dataclass(frozen=True)
class Reference:
    """What one process gets, and how far away a run over the network may end."""

    parameters: Array
    accuracy: float  # on held-out digits
    loss: float  # of the last step
    largest_operation_bound: float  # the greatest error that one averaged gradient element may have had
    moved: float  # the greatest distance of the moved runs' parameters
    bound: float  # SAFETY times that


class Stopped(Exception):
    """The training has been stopped before its end."""


def reference(options: TrainingOptions, ranks: int, lanes: int, stop: threading.Event) -> Reference:
    """Train in one process: exactly, and moved by the bound of `ranks` and packets of `lanes` integers.

    Raises Stopped soon after `stop` is set.
    """
    training, held_out = load_digits()
    runs = [None, *range(1, MOVED_RUNS + 1)]
    with threadpool_limits(1), ThreadPoolExecutor(2) as pool:  # one thread per product, as the workers do
        done = list(pool.map(lambda seed: _run(options, training, ranks, lanes, seed, stop), runs))
    (exact, loss, _), *moved = done
    distance = max(float(np.abs(run.model.parameters - exact.model.parameters).max()) for run, _, _ in moved)
    return Reference(
        parameters=exact.model.parameters,
        accuracy=exact.model.accuracy(held_out),
        loss=loss,
        largest_operation_bound=max(bound for _, _, bound in moved),
        moved=distance,
        bound=SAFETY * distance,
    )


def _run(
    options: TrainingOptions, digits: Digits, ranks: int, lanes: int, seed: int | None, stop: threading.Event
) -> tuple[Training, float, float]:
    """Train; return the training, its last loss, and the largest bound met (0 without `seed`)."""
    training = Training(options, digits)
    random = np.random.default_rng([options.seed, 2, seed]) if seed is not None else None
    gradient = np.zeros_like(training.model.parameters)
    loss = largest = 0.0
    for _ in range(options.steps):
        if stop.is_set():
            raise Stopped
        total = np.zeros(gradient.size, np.float64)
        magnitude = np.zeros_like(gradient)
        loss = 0.0
        for part in training.next_batch(ranks):
            loss += training.model.gradient(part, gradient) / ranks
            total += gradient
            if random is not None:
                np.maximum(magnitude, np.abs(gradient), out=magnitude)
        average = (total / ranks).astype(np.float32)
        if random is not None:
            bound = average_error_bound(magnitude, ranks, lanes)
            largest = max(largest, float(bound.max()))
            average += np.where(random.integers(0, 2, bound.size, np.uint8), bound, -bound)
        training.update(average)
    return training, loss, largest
