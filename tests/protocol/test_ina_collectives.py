# SPDX-License-Identifier: Apache-2.0
"""Collectives other than allreduce through an aggregating switch in virtual time, held to the oracle."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol.network import MILLISECOND, SECOND, Action, Link, Network, build
from protocol.oracle import SEAL_LANES, expected
from protocol.test_ina import LINKS, OPS, STARTS, TREES, all_have, random_inputs, spoil

from railweave._native.collectives import Collective

Array = npt.NDArray[Any]
BOUND = 300 * SECOND
REDUCED = ("float32", "float16", "bfloat16", "int32")
MOVED = ("uint8", "uint16", "int32", "float64")  # items of every size; uint16 stands for what has two bytes


@dataclass(frozen=True)
class Call:
    """One collective of all ranks; the rail carries `count` elements from `offset` on of `whole`."""

    collective: Collective
    dtype: str
    whole: int
    offset: int
    count: int
    op: str = "sum"
    root: int = 0
    in_place: bool = False

    @property
    def part(self) -> slice:
        return slice(self.offset, self.offset + self.count)


def bits(values: Array) -> Array:
    """Without NaNs, and without ml_dtypes' types, which only numpy knows."""
    return values.view(f"u{values.dtype.itemsize}")


def carried(values: Array) -> Array:
    """As endpoints take it."""
    flat = values.reshape(-1)
    return flat.view(np.uint16) if flat.dtype.name == "bfloat16" else flat


class Rank:
    """Input and output of one rank; in place they share what they may."""

    def __init__(self, call: Call, rank: int, values: Array, ranks: int) -> None:
        wide = (ranks, call.whole)
        gathers = call.collective == Collective.ALL_GATHER
        self.input = values
        self.output = np.full(wide if gathers else call.whole, 7).astype(values.dtype)
        if call.in_place and gathers:
            self.output[rank] = values
            self.input = self.output[rank]
        elif call.in_place and call.collective == Collective.REDUCE_SCATTER:
            self.output = self.input[rank]
        elif call.in_place:
            self.output = self.input
        self.before = self.output.copy()


def inputs_of(generator: np.random.Generator, call: Call, ranks: int, nonfinite: bool = False) -> list[Array]:
    if call.collective != Collective.REDUCE_SCATTER:
        raw = generator.integers(0, 256, (ranks, call.whole * np.dtype(call.dtype).itemsize), np.uint8)
        return [each.view(call.dtype) for each in raw]
    shards = random_inputs(generator, ranks, ranks * call.whole, call.dtype)
    if nonfinite and call.dtype != "int32":
        spoil(generator, shards, 0.05)
    return [each.reshape(ranks, call.whole) for each in shards]


def wanted(call: Call, inputs: list[Array], lanes: int) -> list[Array]:
    """What the part holds at the end, by rank. Chunks of a reduce-scatter have lanes of one shard each."""
    ranks = len(inputs)
    match call.collective:
        case Collective.ALL_GATHER:
            return [np.stack([given[call.part] for given in inputs])] * ranks
        case Collective.BROADCAST:
            return [inputs[call.root][call.part]] * ranks
    wide = call.collective is Collective.ALL_REDUCE
    return [
        expected([given[rank, call.part] for given in inputs], call.op, lanes, wide) for rank in range(ranks)
    ]


def start(network: Network, index: int, call: Call, inputs: list[Array], delays: list[int]) -> list[Rank]:
    ranks = [Rank(call, rank, values.copy(), len(inputs)) for rank, values in enumerate(inputs)]

    def begin(host: int) -> None:
        rank = ranks[host]
        network.endpoints[host].start_part(
            index, call.op, carried(rank.input), carried(rank.output), call.collective, call.root, host,
            call.whole, call.offset, call.count,
        )  # fmt: skip
        network.pump(host)

    for host, delay in enumerate(delays):
        network.at(network.now + delay, partial(begin, host))
    return ranks


def check(call: Call, ranks: list[Rank], want: list[Array]) -> None:
    for rank, result in zip(ranks, want, strict=True):
        got = np.ascontiguousarray(rank.output[..., call.part])
        np.testing.assert_array_equal(bits(got), bits(np.ascontiguousarray(result)))
        rank.output[..., call.part] = rank.before[..., call.part]
        np.testing.assert_array_equal(bits(rank.output), bits(rank.before))  # nothing beside the part


def run(network: Network, calls: list[Call], generator: np.random.Generator, lanes: int) -> None:
    ranks = len(network.endpoints)
    started = []
    for index, call in enumerate(calls):
        inputs = inputs_of(generator, call, ranks, nonfinite=bool(generator.integers(2)))
        delays = [index * 40 * MILLISECOND + int(late) for late in generator.integers(0, MILLISECOND, ranks)]
        started.append((call, start(network, index, call, inputs, delays), wanted(call, inputs, lanes)))
    network.run(lambda: all_have(network, *range(len(calls))), within=BOUND)
    for each in started:
        check(*each)
    network.drain()
    assert all(endpoint.idle for endpoint in network.endpoints)


@st.composite
def calls(draw: st.DrawFn, ranks: int, longest: int) -> Call:
    collective = draw(
        st.sampled_from([Collective.REDUCE_SCATTER, Collective.ALL_GATHER, Collective.BROADCAST])
    )
    reduces = collective == Collective.REDUCE_SCATTER
    whole = draw(st.integers(1, longest))
    offset = draw(st.sampled_from([0, whole // 3]))
    return Call(
        collective,
        dtype=draw(st.sampled_from(REDUCED if reduces else MOVED)),
        whole=whole,
        offset=offset,
        count=draw(st.integers(1, whole - offset)),
        op=draw(st.sampled_from(OPS)) if reduces else "sum",
        root=draw(st.integers(0, ranks - 1)) if collective == Collective.BROADCAST else 0,
        in_place=draw(st.booleans()),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), tree=TREES, link=LINKS, start=STARTS, seed=st.integers(0, 2**32))
def test_any_schedule_gives_the_oracles_bits(
    data: st.DataObject, tree: int | tuple[int, ...], link: Link, start: int, seed: int
) -> None:
    lanes = SEAL_LANES + data.draw(st.sampled_from([1, 4, 8]), "lanes")
    slots = data.draw(st.sampled_from([1, 2, 8, 32]), "slots")
    network = build(tree, slots=slots, lanes=lanes, link=link, seed=seed, start=start)
    mine = data.draw(st.lists(calls(len(network.endpoints), 5 * lanes), min_size=1, max_size=3), "calls")
    run(network, mine, np.random.default_rng(seed), lanes)


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("op", OPS)
def test_the_compiled_program_scatters(dtype: str, op: str) -> None:
    call = Call(Collective.REDUCE_SCATTER, dtype, whole=150, offset=0, count=150, op=op)
    run(build((2, 1), lanes=64, engine=True), [call], np.random.default_rng(3), 64)


@pytest.mark.parametrize("tree", [4, (2, 2)], ids=str)
@pytest.mark.parametrize("engine", [False, True], ids=["model", "program"])
def test_each_link_carries_of_a_reduce_scatter_what_is_of_others(
    tree: int | tuple[int, ...], engine: bool
) -> None:
    """Up: the other ranks' shards. Down: the own one. In place of the rest there is a header per chunk."""
    network = build(tree, lanes=64, slots=64, engine=engine)
    sizes: dict[object, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    send = network.send

    def note(link_name: object, arrive: Action, size: int = 0) -> None:
        sizes[link_name][size] += 1
        send(link_name, arrive, size)

    network.send = note  # type: ignore[method-assign]
    chunks = 5  # of a shard
    whole = (64 - SEAL_LANES) * chunks
    run(network, [Call(Collective.REDUCE_SCATTER, "int32", whole, 0, whole)], np.random.default_rng(1), 64)
    chunks *= 3  # sums of these integers may wrap: zeros in their place, then both halves
    bare, full = 16, 16 + 4 * 64
    for host in range(4):
        assert sizes["up", host] == {full: 3 * chunks, bare: chunks}
        assert sizes["down", host] == {full: chunks, bare: 3 * chunks}
    for name in sizes.keys() - {(way, host) for way in ("up", "down") for host in range(4)}:
        up = name[0] == "trunk up"  # type: ignore[index]
        assert sizes[name] == ({full: 4 * chunks} if up else {full: 2 * chunks, bare: 2 * chunks})


@pytest.mark.parametrize("collective", [Collective.ALL_GATHER, Collective.BROADCAST])
@pytest.mark.parametrize("dtype", MOVED)
def test_the_compiled_program_hands_on_any_bits(collective: Collective, dtype: str) -> None:
    call = Call(
        collective, dtype, whole=300, offset=1, count=299, root=2 * (collective == Collective.BROADCAST)
    )
    run(build((2, 1), lanes=64, engine=True), [call], np.random.default_rng(3), 64)


def test_a_broadcast_takes_one_packet_per_packetful_of_bytes() -> None:
    network = build(3, lanes=8 + SEAL_LANES)
    run(network, [Call(Collective.BROADCAST, "uint8", 320, 0, 320, root=1)], np.random.default_rng(1), 12)
    assert [e.stats()["contributions"] for e in network.endpoints] == [10] * 3


def test_roots_that_differ_are_found() -> None:
    network = build(3)
    for host, endpoint in enumerate(network.endpoints):
        mine = np.zeros(10, np.int32)
        endpoint.start_part(0, "sum", mine, mine, Collective.BROADCAST, min(host, 1), host, 10, 0, 10)
        network.pump(host)
    network.run(lambda: all(network.events), within=10 * SECOND)
    for rank, events in enumerate(network.events):
        [(kind, message)] = [event for event in events if event[0] != "stalled"]
        assert kind == "mismatch"
        assert f"broadcast #0 of 10 int32 from rank {min(rank, 1)}" in message
