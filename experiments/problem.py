# SPDX-License-Identifier: Apache-2.0
"""Inputs with known results, and the check of every element of a result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DTYPES = ("float32", "int32")
OPS = ("sum", "max", "min", "avg")
BOTH = "all_gather+reduce_scatter"  # at once, as sharded training calls them
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", BOTH)
REDUCING = ("all_reduce", "reduce_scatter")
SHARDED = ("reduce_scatter", "all_gather", BOTH)
SCALES = 3  # factors 1, 2, 4: consecutive calls that are compared have different inputs
LANES = 256
BLOCK = 1 << 16  # elements that are compared at once, so that they stay in the cache

# Floats are multiples of 1/64. Sums over 1,023 ranks are exact in float32, in the fixed point
# of ina rails, and in ATP's, whose unit is a millionth.
INTEGERS, FLOATS, FRACTION = 1 << 18, 1 << 10, 64
QUOTIENT_ERROR = 2.0**-22  # relative, of an average of floats: it may be rounded twice
ITEM = 4  # bytes of an element of either type

Array = NDArray[np.float32] | NDArray[np.int32]


@dataclass(frozen=True)
class Problem:
    """The input of one rank for all calls of one size, and its correct result.

    Call i multiplies the input by a power of two that differs from that of call i - 1. Thus the result of an
    earlier call is wrong in every element that is not 0. The multiplication is exact.
    """

    base: Array  # the input of call 0
    result: Array  # the result of call 0; for an average, the sum before the division
    averaged: int = 1  # the number of ranks, if the operation is avg

    def fill(self, call: int, given: Array) -> None:
        """Write the input of a call."""
        np.multiply(self.base, self.base.dtype.type(_scale(call)), out=given)

    def wrong(self, call: int, result: Array, error_bound: float = 0.0) -> int:
        """Return the number of wrong elements in a call's result. Floats may differ by `error_bound`."""
        wrong = 0
        for first in range(0, result.size, BLOCK):
            part, good = (array[first : first + BLOCK] for array in (result, self.result))
            right = self._right(part, good * good.dtype.type(_scale(call)), error_bound)
            wrong += right.size - int(np.count_nonzero(right))
        return wrong

    def _right(self, part: Array, exact: Array, error_bound: float) -> NDArray[np.bool_]:
        if part.dtype == np.int32:  # averages are cut towards zero
            return np.equal(part, exact if self.averaged == 1 else np.trunc(exact / self.averaged))
        if self.averaged == 1 and not error_bound:
            return np.equal(part, exact)
        quotient = exact / np.float32(self.averaged)
        bound = error_bound + QUOTIENT_ERROR * np.abs(quotient)
        return np.less_equal(np.abs(part - quotient), bound)  # false for NaN


def _scale(call: int) -> int:
    return 1 << call % SCALES


def shard_elements(collective: str, size: int, ranks: int) -> int:
    """Return the count of a tensor of `size` bytes as nccl-tests define it.

    The count is the number of elements of the tensor, or of one shard. It is rounded down, as in nccl-tests.
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
) -> Problem:
    """Return the problem of `count` elements for `rank`. Every rank can compute all inputs.

    `count` is the value of `shard_elements`.
    """
    given = count * ranks if collective == "reduce_scatter" else count
    inputs = (_base(given, dtype, [seed, count, other]) for other in range(ranks))
    mine = _base(given, dtype, [seed, count, rank])
    if collective == "broadcast":
        return Problem(mine, _base(given, dtype, [seed, count, root]))
    if collective == "all_gather":
        return Problem(mine, np.concatenate(list(inputs)))
    own = slice(rank * count, (rank + 1) * count) if collective == "reduce_scatter" else slice(None)
    combine = {"max": np.maximum, "min": np.minimum}.get(op, np.add)
    total = next(inputs)[own].copy()
    for each in inputs:
        combine(total, each[own], out=total)
    return Problem(mine, total, ranks if op == "avg" else 1)


def _base(count: int, dtype: str, seed: list[int]) -> Array:
    random = np.random.default_rng(seed)
    if dtype == "int32":
        return random.integers(-INTEGERS, INTEGERS, count, np.int32)
    return random.integers(-FLOATS, FLOATS, count, np.int32).astype(np.float32) / np.float32(FRACTION)
