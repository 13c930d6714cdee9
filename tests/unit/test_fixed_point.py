# SPDX-License-Identifier: Apache-2.0
"""Fixed point and lane maps, compared with numpy bit by bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from protocol import oracle

from railweave._rigs import ina

BIAS = 127
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
BITS = st.integers(0, 2**32 - 1)
WORLD_SIZES = st.sampled_from([1, 2, 3, 4, 7, 8, 31, 128, 129, 255, 256, 257, 512, 513, 1023])
# Lengths below and above the width of vector instructions.
LENGTHS = st.integers(0, 70)


def float_arrays(elements: st.SearchStrategy[float]) -> st.SearchStrategy[NDArray[np.float32]]:
    return arrays(np.float32, LENGTHS, elements=elements)


def raw_arrays() -> st.SearchStrategy[NDArray[np.float32]]:
    """Return a strategy for all bit patterns: denormals, NaN payloads, both zeros."""
    return arrays(np.uint32, LENGTHS, elements=BITS).map(lambda bits: bits.view(np.float32))


def lanes_from(data: bytes) -> NDArray[np.int64]:
    return np.frombuffer(data, ">i4").astype(np.int64)


def as_lanes(values: NDArray[np.int64]) -> bytes:
    return values.astype(">i4").tobytes()


@given(WORLD_SIZES)
def test_headroom(world_size: int) -> None:
    assert ina.headroom_bits(world_size) == oracle.headroom_bits(world_size)


@given(raw_arrays())
def test_scan(values: NDArray[np.float32]) -> None:
    exponent, finite = ina.scan(values)
    assert exponent - BIAS == oracle.chunk_exponent([values])
    assert finite == bool(np.isfinite(values).all())


@given(
    float_arrays(FLOATS) | raw_arrays().map(lambda v: np.where(np.isfinite(v), v, np.float32(1))),
    WORLD_SIZES,
    st.integers(0, 60),
)
def test_quantise(values: NDArray[np.float32], world_size: int, above: int) -> None:
    exponent = min(oracle.chunk_exponent([values]) + above, BIAS)
    lanes = ina.quantise(values, exponent + BIAS, oracle.headroom_bits(world_size))
    np.testing.assert_array_equal(lanes_from(lanes), oracle.lanes_of(values, exponent, world_size))


@given(raw_arrays(), WORLD_SIZES)
def test_quantise_sets_nonfinite_values_aside(values: NDArray[np.float32], world_size: int) -> None:
    exponent = oracle.chunk_exponent([values])
    lanes, classes = ina.quantise_finite(values, exponent + BIAS, oracle.headroom_bits(world_size))
    np.testing.assert_array_equal(lanes_from(lanes), oracle.lanes_of(values, exponent, world_size))
    wanted = np.select([np.isnan(values), np.isposinf(values), np.isneginf(values)], [1, 2, 3], 0)
    np.testing.assert_array_equal(np.frombuffer(classes, np.uint8), wanted)
    counts = lanes_from(ina.encode_classes(classes))
    np.testing.assert_array_equal(counts, np.array([0, 1 << 20, 1 << 10, 1])[wanted])


@pytest.mark.parametrize("exponent", [1, 127, 254])
def test_hostile_exponents_saturate(exponent: int) -> None:
    values = np.array([3.4e38, -3.4e38, 1e-45, 0], np.float32)
    lanes = lanes_from(ina.quantise(values, exponent, 0))
    assert np.abs(lanes).max() <= 2**31 - 1


SUMS = arrays(np.int64, LENGTHS, elements=st.integers(-(2**31), 2**31 - 1))


@given(SUMS, st.integers(1, 254), WORLD_SIZES)
def test_dequantise(sums: NDArray[np.int64], exponent: int, world_size: int) -> None:
    headroom = oracle.headroom_bits(world_size)
    got = np.frombuffer(ina.dequantise(as_lanes(sums), exponent, headroom), np.uint32)
    wanted = oracle.floats_of(sums, exponent - BIAS, world_size, False, np.dtype(np.float32))
    np.testing.assert_array_equal(got, wanted.view(np.uint32))
    mean = np.frombuffer(ina.dequantise_mean(as_lanes(sums), exponent, headroom, world_size), np.uint32)
    wanted = oracle.floats_of(sums, exponent - BIAS, world_size, True, np.dtype(np.float32))
    np.testing.assert_array_equal(mean, wanted.view(np.uint32))


@pytest.mark.parametrize("world_size", [1, 2, 4, 128, 129, 256, 512, 1000, 1023])
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_the_largest_values_fit(world_size: int, sign: int) -> None:
    largest = np.array([sign * np.finfo(np.float32).max], np.float32)
    lane = lanes_from(ina.quantise(largest, 254, ina.headroom_bits(world_size)))[0]
    assert -(2**31) <= lane * world_size < 2**31


@given(raw_arrays(), WORLD_SIZES)
def test_lanes_of_exact_sums(values: NDArray[np.float32], world_size: int) -> None:
    """The limbs hold the value in units of 2^-149. The decoded lanes of one rank give the rank's value."""
    each = ina.exact_lanes(world_size)
    assert each == oracle.exact_lanes(world_size)
    lanes = lanes_from(ina.encode_exact(values, world_size)).reshape(each, len(values))
    limb = 31 - oracle.headroom_bits(world_size)
    assert np.abs(lanes[:-1]).max(initial=0) * world_size < 2**31
    for value, column in zip(values, lanes.T, strict=True):
        units = sum(int(lane) << limb * place for place, lane in enumerate(column[:-1]))
        assert units * Fraction(2) ** -149 == (Fraction(float(value)) if np.isfinite(value) else 0)
    got = np.frombuffer(ina.decode_exact(as_lanes(lanes.ravel()), world_size, 1, False), np.float32)
    np.testing.assert_array_equal(got, values)


@given(
    st.one_of(
        raw_arrays(),
        float_arrays(st.floats(-300, 300, width=32)),
        float_arrays(st.floats(-(2**-13), 2**-13, width=32)),
    ),
    WORLD_SIZES,
)
def test_wide_lanes(values: NDArray[np.float32], world_size: int) -> None:
    """Two limbs hold a value in units, and the sum of a limb over all ranks fits in int32.

    The encoder refuses other values.
    """
    wanted = oracle.in_units(values, world_size)
    encoded = ina.encode_wide(values, world_size)
    assert (encoded is None) == (wanted is None)
    if encoded is None or wanted is None:
        return
    lower, upper = lanes_from(encoded).reshape(2, len(values))
    for limb in (lower, upper):
        assert all(-(2**31) <= int(lane) * world_size < 2**31 for lane in limb)
    limb_bits = 31 - oracle.headroom_bits(world_size)
    assert [(int(high) << limb_bits) + int(low) for low, high in zip(lower, upper, strict=True)] == wanted
    got = np.frombuffer(ina.decode_wide(encoded, world_size, 1, False), np.uint32)
    unit = oracle.wide_unit(world_size)
    rounded = [oracle.nearest(units * unit, values.dtype) for units in wanted]
    np.testing.assert_array_equal(got, np.array(rounded, np.float32).view(np.uint32))


@pytest.mark.parametrize("world_size", [1, 2, 4, 8, 128, 129, 1023])
def test_wide_lanes_reach_from_small_gradients_to_256(world_size: int) -> None:
    def held(*values: float) -> bool:
        return ina.encode_wide(np.array(values, np.float32), world_size) is not None

    least = float(oracle.wide_unit(world_size)) * 2.0 ** (31 - oracle.headroom_bits(world_size))
    assert least <= 2.0**-13
    assert held(255.99, 1e-30)
    assert held(least, 1e-30)
    assert not held(least * 0.99, 1e-30)
    assert held(least * 0.5, 0.0)  # whole units
    assert not held(256.0)
    assert not held(-256.0, 1.0)
    assert held()


@given(arrays(np.int64, 30, elements=st.integers(-(2**31), 2**31 - 1)), st.sampled_from([1, 2, 4, 1023]))
def test_any_lanes_are_decoded(lanes: NDArray[np.int64], world_size: int) -> None:
    """A broken switch may send any lanes."""
    for decode in (ina.decode_exact, ina.decode_wide):
        for divisor in (1, world_size):
            decode(as_lanes(lanes), world_size, divisor, True)
            decode(as_lanes(lanes), world_size, divisor, False)
