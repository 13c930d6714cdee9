# SPDX-License-Identifier: Apache-2.0
"""Inputs whose result is known, and the check of every element of a result against numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railweave.experiments.bounds import average_error_bound, sum_error_bound

DTYPES = ("float32", "int32")
OPS = ("sum", "max", "min", "avg")
BOTH = "all_gather+reduce_scatter"  # at once, as sharded training calls them
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", BOTH)
REDUCING = ("all_reduce", "reduce_scatter")
SHARDED = ("reduce_scatter", "all_gather", BOTH)
SCALES = 3  # runs in a row differ by factors 1, 2, 4
LANES = 256
ITEM = 4  # bytes of an element of either type

Array = NDArray[np.float32] | NDArray[np.int32]


@dataclass(frozen=True)
class Problem:
    """What one rank gives to every run of one size, and what it must get.

    Run i takes the base input times a power of two that changes from run to run, so that a result left over
    from the run before is wrong in every element. Such scaling is exact, so one sum serves all runs.
    """

    base: Array
    total: NDArray[np.float64]  # of the base inputs: their exact sum, greatest, least, or what is moved
    ranks_averaged: int  # what the sum is divided by; 1 unless the op is AVG
    bound: NDArray[np.float64]  # greatest difference allowed; 0 where the result is exact

    def inputs(self) -> list[Array]:
        """Return the inputs; run i takes number i mod SCALES."""
        return [self.base * self.base.dtype.type(1 << scale) for scale in range(SCALES)]

    def wrong(self, run: int, result: Array, error_bound: float = 0.0) -> int:
        """Return how many elements of a run's result are wrong; floats may be off by `error_bound` more."""
        scale = 1 << run % SCALES
        expected = self.total * scale / self.ranks_averaged
        if result.dtype == np.int32:
            expected = np.trunc(expected)  # integer averages are cut towards zero
        bound = self.bound * scale + (error_bound if result.dtype == np.float32 else 0.0)
        difference = np.abs(result.astype(np.float64) - expected)
        return int(np.count_nonzero(~(difference <= bound)))  # NaN is wrong


def shard_elements(collective: str, size: int, ranks: int) -> int:
    """Return what nccl-tests call the count of a tensor of `size` bytes: its elements, or those of one shard.

    A size that the ranks do not divide is rounded down, as theirs is.
    """
    return size // ITEM // ranks if collective in SHARDED else size // ITEM


def problem(
    count: int,
    dtype: str,
    op: str,
    rank: int,
    ranks: int,
    seed: int = 0,
    collective: str = "all_reduce",
    root: int = 0,
    lanes: int = LANES,
) -> Problem:
    """Return the problem of `count` elements as `rank` sees it; every rank knows all inputs.

    `count` is that of `shard_elements`; packets of an in-network rail have at most so many `lanes`.
    """
    given = count * ranks if collective == "reduce_scatter" else count
    inputs = np.stack([_base(given, dtype, [seed, count, other]) for other in range(ranks)])
    mine = inputs[rank]
    if collective not in REDUCING:
        moved = inputs[root] if collective == "broadcast" else inputs.reshape(-1)
        return Problem(mine, moved.astype(np.float64), 1, np.zeros(moved.size))
    if collective == "reduce_scatter":
        inputs = inputs[:, rank * count : (rank + 1) * count]
    bound = np.zeros(count)
    if op == "max":
        return Problem(mine, inputs.max(axis=0).astype(np.float64), 1, bound)
    if op == "min":
        return Problem(mine, inputs.min(axis=0).astype(np.float64), 1, bound)
    if dtype == "float32":
        error_bound = average_error_bound if op == "avg" else sum_error_bound
        bound = error_bound(np.abs(inputs).max(axis=0), ranks, lanes).astype(np.float64)
    return Problem(mine, inputs.sum(axis=0, dtype=np.float64), ranks if op == "avg" else 1, bound)


def _base(count: int, dtype: str, seed: list[int]) -> Array:
    random = np.random.default_rng(seed)
    if dtype == "int32":
        return random.integers(-(1 << 18), 1 << 18, count, np.int32)  # sums of 31 at the largest scale fit
    return random.standard_normal(count, np.float32)
