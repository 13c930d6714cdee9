# SPDX-License-Identifier: Apache-2.0
"""The same training in one process, and a bound on the effect of rounding in the network.

A proven bound exists for one operation: the difference between an averaged gradient and the exact average.
For many steps of training, the effect is measured. Further runs of the training move every element of every
averaged gradient by its whole bound, in a random direction. The bound for a run over the network is `SAFETY`
times the greatest distance of these runs from the exact run.
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
    """The result of one process, and the allowed distance of a run over the network."""

    parameters: Array
    accuracy: float  # on held-out digits
    loss: float  # of the last step
    largest_operation_bound: float  # greatest bound on the error of one averaged gradient element
    moved: float  # greatest distance of a parameter of the moved runs from the exact run
    bound: float  # SAFETY times `moved`


class Stopped(Exception):
    """The training has been stopped before its end."""


def reference(options: TrainingOptions, ranks: int, lanes: int, stop: threading.Event) -> Reference:
    """Train in one process, exactly and moved by the bound.

    The bound is for `ranks` ranks and packets of `lanes` integers. Raises Stopped soon after `stop` is set.
    """
    training, held_out = load_digits()
    runs = [None, *range(1, MOVED_RUNS + 1)]
    with threadpool_limits(1), ThreadPoolExecutor(2) as pool:  # one thread per product, as in the workers
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
    """Train. Return the training, its last loss, and the largest bound (0 without `seed`)."""
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
