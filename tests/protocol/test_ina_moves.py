# SPDX-License-Identifier: Apache-2.0
"""One endpoint that moves to another group, or halts and restarts."""

from __future__ import annotations

import numpy as np
import pytest
from protocol.calls import assert_bits
from protocol.network import GROUP, Network, build, child_of, place, tree_of
from protocol.test_ina import BOUND, all_have, start_all
from protocol.virtual_time import MILLISECOND, Link

from railweave._rigs import ina

LANES = 8


def move(network: Network, group: int, slots: int, racks: list[int], lanes: int = LANES) -> None:
    """Pause every host after the actions of this moment, then resume all in a new tree."""
    positions: list[int] = []
    for endpoint in network.endpoints:
        network.at(network.now, lambda paused=endpoint: positions.append(paused.pause(network.now)))  # type: ignore[misc]
    while len(positions) < len(network.ranks):
        network.step()
    network.replace(tree_of(racks, lanes))
    hosts = range(len(network.ranks))
    place(network.root, group, hosts, slots, start=group)
    for rank in network.ranks:
        child = child_of(network.root, rank.host, hosts)
        there = {"group": group, "child": child, "slots": slots, "lanes": lanes}
        rank.machine.resume(**there, resume_from=min(positions), now=network.now)
        rank.pump()


def test_results_of_the_old_tree_are_stale() -> None:
    network = build(2, lanes=LANES, link=Link(delay=MILLISECOND, jitter=MILLISECOND))
    outputs = start_all(network, 0, [np.ones(500, np.int32)] * 2)
    while network.endpoints[0].stats()["results"] < 5:
        network.step()
    move(network, GROUP + 1, 16, [2])
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
    """A rank can go back by two windows of S chunks.

    It may be S chunks ahead of another rank's gap, and have sent S chunks beyond its own gap.
    """
    network = build(1, slots=4, lanes=LANES, sealed=False)
    start_all(network, 0, [np.ones(20 * LANES, np.int32)])
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


def test_packets_from_before_a_halt_are_stale() -> None:
    """Late results belong to void chunks, also if their slots are in use again."""
    network = build(1, slots=4, lanes=LANES, sealed=False)
    [endpoint] = network.endpoints
    old, new = np.ones(4 * LANES, np.int32), np.full(8 * LANES, 5, np.int32)
    endpoint.start(0, "sum", old, old)
    packets = [endpoint.transmit(0) for _ in range(4)]
    results = [network.root.switch.process(0, packet)[0][1] for packet in packets]
    endpoint.halt()
    old[:] = 77
    for packet in results:
        endpoint.receive(packet, 1)
    endpoint.restart(endpoint.next_chunk(), 2)
    endpoint.start(1, "sum", new, new)
    for packet in results:
        endpoint.receive(packet, 3)
    network.ranks[0].pump()
    for packet in results:
        endpoint.receive(packet, 4)
    for packet in packets:
        network.from_host(0, packet)
    network.run(lambda: 1 in network.events[0], BOUND)
    np.testing.assert_array_equal(old, 77)
    np.testing.assert_array_equal(new, 5)
    network.drain()
    assert endpoint.stats()["results"] == 8
    assert sum(endpoint.stats()["refused"].values()) == 0


def test_a_halted_endpoint_is_silent_and_takes_nothing() -> None:
    endpoint = ina.Endpoint(group=1, child=0, slots=4, lanes=LANES, world_size=2)
    values = np.ones(2 * LANES, np.int32)
    with pytest.raises(RuntimeError, match="after it was halted"):
        endpoint.restart(0, 0)
    endpoint.start(0, "sum", values, values)
    assert endpoint.transmit(0) is not None
    for _ in range(2):
        endpoint.halt()
        assert endpoint.next_chunk() == 1
        endpoint.start(1, "sum", values, values)
        assert endpoint.idle
        assert endpoint.transmit(0) is None
        assert endpoint.deadline() is None
        assert endpoint.pause(0) == 1
    with pytest.raises(ValueError, match="this one's is 1, not 0"):
        endpoint.restart(0, 0)
    endpoint.restart(30, 0)
    assert endpoint.next_chunk() == 30
    endpoint.start(2, "sum", values, values)
    assert endpoint.transmit(0) is None, "it is paused still"
    endpoint.resume(group=2, child=0, slots=1, lanes=LANES, resume_from=1, now=0)
    packet = endpoint.transmit(0)
    assert packet is not None
    # Chunk 30 is the new group's 29th: slot 0 of 1, copy 1, round 14.
    assert (int.from_bytes(packet[6:8]), int.from_bytes(packet[8:12])) == (1, 14)


def test_a_rank_that_has_given_up_less_than_others_does_not_hold_back_a_move() -> None:
    """Positions may be far apart. A rank need not keep void chunks."""
    endpoint = ina.Endpoint(group=1, child=0, slots=4, lanes=LANES, world_size=2)
    endpoint.halt()
    endpoint.restart(1000, 0)
    values = np.ones(3 * LANES, np.int32)
    endpoint.start(0, "sum", values, values)
    while endpoint.transmit(0) is not None:
        pass
    assert endpoint.pause(0) == 1000
    endpoint.resume(group=2, child=0, slots=4, lanes=LANES, resume_from=10, now=0)
    again = []
    while (packet := endpoint.transmit(0)) is not None:
        again.append(packet)
    assert len(again) == 3
