# SPDX-License-Identifier: Apache-2.0
"""Collectives of the in-network rail in virtual time: packets, round trips, and mismatches."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.calls import Array, Call, draw_values, kind_of
from protocol.network import GROUP, Network, build, child_of
from protocol.oracle import SEAL_LANES
from protocol.schedules import OPS, reduced, start_call
from protocol.switch_model import SPREAD, Packet
from protocol.virtual_time import MICROSECOND, SECOND, Link

from railweave._native.collectives import Collective

BOUND = 300 * SECOND


def random_inputs(numbers: np.random.Generator, hosts: int, count: int, dtype: str) -> list[Array]:
    return [draw_values(numbers, kind_of(dtype), count) for _ in range(hosts)]


def start_all(
    network: Network, number: int, call: Call | list[Array], delays: Sequence[int] = ()
) -> list[Array]:
    """Start one call on every host, now or after the host's delay.

    A list of inputs means a sum. Return the outputs, which are valid after the call.
    """
    made = call if isinstance(call, Call) else Call(call)

    def start(host: int) -> None:
        start_call(network.endpoints[host], number, made, host)
        network.ranks[host].pump()

    for host in range(len(made.inputs)):
        network.at(network.now + (delays[host] if delays else 0), partial(start, host))
    return made.outputs


def all_have(network: Network, *numbers: int) -> bool:
    return all(set(numbers) <= set(events) for events in network.events)


def check(network: Network, call: Call, lanes: int = 8) -> None:
    start_all(network, 0, call)
    network.run(lambda: all_have(network, 0), within=BOUND)
    call.check_all(partial(reduced, call, lanes))


def test_only_chunks_with_nonfinite_values_are_sent_twice() -> None:
    inputs = [np.ones(640, np.float32) for _ in range(2)]
    inputs[0][100] = np.nan
    inputs[1][500] = np.inf
    network = build(2, lanes=8 + SEAL_LANES)
    check(network, Call(inputs), lanes=8 + SEAL_LANES)
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
        ("float32", "max", 252, 1, 2, 2),  # with a witness
        ("float32", "max", 253, 1, 2, 3),
        ("int32", "sum", 252, 1e6, 1, 1),
        ("int32", "sum", 252, 2e9, 2, 3),  # may wrap, and is also sent as halves
    ],
)
def test_small_messages_take_the_least_round_trips_and_no_timer(
    dtype: str, op: str, count: int, scale: float, trips: int, packets: int
) -> None:
    network = build(4, lanes=256, slots=512, link=Link(delay=100 * MICROSECOND))
    numbers = np.random.default_rng(0)
    inputs = [(numbers.uniform(-1, 1, count) * scale).astype(kind_of(dtype)) for _ in range(4)]
    check(network, Call(inputs, op=op), lanes=256)
    assert network.now == trips * 2 * 100 * MICROSECOND
    assert [rank.packets_sent for rank in network.ranks] == [packets] * 4
    assert all(e.stats()["timeouts"] == 0 for e in network.endpoints)


def test_a_broadcast_takes_one_packet_per_packetful_of_bytes() -> None:
    network = build(3, lanes=8 + SEAL_LANES)
    inputs = [np.random.default_rng(rank).integers(0, 256, 320, np.uint8) for rank in range(3)]
    check(network, Call(inputs, Collective.BROADCAST, root=1))
    assert [e.stats()["contributions"] for e in network.endpoints] == [10] * 3


@pytest.mark.parametrize("tree", [4, (2, 2)], ids=str)
def test_each_link_carries_of_a_reduce_scatter_what_is_of_others(tree: int | tuple[int, ...]) -> None:
    """A host sends the other ranks' shards and receives its own. Other chunks are only headers."""
    network = build(tree, lanes=64, slots=64)
    sizes: dict[object, collections.Counter[int]] = collections.defaultdict(collections.Counter)

    def note(name: object, data: bytes) -> bytes:
        sizes[name][len(data)] += 1
        return data

    network.tamper = note
    chunks = 5  # of a shard
    inputs = random_inputs(np.random.default_rng(1), 4, 4 * (64 - SEAL_LANES) * chunks, "int32")
    check(network, Call([each.reshape(4, -1) for each in inputs], Collective.REDUCE_SCATTER), 64)
    chunks *= 3  # these sums may wrap, so each chunk is sent as zeros and as two halves
    bare, full = 16, 16 + 4 * 64
    for host in range(4):
        assert sizes["up", host] == {full: 3 * chunks, bare: chunks}
        assert sizes["down", host] == {full: chunks, bare: 3 * chunks}
    for name in sizes.keys() - {(way, host) for way in ("up", "down") for host in range(4)}:
        up = name[0] == "trunk up"  # type: ignore[index]
        assert sizes[name] == ({full: 4 * chunks} if up else {full: 2 * chunks, bare: 2 * chunks})


def mismatches(network: Network) -> list[str]:
    """Run until all ranks know of their different calls, and return their messages."""

    def ends() -> list[list[tuple[str, str]]]:
        return [[event for event in events if event[0] != "stalled"] for events in network.events]

    network.run(lambda: all(ends()), within=10 * SECOND)
    for [(kind, _)], endpoint in zip(ends(), network.endpoints, strict=True):
        assert kind == "mismatch"
        assert endpoint.deadline() is None
        assert endpoint.transmit(network.now) is None
    return [message for [(_, message)] in ends()]


@settings(max_examples=30, deadline=None)
@given(data=st.data(), tree=st.sampled_from([2, (1, 2)]))
def test_ranks_that_call_different_things_all_find_out(
    data: st.DataObject, tree: int | tuple[int, ...]
) -> None:
    network = build(tree, link=Link(loss=0.1), seed=data.draw(st.integers(0, 2**32)))
    calls = st.tuples(
        st.integers(0, 2), st.sampled_from(OPS), st.integers(1, 200), st.sampled_from(["f4", "i4"])
    )
    usual, other = data.draw(st.lists(calls, min_size=2, max_size=2, unique=True))
    odd_one = data.draw(st.integers(0, len(network.ranks) - 1))
    for host, rank in enumerate(network.ranks):
        index, op, count, dtype = other if host == odd_one else usual
        rank.machine.start(index, op, np.ones(count, dtype), np.ones(count, dtype))
        rank.pump()
    assert all("all ranks must make the same calls" in message for message in mismatches(network))


def test_roots_that_differ_are_found() -> None:
    network = build(3)
    for host, rank in enumerate(network.ranks):
        call = Call([np.zeros(10, np.int32)] * 3, Collective.BROADCAST, root=min(host, 1), in_place=True)
        start_call(rank.machine, 0, call, host)
        rank.pump()
    for host, message in enumerate(mismatches(network)):
        assert f"broadcast #0 of 10 int32 from rank {min(host, 1)}" in message


def test_what_a_host_spreads_reaches_all_others_and_crosses_each_trunk_once() -> None:
    """The switches have three levels."""
    network = build(((2, 1), (1, 1)), lanes=64)
    hosts, switches = range(5), len(list(network.root.nodes()))
    carried: list[tuple[tuple[str, int], Packet | None]] = []

    def note(name: object, data: bytes) -> bytes:
        carried.append((name, Packet.parse(data)))  # type: ignore[arg-type]
        return data

    network.tamper = note
    for sender in hosts:
        carried.clear()
        child = child_of(network.root, sender, hosts)
        sent = Packet(SPREAD, 0, GROUP, child, flags=0, slot=sender, round=sender, mark=1, lanes=bytes(1024))
        network.from_host(sender, sent.encode())
        network.drain()
        down = {number: packet for (way, number), packet in carried if way == "down"}
        assert down == {
            host: replace(sent, child=child_of(network.root, host, hosts)) for host in hosts if host != sender
        }
        assert sorted(number for (way, number), _ in carried if way != "down") == [*range(1, switches)]
        assert len(carried) == len(down) + switches - 1
