# SPDX-License-Identifier: Apache-2.0
"""The bits that an in-network all_reduce must return: hosts and switch in a few lines of numpy in float64.

The code follows the definition of the number format, chunk by chunk. It shares nothing with the native code.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype(np.float16), BFLOAT16)
SEAL_LANES = 4  # of a sealed packet

FloatArray = NDArray[Any]  # float32, float16 or bfloat16
Array = NDArray[Any]  # these, or int32


def headroom_bits(world_size: int) -> int:
    """Return the bits that lanes leave free for the sum: ceil(log2 n).

    If n is a power of two from 256 on, one more bit is free. Lanes then have fewer than 24 bits, so that a
    float32 may be rounded up.
    """
    bits = (world_size - 1).bit_length()
    return bits if bits < 8 or world_size < 2**bits else bits + 1


def chunk_exponent(chunks: Sequence[FloatArray]) -> int:
    """Return the largest exponent of a finite value on any rank, at least the smallest normal exponent."""
    values = np.concatenate(chunks).astype(np.float64)
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    return max(int(np.frexp(largest)[1]) - 1, -126) if largest > 0 else -126


def lanes_of(values: FloatArray, exponent: int, world_size: int) -> NDArray[np.int64]:
    """Round x * 2^(30 - h - e) half to even; float64 holds both exactly. NaN and Inf count as 0."""
    wide = values.astype(np.float64)
    finite = np.where(np.isfinite(wide), wide, 0.0)
    scaled = np.ldexp(finite, 30 - headroom_bits(world_size) - exponent)
    return np.rint(scaled).astype(np.int64)


def rounded(values: NDArray[np.float64], dtype: np.dtype[Any]) -> FloatArray:
    """Round once, half to even. Values above the type's largest become Inf.

    The code follows the definition of the type, because numpy lacks bfloat16.
    """
    mantissa, least = (10, -14) if dtype == np.float16 else (7, -126)
    exponent = np.maximum(np.frexp(values)[1] - 1, least)
    steps = np.rint(np.ldexp(values, mantissa - exponent))
    nearest = np.ldexp(steps, exponent - mantissa)
    with np.errstate(over="ignore"):
        return nearest.astype(np.float32).astype(dtype)  # exact, or too large for both


def floats_of(
    sums: NDArray[np.int64], exponent: int, world_size: int, mean: bool, dtype: np.dtype[Any]
) -> FloatArray:
    """Return the sum, rounded to the type once. The mean of 16-bit floats is rounded once, too.

    A float32 mean is the rounded sum divided by n, except where the sum may not be a normal float.
    """
    headroom = headroom_bits(world_size)
    unit = exponent + headroom - 30
    exact = np.ldexp(sums.astype(np.float64), unit)
    if dtype in HALVES:
        return rounded(exact / world_size if mean else exact, dtype)
    with np.errstate(over="ignore"):
        if mean and (unit < -126 or exponent + headroom >= 127):
            return (exact / world_size).astype(np.float32)
        total = exact.astype(np.float32)
        return total / np.float32(world_size) if mean else total


def with_nonfinite(result: FloatArray, chunks: Sequence[FloatArray]) -> FloatArray:
    """Replace elements for which some rank has NaN or Inf by the result of IEEE addition."""
    stacked = np.stack(chunks).astype(np.float32)
    with np.errstate(invalid="ignore"):
        ieee = np.where(np.isfinite(stacked), np.float32(0), stacked).sum(axis=0, dtype=np.float32)
    touched = ~np.isfinite(stacked).all(axis=0)
    fixed = np.where(np.isnan(ieee), np.float32(np.nan), ieee)
    return np.where(touched, fixed.astype(result.dtype), result)


def fixed_point_sum(inputs: Sequence[FloatArray], lanes: int, mean: bool = False) -> FloatArray:
    """Return the float SUM or AVG of the ranks' arrays, in chunks of `lanes` elements."""
    world_size = len(inputs)
    parts = []
    for start in range(0, len(inputs[0]), lanes):
        chunks = [values[start : start + lanes] for values in inputs]
        exponent = chunk_exponent(chunks)
        sums = np.sum([lanes_of(chunk, exponent, world_size) for chunk in chunks], axis=0)
        assert np.abs(sums).max() < 2**31, "the switch's int32 must hold every sum"
        result = floats_of(sums, exponent, world_size, mean, inputs[0].dtype)
        parts.append(with_nonfinite(result, chunks))
    return np.concatenate(parts)


def ordered_extreme(inputs: Sequence[FloatArray], minimum: bool) -> FloatArray:
    """Return the float MAX or MIN. NaN wins, and -0 < +0."""
    stacked = np.stack(inputs).astype(np.float32)
    bits = stacked.view(np.int32).astype(np.int64)
    keys = np.where(bits < 0, -(bits & 0x7FFFFFFF) - 1, bits)
    index = keys.argmin(axis=0) if minimum else keys.argmax(axis=0)
    chosen = np.take_along_axis(stacked, index[None], axis=0)[0]
    extreme = np.where(np.isnan(stacked).any(axis=0), np.float32(np.nan), chosen)
    return extreme.astype(inputs[0].dtype)


def integer_reduce(inputs: Sequence[NDArray[np.int32]], op: str) -> NDArray[np.int32]:
    """Reduce int32: SUM wraps, AVG truncates the wrapped sum towards zero, MAX and MIN are exact."""
    stacked = np.stack(inputs)
    if op == "max":
        return stacked.max(axis=0)
    if op == "min":
        return stacked.min(axis=0)
    wrapped = stacked.sum(axis=0, dtype=np.int32)
    if op == "sum":
        return wrapped
    wide = wrapped.astype(np.int64)
    return (np.sign(wide) * (np.abs(wide) // len(inputs))).astype(np.int32)


def exact_lanes(world_size: int) -> int:
    """Return the lanes of one float in an exact sum.

    277 bits are split into limbs of 31 - h bits. One more lane counts NaN and Inf.
    """
    return -(-277 // (31 - headroom_bits(world_size))) + 1


def is_exact(inputs: Sequence[FloatArray], lanes: int) -> bool:
    """Return whether one packet holds the exact sums."""
    return len(inputs[0]) * exact_lanes(len(inputs)) <= lanes


def nearest(value: Fraction, dtype: np.dtype[Any]) -> Any:
    """Round once, half to even. Values above the type's largest become Inf."""
    types = {"float32": (23, -126, 127), "float16": (10, -14, 15), "bfloat16": (7, -126, 127)}
    mantissa, least, top = types[dtype.name]
    magnitude = abs(value)
    exponent = least
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = round(magnitude / Fraction(2) ** (exponent - mantissa))  # half to even
    size = np.ldexp(np.float64(steps), exponent - mantissa) if exponent <= top else np.inf
    with np.errstate(over="ignore"):
        return np.float64(-size if value < 0 else size).astype(np.float32).astype(dtype)


def exact_sum(inputs: Sequence[FloatArray], mean: bool) -> FloatArray:
    """Return the exact sum or mean of a few floats, rounded to their type."""
    dtype = inputs[0].dtype
    wide = np.stack([values.astype(np.float64) for values in inputs])
    finite = np.where(np.isfinite(wide), wide, 0.0)
    totals = [sum(map(Fraction, column), Fraction(0)) for column in finite.T]
    result = np.array([nearest(total / len(inputs) if mean else total, dtype) for total in totals], dtype)
    return with_nonfinite(result, inputs)


def wide_unit(world_size: int) -> Fraction:
    """Return the unit of wide lanes. They hold values below 256 in two limbs of 31 - h bits each."""
    return 256 / Fraction(2) ** (2 * (31 - headroom_bits(world_size)))


def in_units(values: FloatArray, world_size: int) -> list[int] | None:
    """Return a rank's values in units of wide lanes, truncated towards zero.

    Return None if a value is too large. Also return None if the truncation may err more than fixed point
    with the exponent of these values.
    """
    if not np.isfinite(values).all() or np.abs(values.astype(np.float64)).max(initial=0) >= 256:
        return None
    unit = wide_unit(world_size)
    units = [Fraction(float(value)) / unit for value in values]
    most = Fraction(2) ** (chunk_exponent([values]) + headroom_bits(world_size) - 30) / 2
    if unit > most and any(each.denominator != 1 for each in units):
        return None
    return [int(each) for each in units]


def is_wide(inputs: Sequence[FloatArray], lanes: int) -> bool:
    """Return whether wide lanes hold the sums of one chunk."""
    if len(inputs[0]) > lanes:
        return False
    return all(in_units(values, len(inputs)) is not None for values in inputs)


def wide_sum(inputs: Sequence[FloatArray], mean: bool) -> FloatArray:
    """Return the sum or mean of the values in wide lanes, rounded to the type once."""
    dtype, unit = inputs[0].dtype, wide_unit(len(inputs))
    held = [in_units(values, len(inputs)) or [] for values in inputs]
    totals = [sum(column) * unit for column in zip(*held, strict=True)]
    return np.array([nearest(total / len(inputs) if mean else total, dtype) for total in totals], dtype)


def expected(
    inputs: Sequence[Array],
    op: str,
    lanes: int,
    wide: bool = True,
    sealed: bool = True,
    exact: bool = True,
) -> Array:
    """Return the result of `op` over the ranks' arrays on an in-network rail with `lanes` lanes per packet.

    `wide`: whether sums of up to `lanes` values begin with wide lanes. Sums of an allreduce on one tree do.
    `sealed`: whether some of the lanes are a seal.
    `exact`: whether a packet may hold exact sums. The packet of a call with one chunk does. A reduce-scatter
    has one chunk for each rank.
    """
    data_lanes = lanes - SEAL_LANES if sealed else lanes
    if inputs[0].dtype == np.int32:
        return integer_reduce(inputs, op)
    if op in ("max", "min"):
        return ordered_extreme(inputs, minimum=op == "min")
    if exact and is_exact(inputs, data_lanes):
        return exact_sum(inputs, mean=op == "avg")
    if wide and is_wide(inputs, lanes):
        return wide_sum(inputs, mean=op == "avg")
    return fixed_point_sum(inputs, data_lanes, mean=op == "avg")


def error_bound(inputs: Sequence[FloatArray], lanes: int, sealed: bool = True) -> NDArray[np.float64]:
    """Return the error that each element's sum may have before it is rounded to its type.

    The bound is n/2 * 2^(e + h - 30) for fixed point, and 0 for exact sums of few floats. For wide lanes it
    is n units, which is not larger than for fixed point.
    """
    world_size = len(inputs)
    chunk = lanes - SEAL_LANES if sealed else lanes
    if is_exact(inputs, chunk):
        return np.zeros(len(inputs[0]))
    if is_wide(inputs, lanes):
        return np.full(len(inputs[0]), float(world_size * wide_unit(world_size)))
    bound = np.empty(len(inputs[0]))
    for start in range(0, len(bound), chunk):
        exponent = chunk_exponent([values[start : start + chunk] for values in inputs])
        unit = np.ldexp(1.0, exponent + headroom_bits(world_size) - 30)
        bound[start : start + chunk] = world_size / 2 * unit
    return bound
