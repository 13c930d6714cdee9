# SPDX-License-Identifier: Apache-2.0
"""How far a reduction of float32 over a network may be from the exact one, whichever rail carries it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

HALF_ULP = np.float32(2.0**-24)  # of a float32 in [1, 2)


def sum_error_bound(magnitude: Array, ranks: int, lanes: int) -> Array:
    """Return the bound on |result - exact| of a SUM over `ranks`, for each element.

    `magnitude` is the greatest absolute value of each element on any rank. On the ina rail the error is at
    most n/2 · 2^(e + ⌈log2 n⌉ - 30), e being the exponent of the largest value in the element's packet of
    `lanes`. Where packets begin depends on the split between rails, so the largest value within a packet's
    length on either side is taken. On the other rails float32 is added n - 1 times, each time rounded to half
    an ulp of at most n times the magnitude. Either result is rounded to float32 once more.
    """
    headroom = math.ceil(math.log2(ranks)) if ranks > 1 else 0
    exponent = np.frexp(_largest_near(magnitude, lanes))[1] - 1
    fixed_point = np.ldexp(np.float32(ranks / 2), exponent + headroom - 30)
    rounding = HALF_ULP * np.float32(ranks) * magnitude
    return np.asarray(np.maximum(fixed_point, (ranks - 1) * rounding) + rounding, np.float32)


def average_error_bound(magnitude: Array, ranks: int, lanes: int) -> Array:
    """Return the bound for AVG: that of SUM divided by `ranks`, and one more rounding."""
    return np.asarray(sum_error_bound(magnitude, ranks, lanes) / ranks + HALF_ULP * magnitude, np.float32)


def _largest_near(magnitude: Array, reach: int) -> Array:
    """Return for each element the largest among those at most `reach` away, or a little further."""
    blocks = -(-magnitude.size // reach)
    padded = np.zeros(blocks * reach, np.float32)
    padded[: magnitude.size] = magnitude
    largest = padded.reshape(blocks, reach).max(axis=1)
    around = largest.copy()
    np.maximum(around[1:], largest[:-1], out=around[1:])
    np.maximum(around[:-1], largest[1:], out=around[:-1])
    return np.asarray(np.repeat(around, reach)[: magnitude.size], np.float32)
