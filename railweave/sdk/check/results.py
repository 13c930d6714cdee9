# SPDX-License-Identifier: Apache-2.0
"""Inputs of calls, and the comparison of results with the right ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railweave.sdk.library import Algorithm
from railweave.sdk.machines import Array

FLOAT_RANGE = 4.0
DENSITIES = (1.0, 1.0, 0.5, 0.1, 0.01)  # shares of blocks that are not zero
EPSILON, TINY = 2.0**-23, 2.0**-126  # of float32


class WrongResult(AssertionError):
    """A result differs from the right one by more than the bound."""


def inputs(
    generator: np.random.Generator, ranks: int, count: int, dtype: str, density: float = 1.0, block: int = 1
) -> list[Array]:
    """Return a vector for each rank: any int32, or float32 between -FLOAT_RANGE and FLOAT_RANGE.

    Half of the vectors are small numbers, of another magnitude for each rank. Each rank has zeros in all but
    a share of its blocks, which is `density`.
    """
    bits = generator.integers(0, 31, (ranks, 1)) * generator.integers(0, 2, (ranks, 1))
    if dtype == "int32":
        numbers = (generator.integers(-(2**31), 2**31, (ranks, count)) >> bits).astype(np.int32)
    else:
        uniform = generator.uniform(-FLOAT_RANGE, FLOAT_RANGE, (ranks, count))
        numbers = (uniform / 2.0**bits).astype(np.float32)
    if density < 1:
        zero = generator.random((ranks, -(-count // block))) >= density
        numbers[zero.repeat(block, axis=1)[:, :count]] = 0
    return list(numbers)


def compare(algorithm: Algorithm, given: Sequence[Array], op: str, result: Array, about: str) -> float:
    """Return the greatest error of a result as a share of the bound; 0 for integers, which must be equal.

    Raises WrongResult, with `about` in its text, if an element is wrong.
    """
    right = algorithm.endpoint.expected(given, op)
    if result.shape != right.shape or result.dtype != right.dtype:
        found, wanted = (f"{one.dtype} of shape {one.shape}" for one in (result, right))
        raise WrongResult(f"{about}: {found} in place of {wanted}")
    if right.dtype.kind == "f":
        bound = algorithm.error_bound(given) + EPSILON * np.abs(right) + TINY
        share = np.abs(np.subtract(result, right, dtype=np.float64)) / bound
    else:
        share = np.where(result == right, 0.0, np.inf)
    worst = int(np.argmax(share)) if share.size else 0
    if share.size and not share[worst] <= 1:
        raise WrongResult(f"{about}: element {worst} is {result[worst]}, right is {right[worst]}")
    return float(share[worst]) if share.size else 0.0
