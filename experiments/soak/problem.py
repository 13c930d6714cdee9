# SPDX-License-Identifier: Apache-2.0
"""Calls drawn from a seed, with their correct results. All ranks draw the same calls without messages.

A tensor repeats a pattern: element i of rank r in call k is pattern[(i + shift(r, k)) mod PERIOD]. The result
has the same period. Its correct value is therefore computed for one period only, even for large tensors. The
numbers give the same result for every order of reduction, on every kind of rail.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PERIOD = 65_521  # a prime: tensors are cut at multiples of powers of two, which never match the period
LARGEST = 4 << 20  # elements
COLLECTIVES = ("all_reduce", "all_reduce", "all_reduce", "reduce_scatter", "all_gather", "broadcast")
REDUCING = ("all_reduce", "reduce_scatter")
OPS = ("sum", "prod", "max", "min", "avg")
ASYNC_SHARE = 0.5

# Sums of integers up to these values over 31 ranks are exact in the type and in fixed point. Integer types
# need no limit: they wrap to the same result in every order.
GREATEST = {"float16": 60, "bfloat16": 8, "float32": 1 << 18, "float64": 1 << 45}
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
DTYPES = (*GREATEST, "int8", "uint8", "int32", "int64")


@dataclass(frozen=True)
class Problem:
    """One call."""

    number: int
    collective: str
    count: int  # elements; of one shard for reduce_scatter and all_gather
    dtype: str
    op: str  # of all_reduce and reduce_scatter
    root: int  # of a broadcast
    async_op: bool
    in_place: bool


def draw(seed: int, number: int, ranks: int, largest: int = LARGEST) -> Problem:
    """Return call `number`. The logarithms of sizes are uniform: 1 to 2 is as likely as 1 to 2 million."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - to be repeated, not secret
    collective = rng.choice(COLLECTIVES)
    most = largest // ranks if collective in ("reduce_scatter", "all_gather") else largest
    return Problem(
        number=number,
        collective=collective,
        count=max(1, min(most, int(math.exp(rng.uniform(0, math.log(most + 1)))))),
        dtype=rng.choice(DTYPES),
        op=rng.choice(OPS) if collective in REDUCING else "sum",
        root=rng.randrange(ranks),
        async_op=rng.random() < ASYNC_SHARE,
        in_place=rng.random() < ASYNC_SHARE,
    )


def tensor(problem: Problem, ranks: int, rank: int) -> Array:
    """Return the input of a rank: all shards for a reduce_scatter, else `count` elements."""
    count = problem.count * (ranks if problem.collective == "reduce_scatter" else 1)
    return np.resize(_period(problem, rank), count)


def wrong(problem: Problem, ranks: int, rank: int, result: Array) -> int:
    """Return the number of wrong elements in a rank's result."""
    if problem.collective == "broadcast":
        return _different(result, _period(problem, problem.root))
    if problem.collective == "all_gather":
        shards = result.reshape(ranks, problem.count)
        return sum(_different(shard, _period(problem, peer)) for peer, shard in enumerate(shards))
    first = rank * problem.count if problem.collective == "reduce_scatter" else 0
    parts = [_period(problem, peer).astype(_exact_type(problem.dtype)) for peer in range(ranks)]
    exact = np.roll(_REDUCE[problem.op](np.stack(parts)), -first)
    if problem.op == "avg":
        return _wrong_averages(problem, ranks, exact, result)
    return _different(result, exact.astype(dtype_of(problem.dtype)))


def _wrong_averages(problem: Problem, ranks: int, total: Array, result: Array) -> int:
    """Return the number of wrong averages. Integers are cut towards zero. Floats may be rounded twice."""
    if problem.dtype not in EPSILON:
        total = total.astype(dtype_of(problem.dtype)).astype(np.int64)
        quotient = (total - np.fmod(total, ranks)) // ranks
        return _different(result, quotient.astype(dtype_of(problem.dtype)))
    quotient = total / ranks
    slack = 2 * EPSILON[problem.dtype] * np.abs(quotient)
    bounded = zip(_beside(result, quotient), _beside(result, slack), strict=True)
    return sum(
        int(np.count_nonzero(~(np.abs(found.astype(np.float64) - good) <= most)))
        for (found, good), (_, most) in bounded
    )


def _different(result: Array, period: Array) -> int:
    return sum(int(np.count_nonzero(found != good)) for found, good in _beside(result, period))


def _beside(result: Array, period: Array) -> list[tuple[Array, Array]]:
    """Return the result's whole periods and the rest, each with the values to compare with."""
    whole = result.size // PERIOD * PERIOD
    rest = result[whole:]
    return [(result[:whole].reshape(-1, PERIOD), period), (rest, period[: rest.size])]


def _period(problem: Problem, rank: int) -> Array:
    """Return one period of a rank's input."""
    return np.roll(pattern(problem.dtype, problem.op), -shift(problem, rank))


def shift(problem: Problem, rank: int) -> int:
    """Return the place in the pattern where a rank's tensor begins.

    It differs between ranks and between neighbouring calls.
    """
    return (7919 * problem.number + 104_729 * rank) % PERIOD


@cache
def pattern(dtype: str, op: str) -> Array:
    """Return PERIOD numbers of type `dtype` that `op` reduces exactly, in any order."""
    draws = np.random.default_rng(PERIOD)
    if dtype not in GREATEST:
        limits = np.iinfo(dtype)
        return draws.integers(limits.min, limits.max, PERIOD, dtype, endpoint=True)
    if op == "prod":
        return draws.choice([-1.0, 1.0, 2.0], PERIOD, p=[0.3, 0.5, 0.2]).astype(dtype_of(dtype))
    greatest = GREATEST[dtype]
    return draws.integers(-greatest, greatest, PERIOD, endpoint=True).astype(dtype_of(dtype))


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the numpy type; for bfloat16, the type of ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def _exact_type(dtype: str) -> type[np.float64] | type[np.int64]:
    return np.float64 if dtype in EPSILON else np.int64


_REDUCE: dict[str, Callable[[Array], Array]] = {
    "sum": lambda parts: np.add.reduce(parts, axis=0),
    "prod": lambda parts: np.multiply.reduce(parts, axis=0),
    "max": lambda parts: np.maximum.reduce(parts, axis=0),
    "min": lambda parts: np.minimum.reduce(parts, axis=0),
    "avg": lambda parts: np.add.reduce(parts, axis=0),
}
