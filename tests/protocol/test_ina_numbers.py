# SPDX-License-Identifier: Apache-2.0
"""The number format with adversarial values: errors within the bound, and the oracle's bits on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
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


def bits(kind: str) -> np.dtype[np.unsignedinteger]:
    return np.dtype(np.uint32 if kind == "float32" else np.uint16)


def any_bits(kind: str, hosts: int, count: int) -> st.SearchStrategy[FloatArray]:
    """Draw values from all bit patterns: NaN, Inf, both zeros, denormals and all exponents."""
    return hnp.arrays(bits(kind), (hosts, count)).map(lambda drawn: drawn.view(TYPES[kind]))


def largest(dtype: np.dtype[np.floating]) -> float:
    return 65504.0 if dtype == np.float16 else float(np.float32(2**127) * np.float32(1.9921875))


def adversaries(dtype: np.dtype[np.floating]) -> dict[str, Callable[[int, np.random.Generator], FloatArray]]:
    tiny = 2.0**-24 if dtype == np.float16 else 2.0**-133
    top = largest(dtype)

    def of(values: list[float]) -> Callable[[int, np.random.Generator], FloatArray]:
        return lambda count, generator: (
            generator.choice(np.array(values), count).astype(np.float32).astype(dtype)
        )

    return {
        "denormals": of([tiny, -tiny, 3 * tiny, 7 * tiny]),
        "huge ranges inside a chunk": of([top / 2048, tiny, -tiny, 1.0, 3e-3]),
        "zeros": of([0.0, -0.0]),
        "the largest": of([top, -top, top / 2]),
        "cancellation": of([1.0, -1.0, 1.0009765625, -1.0078125]),
        "ties": of([1.0 + 2.0**-8, 1.0 + 2.0**-11, 2.0**-9, 2.0**-12, 1.0]),
    }


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
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), hosts=st.integers(1, 5), count=st.sampled_from(LENGTHS))
def test_any_bits_at_all(kind: str, data: st.DataObject, hosts: int, count: int) -> None:
    inputs = list(data.draw(any_bits(kind, hosts, count)))
    op = data.draw(st.sampled_from(["sum", "avg", "max", "min"]))
    wanted = expected(inputs, op, LANES)
    assert_bits(reduce(inputs, op), wanted)
    assert_bits(reduce(inputs, op, seed=1 + count), wanted)  # packets arrive in a different order


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), hosts=st.integers(1, 5), count=st.sampled_from(FEW))
def test_few_floats_are_summed_exactly_in_one_exchange(
    kind: str, data: st.DataObject, hosts: int, count: int
) -> None:
    inputs = list(data.draw(any_bits(kind, hosts, count)))
    op = data.draw(st.sampled_from(["sum", "avg"]))
    assert_bits(reduce(inputs, op, lanes=WIDE), expected(inputs, op, WIDE))
    assert_bits(reduce(inputs, op, seed=1 + count, lanes=WIDE), expected(inputs, op, WIDE))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", adversaries(np.dtype(np.float16)))
@pytest.mark.parametrize("hosts", [2, 3, 7])
def test_sums_stay_within_the_bound(kind: str, name: str, hosts: int) -> None:
    """Check |result - exact| <= n/2 * 2^(e + h - 30) + ulp/2, where ulp/2 is for rounding to the type."""
    generator = np.random.default_rng(hosts)
    dtype = TYPES[kind]
    for count in LENGTHS:
        inputs = [adversaries(dtype)[name](count, generator) for _ in range(hosts)]
        [result, *others] = reduce(inputs, "sum")
        assert_bits(others, result)
        exact = [sum(Fraction(float(values[i])) for values in inputs) for i in range(count)]
        bound = error_bound(inputs, LANES)
        for i, value in enumerate(exact):
            if not np.isfinite(result[i]):
                assert abs(value) + Fraction(bound[i]) > Fraction(largest(dtype))
                continue
            assert abs(Fraction(float(result[i])) - value) <= Fraction(bound[i]) + ulp(kind, result[i]) / 2


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@settings(max_examples=200, deadline=None)
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
