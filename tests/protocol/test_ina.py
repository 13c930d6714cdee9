# SPDX-License-Identifier: Apache-2.0
"""In-network aggregation in virtual time: hosts and switches over bad links, held to the oracle's bits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol.network import MICROSECOND, MILLISECOND, SECOND, Link, Network, build
from protocol.oracle import BFLOAT16, SEAL_LANES, Array, expected

OPS = ("sum", "max", "min", "avg")
DTYPES = ("float32", "float16", "bfloat16", "int32")
BOUND = 300 * SECOND


def random_inputs(generator: np.random.Generator, hosts: int, count: int, dtype: str) -> list[Array]:
    if dtype == "int32":
        info = np.iinfo(np.int32)
        return [generator.integers(info.min, info.max, count, np.int32, endpoint=True) for _ in range(hosts)]
    # Of few values, wide lanes hold those that do not reach far.
    reach = int(generator.choice([4, 12 if dtype == "float16" else 60]))
    scales = np.exp2(generator.integers(-reach, reach, count)).astype(np.float32)
    kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    return [(generator.standard_normal(count) * scales).astype(kind) for _ in range(hosts)]


def spoil(generator: np.random.Generator, inputs: Sequence[Array], fraction: float) -> None:
    """Put NaN and Inf into some places, different ones on each host."""
    for values in inputs:
        chosen = generator.random(len(values)) < fraction
        kinds = np.array([np.nan, np.inf, -np.inf], np.float32)
        values[chosen] = generator.choice(kinds, chosen.sum()).astype(values.dtype)


def bits_of(values: Array) -> Array:
    """As endpoints take it: bfloat16 as the bits that it consists of."""
    return values.view(np.uint16) if values.dtype == BFLOAT16 else values


def start_all(
    network: Network,
    op_index: int,
    op: str,
    inputs: Sequence[Array],
    delays: Sequence[int] = (),
    in_place: bool = False,
) -> list[Array]:
    """Start one call on every host, now or after its delay; the outputs, to be read once it is done."""
    inputs = [values.copy() for values in inputs]
    outputs = inputs if in_place else [np.zeros_like(values) for values in inputs]

    def start(host: int) -> None:
        network.endpoints[host].start(op_index, op, bits_of(inputs[host]), bits_of(outputs[host]))
        network.pump(host)

    for host in range(len(inputs)):
        network.at(network.now + (delays[host] if delays else 0), partial(start, host))
    return outputs


def all_have(network: Network, *op_indices: int) -> bool:
    return all(set(op_indices) <= set(events) for events in network.events)


def assert_bits(outputs: Sequence[Array], wanted: Array) -> None:
    for output in outputs:
        assert output.dtype == wanted.dtype
        bits = f"u{wanted.dtype.itemsize}"
        np.testing.assert_array_equal(output.view(bits), wanted.view(bits))


def check(network: Network, op: str, inputs: list[Array], lanes: int = 8, in_place: bool = False) -> None:
    outputs = start_all(network, 0, op, inputs, in_place=in_place)
    network.run(lambda: all_have(network, 0), within=BOUND)
    assert_bits(outputs, expected(inputs, op, lanes))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 65, 1000])
@pytest.mark.parametrize("in_place", [False, True], ids=["", "in place"])
def test_every_op_and_length(op: str, dtype: str, count: int, in_place: bool) -> None:
    inputs = random_inputs(np.random.default_rng(count), 3, count, dtype)
    check(build(3), op, inputs, in_place=in_place)


@pytest.mark.parametrize("lanes", [64, 256, 1024])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_compiled_program_adds_the_same(op: str, dtype: str, lanes: int) -> None:
    inputs = random_inputs(np.random.default_rng(lanes), 3, 5 * lanes + 1, dtype)
    check(build((2, 1), lanes=lanes, engine=True), op, inputs, lanes)


@pytest.mark.parametrize("op", ["sum", "avg"])
@pytest.mark.parametrize("fraction", [0.01, 1.0])
@pytest.mark.parametrize("in_place", [False, True], ids=["", "in place"])
@pytest.mark.parametrize("dtype", DTYPES[:-1])
def test_nonfinite_values_keep_their_meaning(op: str, fraction: float, in_place: bool, dtype: str) -> None:
    generator = np.random.default_rng(5)
    inputs = random_inputs(generator, 3, 999, dtype)
    spoil(generator, inputs, fraction)
    check(build(3), op, inputs, in_place=in_place)


def test_only_chunks_with_nonfinite_values_are_sent_twice() -> None:
    inputs = [np.ones(640, np.float32) for _ in range(2)]
    inputs[0][100] = np.nan
    inputs[1][500] = np.inf
    network = build(2, lanes=8 + SEAL_LANES)
    check(network, "sum", inputs, lanes=8 + SEAL_LANES)
    segments, chunks, spoilt = 10, 80, 2
    assert [e.stats()["nonfinite_chunks"] for e in network.endpoints] == [spoilt, spoilt]
    assert [e.stats()["contributions"] for e in network.endpoints] == [segments + chunks + spoilt] * 2


@pytest.mark.parametrize(
    ("dtype", "op", "count", "scale", "trips", "packets"),
    [
        ("float32", "sum", 257, 1, 2, 3),
        ("float32", "sum", 256, 1, 1, 3),  # wide
        ("float32", "sum", 252, 1, 1, 2),
        ("float32", "sum", 126, 1e-5, 1, 1),
        ("float16", "avg", 24, 1, 1, 1),
        ("float32", "sum", 126, 1e-9, 3, 3),  # too small for wide lanes
        ("bfloat16", "sum", 252, 1e9, 3, 4),
        ("float32", "sum", 22, 1e30, 1, 1),  # exact
        ("float16", "avg", 22, 1, 1, 1),
        ("float32", "max", 252, 1, 2, 2),  # and a witness
        ("float32", "max", 253, 1, 2, 3),
        ("int32", "sum", 252, 1e6, 1, 1),
        ("int32", "sum", 252, 1e9, 2, 3),  # may wrap: as halves, too
    ],
)
def test_small_messages_take_the_least_round_trips_and_no_timer(
    dtype: str, op: str, count: int, scale: float, trips: int, packets: int
) -> None:
    network = build(4, lanes=256, slots=512, link=Link(delay=100 * MICROSECOND))
    kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    generator = np.random.default_rng(0)
    check(network, op, [(generator.standard_normal(count) * scale).astype(kind) for _ in range(4)], lanes=256)
    assert network.now == trips * 2 * 100 * MICROSECOND
    assert network.packets_sent == [packets] * 4
    assert all(e.stats()["timeouts"] == 0 for e in network.endpoints)


LINKS = st.builds(
    Link,
    loss=st.sampled_from([0, 0.01, 0.1, 0.3]),
    duplicate=st.sampled_from([0, 0.01, 0.3]),
    jitter=st.sampled_from([0, 20 * MICROSECOND, 2 * MILLISECOND]),
)
STARTS = st.sampled_from([1, 2**31 - 2, 2**32 - 2])
TREES = st.sampled_from([1, 2, 3, 5, (2, 2), (1, 3, 2)])


def run_schedule(data: st.DataObject, network: Network, lanes: int) -> None:
    """Some calls, each started at its own time on every host; all must give the oracle's bits."""
    hosts = len(network.endpoints)
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32), "data"))
    wanted = []
    for index in range(data.draw(st.integers(1, 3), "calls")):
        op, dtype = data.draw(st.sampled_from(OPS)), data.draw(st.sampled_from(DTYPES))
        count = data.draw(st.integers(1, 15 * lanes), "count")
        inputs = random_inputs(generator, hosts, count, dtype)
        if dtype != "int32" and data.draw(st.booleans(), "nonfinite"):
            spoil(generator, inputs, 0.05)
        # Each call starts on every host after all earlier ones.
        late = [data.draw(st.sampled_from([0, 30, 30_000]), "late") for _ in range(hosts)]
        delays = [index * 40 * MILLISECOND + each * MICROSECOND for each in late]
        outputs = start_all(network, index, op, inputs, delays, in_place=data.draw(st.booleans(), "in place"))
        wanted.append((outputs, expected(inputs, op, lanes)))
    network.run(lambda: all_have(network, *range(len(wanted))), within=BOUND)
    for outputs, result in wanted:
        assert_bits(outputs, result)
    done = [[event for event in events if event in range(len(wanted))] for events in network.events]
    assert [len(events) for events in done] == [len(wanted)] * hosts
    network.drain()  # what comes late must do no harm
    assert all(endpoint.idle for endpoint in network.endpoints)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), tree=TREES, link=LINKS, start=STARTS, seed=st.integers(0, 2**32))
def test_any_schedule_gives_the_oracles_bits(
    data: st.DataObject, tree: int | tuple[int, ...], link: Link, start: int, seed: int
) -> None:
    lanes = SEAL_LANES + data.draw(st.sampled_from([1, 4, 8]), "lanes")
    slots = data.draw(st.sampled_from([1, 2, 8, 32]), "slots")
    run_schedule(data, build(tree, slots=slots, lanes=lanes, link=link, seed=seed, start=start), lanes)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), tree=TREES, link=LINKS, start=STARTS, seed=st.integers(0, 2**32))
def test_any_schedule_over_the_compiled_program(
    data: st.DataObject, tree: int | tuple[int, ...], link: Link, start: int, seed: int
) -> None:
    network = build(tree, slots=4, lanes=64, link=link, seed=seed, start=start, engine=True)
    run_schedule(data, network, 64)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), tree=st.sampled_from([2, (1, 2)]))
def test_ranks_that_call_different_things_all_find_out(
    data: st.DataObject, tree: int | tuple[int, ...]
) -> None:
    network = build(tree, link=Link(loss=0.1), seed=data.draw(st.integers(0, 2**32)))
    hosts = len(network.endpoints)
    calls = st.tuples(
        st.integers(0, 2), st.sampled_from(OPS), st.integers(1, 200), st.sampled_from(["f4", "i4"])
    )
    usual, other = data.draw(st.lists(calls, min_size=2, max_size=2, unique=True))
    odd_one = data.draw(st.integers(0, hosts - 1))
    for host, endpoint in enumerate(network.endpoints):
        index, op, count, dtype = other if host == odd_one else usual
        endpoint.start(index, op, np.ones(count, dtype), np.ones(count, dtype))
        network.pump(host)

    def ends() -> list[list[tuple[str, str]]]:
        return [[event for event in events if event[0] != "stalled"] for events in network.events]

    network.run(lambda: all(ends()), within=10 * SECOND)
    for [(kind, message)], endpoint in zip(ends(), network.endpoints, strict=True):
        assert kind == "mismatch"
        assert "all ranks must make the same calls" in message
        assert endpoint.deadline() is None
        assert endpoint.transmit(network.now) is None
