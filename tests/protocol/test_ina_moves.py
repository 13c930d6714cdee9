# SPDX-License-Identifier: Apache-2.0
"""Groups that move to another tree in the middle of collectives: nothing is lost, nothing is added twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol.network import (
    GROUP,
    MICROSECOND,
    MILLISECOND,
    Link,
    Network,
    Shape,
    build,
    child_of,
    place,
    tree_of,
)
from protocol.oracle import expected
from protocol.test_ina import BOUND, all_have, assert_bits, random_inputs, start_all

from railweave._native import ina

LANES = 8


def move(
    network: Network, group: int, slots: int, pauses: list[int], racks: list[int], lanes: int = LANES
) -> list[int]:
    """Pause every host after its delay, then resume all in a fresh tree; the positions."""
    positions: dict[int, int] = {}

    def pause(host: int) -> None:
        positions[host] = network.endpoints[host].pause(network.now)

    for host, delay in enumerate(pauses):
        network.at(network.now + delay, lambda host=host: pause(host))  # type: ignore[misc]
    while len(positions) < len(pauses):
        network.step()
    network.replace(tree_of(Shape.of(racks), lanes))
    hosts = range(len(pauses))
    place(network.root, group, hosts, slots, start=group)
    resume_from = min(positions.values())
    for host, endpoint in enumerate(network.endpoints):
        child = child_of(network.root, host, hosts)
        endpoint.resume(
            group=group, child=child, slots=slots, lanes=lanes, resume_from=resume_from, now=network.now
        )
        network.pump(host)
    return [positions[host] for host in range(len(pauses))]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), racks=st.sampled_from([[1], [2], [4], [2, 2]]), seed=st.integers(0, 2**32))
def test_moves_at_any_time_give_the_oracles_bits(data: st.DataObject, racks: list[int], seed: int) -> None:
    hosts = sum(racks)
    slots = data.draw(st.sampled_from([1, 4, 16]), "slots")
    loss = data.draw(st.sampled_from([0, 0.05]), "loss")
    link = Link(loss=loss, duplicate=0.02, jitter=100 * MICROSECOND)
    network = build(racks, slots=slots, lanes=LANES, link=link, seed=seed)
    generator = np.random.default_rng(seed)
    wanted = []
    for index, (op, dtype) in enumerate([("sum", "float32"), ("max", "int32"), ("sum", "int32")]):
        inputs = random_inputs(generator, hosts, data.draw(st.integers(1, 400), "count"), dtype)
        late = [
            (3 * index + data.draw(st.sampled_from([0, 0, 2]), "late")) * MILLISECOND for _ in range(hosts)
        ]
        wanted.append(
            (start_all(network, index, op, inputs, late, in_place=True), expected(inputs, op, LANES))
        )
    for number in range(data.draw(st.integers(1, 3), "moves")):
        for _ in range(data.draw(st.integers(0, 150), "steps")):
            network.step()
        pauses = [data.draw(st.sampled_from([0, 50, 400]), "pause") * MICROSECOND for _ in range(hosts)]
        slots = data.draw(st.sampled_from([slots, 1, 4, 32]), "slots")
        move(network, GROUP + 1 + number, slots, pauses, racks)
    network.run(lambda: all_have(network, *range(len(wanted))), within=BOUND)
    for outputs, result in wanted:
        assert_bits(outputs, result)
    network.drain()
    assert all(endpoint.idle for endpoint in network.endpoints)


def test_results_of_the_old_tree_are_stale() -> None:
    network = build(2, lanes=LANES, link=Link(delay=MILLISECOND, jitter=MILLISECOND))
    outputs = start_all(network, 0, "sum", [np.ones(500, np.int32)] * 2)
    while network.endpoints[0].stats()["results"] < 5:
        network.step()
    move(network, GROUP + 1, 16, [0, 0], [2])
    network.run(lambda: all_have(network, 0), within=BOUND)
    assert_bits(outputs, np.full(500, 2, np.int32))
    stats = [endpoint.stats() for endpoint in network.endpoints]
    assert any(each["stale"] > 0 for each in stats)
    assert all(each["moves"] == 1 for each in stats)
    assert all(sum(each["refused"].values()) == 0 for each in stats)


def test_what_cannot_be_resumed_is_refused_and_stays_paused() -> None:
    endpoint = ina.Endpoint(group=1, child=0, slots=4, lanes=LANES, world_size=1)
    usual = {"group": 2, "child": 0, "slots": 4, "lanes": LANES, "resume_from": 0, "now": 0}
    with pytest.raises(RuntimeError, match="after it was paused"):
        endpoint.resume(**usual)
    assert endpoint.pause(0) == 0
    for wrong, message in [
        ({"lanes": 16}, "of the same lanes: 8, not 16"),
        ({"slots": 3}, "power of two"),
        ({"child": 31}, "child must be"),
        ({"resume_from": 1}, "this one's is 0, not 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            endpoint.resume(**usual | wrong)
    assert endpoint.transmit(0) is None
    endpoint.resume(**usual)


def test_contributions_are_kept_for_two_windows() -> None:
    """A rank that is S ahead of another's gap, and has sent S past its own, can go back to that gap."""
    network = build(1, slots=4, lanes=LANES, sealed=False)
    start_all(network, 0, "sum", [np.ones(20 * LANES, np.int32)])
    network.run(lambda: all_have(network, 0), within=BOUND)
    [endpoint] = network.endpoints
    assert endpoint.pause(network.now) == 20
    usual = {"group": 2, "child": 0, "slots": 4, "lanes": LANES, "now": network.now}
    with pytest.raises(ValueError, match="the oldest is 12"):
        endpoint.resume(**usual, resume_from=11)
    endpoint.resume(**usual, resume_from=12)
    endpoint.pause(network.now)
    with pytest.raises(ValueError, match="or beyond: at 12, not 11"):
        endpoint.resume(**usual | {"slots": 16}, resume_from=11)
    endpoint.resume(**usual, resume_from=12)
    again = [endpoint.transmit(network.now) for _ in range(5)]
    assert [packet is not None for packet in again] == [True] * 4 + [False]
