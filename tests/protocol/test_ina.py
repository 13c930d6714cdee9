# SPDX-License-Identifier: Apache-2.0
"""In-network aggregation, hosts and a model switch over bad links in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol.network import MICROSECOND, MILLISECOND, SECOND, Link, Network, build
from protocol.oracle import Array, expected

OPS = ("sum", "max", "min", "avg")


def random_inputs(generator: np.random.Generator, hosts: int, count: int, dtype: str) -> list[Array]:
    if dtype == "int32":
        info = np.iinfo(np.int32)
        return [generator.integers(info.min, info.max, count, np.int32, endpoint=True) for _ in range(hosts)]
    scales = np.exp2(generator.integers(-60, 60, count)).astype(np.float32)
    return [(generator.standard_normal(count) * scales).astype(np.float32) for _ in range(hosts)]


def start_all(
    network: Network, op_index: int, op: str, inputs: Sequence[Array], delays: Sequence[int] = ()
) -> list[Array]:
    """Start one call on every host, now or after its delay; the outputs, to be read once it is done."""
    outputs = [np.zeros_like(values) for values in inputs]

    def start(host: int) -> None:
        network.endpoints[host].start(op_index, op, inputs[host], outputs[host])
        network.pump(host)

    for host in range(len(inputs)):
        network.at(network.now + (delays[host] if delays else 0), lambda host=host: start(host))  # type: ignore[misc]
    return outputs


def all_have(network: Network, *op_indices: int) -> bool:
    return all(set(op_indices) <= set(events) for events in network.events)


def assert_bits(outputs: Sequence[Array], wanted: Array) -> None:
    for output in outputs:
        np.testing.assert_array_equal(output.view(np.uint32), wanted.view(np.uint32))


def check(network: Network, op: str, inputs: list[Array], lanes: int = 8, op_index: int = 0) -> None:
    outputs = start_all(network, op_index, op, inputs)
    network.run(lambda: all_have(network, op_index), within=60 * SECOND)
    assert_bits(outputs, expected(inputs, op, lanes))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 65, 1000])
def test_every_op_and_length(op: str, dtype: str, count: int) -> None:
    check(build(3), op, random_inputs(np.random.default_rng(count), 3, count, dtype))


@pytest.mark.parametrize(
    ("dtype", "op", "trips"), [("float32", "sum", 2), ("float32", "max", 1), ("int32", "sum", 1)]
)
def test_small_messages_take_the_least_round_trips_and_no_timer(dtype: str, op: str, trips: int) -> None:
    network = build(4, lanes=256, slots=512, link=Link(delay=100 * MICROSECOND))
    check(network, op, random_inputs(np.random.default_rng(0), 4, 256, dtype), lanes=256)
    assert network.now == trips * 2 * 100 * MICROSECOND
    assert network.packets_sent == [trips] * 4
    assert all(e.stats()["timeouts"] == 0 for e in network.endpoints)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_schedule_gives_the_oracles_bits(data: st.DataObject) -> None:
    racks = data.draw(st.sampled_from([1, 2, 3, 5, (2, 2), (1, 3, 2)]), "hosts")
    hosts = racks if isinstance(racks, int) else sum(racks)
    lanes = data.draw(st.sampled_from([1, 4, 8]), "lanes")
    link = Link(
        loss=data.draw(st.sampled_from([0, 0.01, 0.1, 0.3]), "loss"),
        duplicate=data.draw(st.sampled_from([0, 0.01, 0.3]), "duplicate"),
        jitter=data.draw(st.sampled_from([0, 20, 2000]), "jitter") * MICROSECOND,
    )
    start = data.draw(st.sampled_from([1, 2**31 - 2, 2**32 - 2]), "start")
    slots = data.draw(st.sampled_from([1, 2, 8, 32]), "slots")
    network = build(
        racks, slots=slots, lanes=lanes, link=link, seed=data.draw(st.integers(0, 2**32)), start=start
    )
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    wanted = []
    for index in range(data.draw(st.integers(1, 3), "calls")):
        op, dtype = data.draw(st.sampled_from(OPS)), data.draw(st.sampled_from(["float32", "int32"]))
        inputs = random_inputs(generator, hosts, data.draw(st.integers(1, 120), "count"), dtype)
        if dtype == "float32" and data.draw(st.booleans(), "nonfinite"):
            for values in inputs:
                chosen = generator.random(len(values)) < 0.05
                values[chosen] = generator.choice(np.float32([np.nan, np.inf, -np.inf]), chosen.sum())
        delays = [data.draw(st.sampled_from([0, 30, 30_000])) * MICROSECOND for _ in range(hosts)]
        result = expected(inputs, op, lanes)
        wanted.append((start_all(network, index, op, inputs, sorted_by_call(delays, index)), result))
    network.run(lambda: all_have(network, *range(len(wanted))), within=300 * SECOND)
    for outputs, result in wanted:
        assert_bits(outputs, result)


def sorted_by_call(delays: list[int], index: int) -> list[int]:
    """Calls start in the same order on every host: each later one a little after all earlier ones."""
    return [delay + index * 40 * MILLISECOND for delay in delays]
