# SPDX-License-Identifier: Apache-2.0
"""Bounds on the error of a float32 reduction over a network. They hold for every kind of rail."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

HALF_ULP = np.float32(2.0**-24)  # of a float32 in [1, 2)


def sum_error_bound(magnitude: Array, ranks: int, lanes: int) -> Array:
    """Return the bound on |result - exact| of a SUM over `ranks`, for each element.

    `magnitude` is the greatest absolute value of each element on any rank.

    On the ina rail the error is at most n/2 · 2^(e + ⌈log2 n⌉ - 30). The exponent of the largest value in the
    element's packet of `lanes` is e. The first element of a packet depends on the split between rails. The
    bound therefore takes the largest value within a packet's length on either side.

    On the other rails float32 is added n - 1 times. Each addition rounds to half an ulp of at most n times
    the magnitude. Both results are rounded to float32 once more.
    """
    headroom = math.ceil(math.log2(ranks)) if ranks > 1 else 0
    exponent = np.frexp(_largest_near(magnitude, lanes))[1] - 1
    fixed_point = np.ldexp(np.float32(ranks / 2), exponent + headroom - 30)
    rounding = HALF_ULP * np.float32(ranks) * magnitude
    return np.asarray(np.maximum(fixed_point, (ranks - 1) * rounding) + rounding, np.float32)


def average_error_bound(magnitude: Array, ranks: int, lanes: int) -> Array:
    """Return the bound for AVG: the bound for SUM divided by `ranks`, plus one more rounding."""
    return np.asarray(sum_error_bound(magnitude, ranks, lanes) / ranks + HALF_ULP * magnitude, np.float32)


def _largest_near(magnitude: Array, reach: int) -> Array:
    """Return, for each element, the largest element at a distance of at most `reach`, or a little more."""
    blocks = -(-magnitude.size // reach)
    padded = np.zeros(blocks * reach, np.float32)
    padded[: magnitude.size] = magnitude
    largest = padded.reshape(blocks, reach).max(axis=1)
    around = largest.copy()
    np.maximum(around[1:], largest[:-1], out=around[1:])
    np.maximum(around[:-1], largest[1:], out=around[:-1])
    return np.asarray(np.repeat(around, reach)[: magnitude.size], np.float32)
