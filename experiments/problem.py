# SPDX-License-Identifier: Apache-2.0
"""Inputs with known results, and the check of every element of a result."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
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

# Integers up to these values, divided by FRACTION. Their sums are exact in the type, in the fixed point of
# ina rails, and in ATP's, whose unit is a millionth: of float32 over 1,023 ranks, of the others over 31.
# Other integer types need no limit: they wrap to the same result in every order. So does int32, but an ina
# rail sends a chunk that could wrap as two. Sums that are timed do not wrap: of up to 1,023 ranks.
GREATEST = {"float16": 60, "bfloat16": 8, "float32": 1 << 10, "float64": 1 << 45, "int32": 1 << 18}
FRACTION = {"float32": 64}
GREATEST_FLOAT32 = GREATEST["float32"] / FRACTION["float32"] * 2 ** (SCALES - 1)  # in any call
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
ITEM = 4  # bytes of an element of the types in DTYPES

Array = NDArray[Any]


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
        if self.averaged == 1 and not error_bound:
            return np.asarray(part == exact)
        if part.dtype.name not in EPSILON:  # averages of integers are cut towards zero
            total = exact.astype(np.int64)
            quotient = (total - np.fmod(total, self.averaged)) // self.averaged
            return np.asarray(part == quotient.astype(part.dtype))
        mean = exact.astype(np.float64) / self.averaged
        bound = error_bound + 2 * EPSILON[part.dtype.name] * np.abs(mean)  # it may be rounded twice
        return np.asarray(np.abs(part - mean) <= bound)  # false for NaN


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
    wraps: bool = False,
    density: float = 1.0,
) -> Problem:
    """Return the problem of `count` elements for `rank`. Every rank can compute all inputs.

    `count` is the value of `shard_elements`. With `wraps`, sums of int32 wrap. `density` is
    the share of each rank's blocks of LANES that are not zero.
    """
    given = count * ranks if collective == "reduce_scatter" else count
    base = partial(_base, given, dtype, op, wraps, density)
    inputs = (base([seed, count, other]) for other in range(ranks))
    mine = base([seed, count, rank])
    if collective == "broadcast":
        return Problem(mine, base([seed, count, root]))
    if collective == "all_gather":
        return Problem(mine, np.concatenate(list(inputs)))
    own = slice(rank * count, (rank + 1) * count) if collective == "reduce_scatter" else slice(None)
    combine = {"max": np.maximum, "min": np.minimum, "prod": np.multiply}.get(op, np.add)
    total = next(inputs)[own].copy()
    for each in inputs:
        combine(total, each[own], out=total)
    return Problem(mine, total, ranks if op == "avg" else 1)


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the numpy type; for bfloat16, the type of ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def _base(count: int, dtype: str, op: str, wraps: bool, density: float, seed: list[int]) -> Array:
    """Return numbers that `op` reduces exactly, in any order. Scales may multiply them, but not for prod."""
    random = np.random.default_rng(seed)
    numbers = _dense(random, count, dtype, op, wraps)
    if density < 1:
        zero = random.random(-(-count // LANES)) >= density
        numbers[zero.repeat(LANES)[:count]] = 0
    return numbers


def _dense(random: np.random.Generator, count: int, dtype: str, op: str, wraps: bool) -> Array:
    kind = dtype_of(dtype)
    if dtype not in GREATEST or (wraps and kind.kind == "i"):
        room = SCALES - 1 if op in ("max", "min") else 0  # bits; values that wrap would change their order
        limits = np.iinfo(kind)
        return random.integers(limits.min >> room, limits.max >> room, count, kind, endpoint=True)
    if op == "prod":
        return random.choice(np.array([-1.0, 1.0, 2.0]), count, p=[0.3, 0.5, 0.2]).astype(kind)
    greatest = GREATEST[dtype]
    integers = random.integers(-greatest, greatest, count, endpoint=True)
    return (integers / FRACTION[dtype]).astype(kind) if dtype in FRACTION else integers.astype(kind)
