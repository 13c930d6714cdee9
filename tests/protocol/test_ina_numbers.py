# SPDX-License-Identifier: Apache-2.0
"""The number format with adversarial values: errors within the bound, and the oracle's bits on all ranks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from protocol.calls import BFLOAT16, Call, assert_bits
from protocol.network import build
from protocol.oracle import SEAL_LANES, FloatArray, error_bound, expected, is_exact, is_wide, rounded
from protocol.test_ina import BOUND, all_have, start_all
from protocol.virtual_time import Link

LANES = 8
LENGTHS = (1, LANES - 1, LANES, LANES + 1, 3 * LANES + 5)  # the agent refuses slices of length 0
WIDE = 64  # lanes; an exact sum needs 10 to 11 for each value
FEW = (1, 2, 5, 6)
TYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": BFLOAT16}


def adversaries(kind: str) -> list[float]:
    """Return denormals, both zeros, the largest values, ties, and values that cancel each other out."""
    tiny = 2.0**-24 if kind == "float16" else 2.0**-133
    top = largest(kind)
    near_one = [1.0, -1.0, 1.0009765625, -1.0078125, 1.0 + 2.0**-8, 1.0 + 2.0**-11, 2.0**-9, 2.0**-12, 3e-3]
    return [0.0, -0.0, tiny, -tiny, 3 * tiny, 7 * tiny, top, -top, top / 2, top / 2048, *near_one]


def largest(kind: str) -> float:
    return 65504.0 if kind == "float16" else float(np.float32(2**127) * np.float32(1.9921875))


def any_values(kind: str, hosts: int, count: int) -> st.SearchStrategy[FloatArray]:
    """Draw values from all bit patterns (NaN, Inf, denormals, all exponents), or adversaries only."""
    shape, hard = (hosts, count), np.array(adversaries(kind), np.float32).astype(TYPES[kind])
    bits = hnp.arrays(np.uint32 if kind == "float32" else np.uint16, shape)
    places = hnp.arrays(np.intp, shape, elements=st.integers(0, len(hard) - 1))
    return bits.map(lambda drawn: drawn.view(TYPES[kind])) | places.map(lambda drawn: hard[drawn])


def ulp(kind: str, value: float) -> Fraction:
    mantissa, least = {"float32": (23, -126), "float16": (10, -14), "bfloat16": (7, -126)}[kind]
    exponent = int(np.frexp(np.float64(value))[1]) - 1 if value != 0 else least
    return Fraction(2) ** (max(exponent, least) - mantissa)


def reduce(inputs: list[FloatArray], op: str, seed: int = 0, lanes: int = LANES) -> list[FloatArray]:
    network = build(len(inputs), lanes=lanes, link=Link(loss=0.02 if seed else 0.0), seed=seed)
    outputs = start_all(network, 0, Call(inputs, op=op))
    network.run(lambda: all_have(network, 0), within=BOUND)
    bound = max(error_bound(inputs, lanes)) if op in ("sum", "avg") else 0.0
    assert {endpoint.stats()["error_bound"] for endpoint in network.endpoints} == {bound}
    if op in ("sum", "avg") and is_exact(inputs, lanes - SEAL_LANES):
        assert {endpoint.stats()["contributions"] for endpoint in network.endpoints} == {1}
    elif op in ("sum", "avg") and is_wide(inputs, lanes):
        chunks = -(-2 * len(inputs[0]) // (lanes - SEAL_LANES))
        assert {endpoint.stats()["contributions"] for endpoint in network.endpoints} == {chunks}
    return outputs


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("lanes", "counts"), [(LANES, LENGTHS), (WIDE, FEW)], ids=["chunks", "exact sums"])
@settings(max_examples=50, deadline=None)
@given(data=st.data(), hosts=st.integers(1, 7))
def test_any_values_at_all(
    kind: str, lanes: int, counts: tuple[int, ...], data: st.DataObject, hosts: int
) -> None:
    count = data.draw(st.sampled_from(counts))
    inputs = list(data.draw(any_values(kind, hosts, count)))
    op = data.draw(st.sampled_from(["sum", "avg", "max", "min"]))
    wanted = expected(inputs, op, lanes)
    assert_bits(reduce(inputs, op, lanes=lanes), wanted)
    assert_bits(
        reduce(inputs, op, seed=1 + count, lanes=lanes), wanted
    )  # packets arrive in a different order
    if op == "sum" and np.isfinite(np.stack(inputs).astype(np.float32)).all():
        check_error(kind, inputs, wanted, lanes)


def check_error(kind: str, inputs: list[FloatArray], result: FloatArray, lanes: int) -> None:
    """Check |result - exact| <= n/2 * 2^(e + h - 30) + ulp/2, where ulp/2 is for rounding to the type."""
    for value, bound, column in zip(
        result, error_bound(inputs, lanes), zip(*inputs, strict=True), strict=True
    ):
        exact = sum(Fraction(float(each)) for each in column)
        if np.isfinite(value):
            assert abs(Fraction(float(value)) - exact) <= Fraction(bound) + ulp(kind, value) / 2
        else:
            assert abs(exact) + Fraction(bound) > Fraction(largest(kind))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_halves_are_rounded_once(kind: str, data: st.DataObject) -> None:
    """Sums are in the middle between two 16-bit floats, or so near to it that float32 cannot tell."""
    digits, tiny = (11, 2.0**-14) if kind == "float16" else (8, 2.0**-17)
    middle = data.draw(st.integers(2 ** (digits - 1), 2**digits - 1)) * 2.0
    scale = 2.0 ** data.draw(st.sampled_from([-9, 0, 2] if kind == "float16" else [-124, -100, 0, 100]))
    sign = data.draw(st.sampled_from([1.0, -1.0]))
    beside = data.draw(st.sampled_from([0.0, tiny, -tiny]))
    parts = np.array([[middle], [1.0], [beside]]) * scale * sign
    inputs = list(parts.astype(np.float32).astype(TYPES[kind]))
    exact = np.sum(inputs, axis=0, dtype=np.float64)
    assert_bits(reduce(inputs, "sum"), rounded(exact, TYPES[kind]))


def test_the_oracle_rounds_as_numpy_where_numpy_can() -> None:
    generator = np.random.default_rng(0)
    values = np.concatenate(
        [
            generator.standard_normal(100_000) * np.exp2(generator.integers(-30, 18, 100_000)),
            np.arange(4096) * 2.0**-25,
            np.array([65519.0, 65520.0, -65520.0, 1e9]),
        ]
    )
    with np.errstate(over="ignore"):
        assert_bits([rounded(values, np.dtype(np.float16))], values.astype(np.float16))
    singles = values.astype(np.float32)
    assert_bits([rounded(singles.astype(np.float64), BFLOAT16)], singles.astype(BFLOAT16))
