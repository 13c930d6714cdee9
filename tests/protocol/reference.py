# SPDX-License-Identifier: Apache-2.0
"""The expected results of collectives, bit for bit: numpy reduces in the same order as the algorithms."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from protocol.calls import Array, kind_of

from railweave._native.collectives import DType, ReduceOp
from railweave.hosts.arrays import NAMES

DTYPES = {dtype: kind_of(name) for dtype, name in NAMES.items()}
SPECIAL_FLOATS = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-42, 6e-8, 65504.0, 3.2e38]


def random_array(rng: np.random.Generator, dtype: DType, count: int, special: bool) -> Array:
    kind = DTYPES[dtype]
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return rng.integers(limits.min, limits.max, count, dtype=kind, endpoint=True)
    with np.errstate(over="ignore"):
        values: Array = rng.normal(size=count).astype(kind)
        where = rng.random(count) < 0.3 * special
        values[where] = rng.choice(np.array(SPECIAL_FLOATS), where.sum()).astype(kind)
    return values


def exactly(array: Array) -> Array:
    """Convert to float64, which holds all types except int64 exactly. Return int64 unchanged."""
    return array if array.dtype == np.int64 else array.astype(np.float64)


def numpys(op: ReduceOp, low: Array, high: Array) -> Array:
    """Reduce two operands with numpy, in their type. An average is reduced as a sum."""
    functions = {ReduceOp.MAX: np.maximum, ReduceOp.MIN: np.minimum, ReduceOp.PROD: np.multiply}
    result: Array = functions.get(op, np.add)(low, high)
    return result


def finished(op: ReduceOp, total: Array, ranks: int) -> Array:
    if op != ReduceOp.AVG:
        return total
    if total.dtype.kind in "iu":
        return (np.sign(total) * (np.abs(total.astype(object)) // ranks)).astype(total.dtype)
    return (total / total.dtype.type(ranks)).astype(total.dtype)


def in_order(op: ReduceOp, parts: Sequence[Array]) -> Array:
    return functools.reduce(functools.partial(numpys, op), parts)


def by_ring(op: ReduceOp, inputs: Sequence[Array]) -> Array:
    """Reduce along a ring: block b begins at rank b and is rounded at each rank."""
    ranks, count = len(inputs), inputs[0].size
    blocks = []
    for block in range(ranks):
        part = slice(count * block // ranks, count * (block + 1) // ranks)
        blocks.append(in_order(op, [inputs[(block + hop) % ranks][part] for hop in range(ranks)]))
    return finished(op, np.concatenate(blocks), ranks)


def by_doubling(op: ReduceOp, inputs: Sequence[Array]) -> Array:
    """Reduce by recursive doubling. If n is no power of two, first fold the extra ranks into others."""
    core = 1 << len(inputs).bit_length() - 1
    extra = len(inputs) - core
    folded = [numpys(op, inputs[2 * i], inputs[2 * i + 1]) for i in range(extra)] + [*inputs[2 * extra :]]
    while len(folded) > 1:
        folded = [numpys(op, *pair) for pair in zip(folded[::2], folded[1::2], strict=True)]
    return finished(op, folded[0], len(inputs))


def scattered_by_ring(op: ReduceOp, shards: Sequence[Sequence[Array]]) -> list[Array]:
    """Reduce and scatter `shards[rank][shard]` along a ring. Shard s begins after rank s and ends there."""
    ranks = len(shards)
    return [
        finished(
            op, in_order(op, [shards[(shard + hop) % ranks][shard] for hop in range(1, ranks + 1)]), ranks
        )
        for shard in range(ranks)
    ]


def scattered_by_bruck(op: ReduceOp, shards: Sequence[Sequence[Array]]) -> list[Array]:
    """Reduce and scatter by Bruck's algorithm: in each step, ranks exchange partial sums over a distance.

    The distances are powers of two, from the greatest below n down to 1.
    """
    ranks = len(shards)
    sums = [[shards[rank][(rank + place) % ranks] for place in range(ranks)] for rank in range(ranks)]
    distance = 1 << (ranks - 1).bit_length() - 1
    while distance > 0:
        handed = min(distance, ranks - distance)
        given = [own[distance : distance + handed] for own in sums]
        for rank in range(ranks):
            theirs = given[(rank - distance) % ranks]
            sums[rank][:handed] = [numpys(op, *pair) for pair in zip(theirs, sums[rank], strict=False)]
        distance //= 2
    return [finished(op, own[0], ranks) for own in sums]


def by_bruck(op: ReduceOp, inputs: Sequence[Array]) -> Array:
    """Reduce and scatter n parts by Bruck's algorithm, then gather. The last parts may be short or empty."""
    ranks, count = len(inputs), inputs[0].size
    length = -(-count // ranks)
    cut = [[given[length * part :][:length] for part in range(ranks)] for given in inputs]
    return np.concatenate(scattered_by_bruck(op, cut))
