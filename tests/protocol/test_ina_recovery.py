# SPDX-License-Identifier: Apache-2.0
"""How endpoints handle loss, late ranks, silence, and packets that nobody should have sent."""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from protocol import network as networks
from protocol.calls import assert_bits
from protocol.network import GROUP, Network, tree_of
from protocol.oracle import expected
from protocol.switch_model import MISMATCH, OWNER, PROBE, RESULT, Packet
from protocol.test_ina import all_have, random_inputs, start_all
from protocol.virtual_time import MICROSECOND, MILLISECOND, SECOND, Link, Process, World

from railweave._native.collectives import Collective
from railweave._rigs import ina

# Seals only take lanes. They change neither losses nor times.
build = partial(networks.build, sealed=False)
join = partial(networks.join, sealed=False)

LANES = 8
PACKET_TIME = 87 * MICROSECOND  # a 256-lane packet on a link of 100 Mbit/s


def run_sum(network: Network, count: int, op_index: int = 0, delays: tuple[int, ...] = ()) -> int:
    """Run one int32 SUM. Return the virtual time that it took."""
    inputs = random_inputs(np.random.default_rng(op_index), len(network.endpoints), count, "int32")
    begin = network.now
    outputs = start_all(network, op_index, inputs, delays)
    network.run(lambda: all_have(network, op_index), within=100 * SECOND)
    assert_bits(outputs, expected(inputs, "sum", LANES))
    return network.now - begin


def total(network: Network, name: str) -> int:
    return sum(endpoint.stats()[name] for endpoint in network.endpoints)


def lose(network: Network, number: int) -> None:
    """Lose the `number`-th packet from now, counted over all links."""
    numbers = itertools.count(1)
    network.tamper = lambda _, data: None if next(numbers) == number else data


@pytest.mark.parametrize("number", [1, 10, 50])
def test_a_gap_is_repaired_without_a_timer(number: int) -> None:
    network = build(2, link=Link(delay=100 * MICROSECOND, packet_time=10 * MICROSECOND), slots=64)
    lose(network, number)
    run_sum(network, 60 * LANES)
    assert total(network, "timeouts") == 0
    assert 1 <= total(network, "retransmissions") <= 2  # one rank or both ranks resend


@pytest.mark.parametrize(("longest_wait", "repeats"), [(100 * MILLISECOND, False), (0, True)])
def test_packets_that_wait_behind_others_are_not_repeated(longest_wait: int, repeats: bool) -> None:
    """A ring of racks has the link for up to 60 ms at a time."""
    link = Link(delay=100 * MICROSECOND, packet_time=200 * MICROSECOND)
    network = build(4, link=link, slots=64, longest_wait=longest_wait)

    def wait_behind() -> None:
        network.root.asleep_until = network.now + 60 * MILLISECOND
        network.at(network.now + 80 * MILLISECOND, wait_behind)

    wait_behind()
    run_sum(network, 2000 * LANES)
    assert (total(network, "retransmissions") > 0) is repeats


@pytest.mark.parametrize("number", [1, 4])
def test_a_lost_tail_is_repaired_within_a_timeout(number: int) -> None:
    network = build(2, link=Link(delay=100 * MICROSECOND))
    run_sum(network, 100)
    lose(network, number)
    took = run_sum(network, 1, op_index=1)
    assert 5 * MILLISECOND <= took <= 6 * MILLISECOND
    assert 1 <= total(network, "retransmissions") <= 2


@pytest.mark.parametrize("late_ms", [50, 5000])
def test_a_late_rank_is_no_loss(late_ms: int) -> None:
    network = build(4, slots=256)
    run_sum(network, 2000)
    sent = total(network, "retransmissions")
    took = run_sum(network, 2000, 1, delays=(0, 0, 0, late_ms * MILLISECOND))
    assert took < (late_ms + 5) * MILLISECOND
    # The three others retry a few packets at growing intervals, so there is no storm.
    assert total(network, "retransmissions") - sent <= 3 * (20 + late_ms / 25)
    # The wait does not change their estimate of the round trip. They repair the next loss soon.
    lose(network, 1)
    assert run_sum(network, 1, op_index=2) < 10 * MILLISECOND


def test_losses_cost_little_more_than_what_is_sent_again() -> None:
    """Each link of 4 hosts loses 1 %. Ranks resend about 5 % of the contributions. The link stays busy."""
    link = Link(loss=0.01, packet_time=PACKET_TIME)
    network = build(4, slots=512, lanes=LANES, link=link, seed=3, packet_time=PACKET_TIME)
    run_sum(network, 4000 * LANES)
    chunks = 8000
    took = run_sum(network, chunks * LANES, op_index=1)
    assert total(network, "retransmissions") / 4 < 0.08 * (chunks + 4000)
    assert took < chunks * PACKET_TIME / 0.89


@pytest.mark.parametrize(("late_ms", "slots"), [(0, (512, 512)), (300, (128, 1024))], ids=str)
def test_two_jobs_share_a_link_equally(late_ms: int, slots: tuple[int, int]) -> None:
    """Each job gets 50 ± 5 % of a full link, for any start times and numbers of slots."""
    root = tree_of(2, LANES)
    jobs = [
        join(root, (0, 1), slots[job], LANES, group=GROUP + job, base=4096 * job, packet_time=PACKET_TIME)
        for job in range(2)
    ]
    network = Network([*jobs[0], *jobs[1]], root, Link(packet_time=PACKET_TIME), seed=1, hosts=(0, 1, 0, 1))
    values = [np.zeros(100_000 * LANES, np.int32) for _ in network.ranks]

    def start(rank: int) -> None:
        network.endpoints[rank].start(0, "sum", values[rank], values[rank])
        network.ranks[rank].pump()

    for rank in range(4):
        network.at(late_ms * MILLISECOND if rank >= 2 else 0, partial(start, rank))

    def results() -> NDArray[np.int64]:
        return np.array([network.endpoints[rank].stats()["results"] for rank in (0, 2)])

    counted, ends = [], [(late_ms + 200) * MILLISECOND, (late_ms + 900) * MILLISECOND]
    for end in ends:
        network.run_until(end)
        counted.append(results())
    share = counted[1] - counted[0]
    assert 0.45 <= share[0] / share.sum() <= 0.55
    assert share.sum() * PACKET_TIME > 0.97 * (ends[1] - ends[0])
    assert total(network, "retransmissions") == 0


def test_the_window_leaves_a_short_queue_and_chunks_go_in_lots() -> None:
    """Lots take a millisecond. Single packets would wake every rank and the switch too often."""
    network = build(2, slots=2048, lanes=LANES, link=Link(packet_time=PACKET_TIME), packet_time=PACKET_TIME)
    instants: Counter[int] = Counter()
    rank = network.ranks[0]
    transmit = rank.transmit
    rank.transmit = lambda packet: (instants.update([network.now]), transmit(packet))  # type: ignore[method-assign]
    assert run_sum(network, 12_000 * LANES) < 12_000 * PACKET_TIME / 0.98
    assert total(network, "retransmissions") == 0
    queue_ms = [e.stats()["window"] * PACKET_TIME / MILLISECOND for e in network.endpoints]
    assert all(6 <= each <= 10 for each in queue_ms)
    sent, lot = list(instants.values()), MILLISECOND // PACKET_TIME
    assert len([size for size in sent if size % lot == 0]) > 0.9 * len(sent)
    assert sum(sent) / len(sent) >= lot


class BusyNetwork(Network):
    """Hosts and a switch on two processors. A neighbour takes each of them away for 30 % of the time."""

    calm_from = 60 * SECOND  # afterwards the processors are always there

    def __init__(self, hosts: int, seed: int) -> None:
        """Begin with both processors present."""
        root = tree_of(hosts, LANES)
        endpoints = join(root, range(hosts), 4096, LANES, packet_time=PACKET_TIME)
        super().__init__(endpoints, root, Link(packet_time=PACKET_TIME), seed)
        for processor in range(2):
            first = int(self.random.uniform(0, 30) * MILLISECOND)
            stand = partial(self._stands, processor)
            self.at(first, partial(self.take_core, stand, 0.3, self.calm_from))

    def _stands(self, processor: int, duration: int) -> None:
        """Take a processor away. The second one also runs the switch."""
        if self.now >= self.calm_from:
            return
        for rank in self.ranks:
            if rank.host % 2 == processor:
                rank.sleep(duration)
        if processor == 1:
            self.root.asleep_until = self.now + duration


def test_a_link_is_used_although_processors_are_away_and_its_queue_is_short_afterwards() -> None:
    chunks = 4000  # 0.35 s on the link
    network = BusyNetwork(4, seed=1)
    run_sum(network, chunks * LANES)
    took = run_sum(network, chunks * LANES, 1)
    assert chunks * PACKET_TIME / took > 0.85
    assert total(network, "retransmissions") < 0.02 * 4 * 2 * chunks
    assert max(endpoint.stats()["window"] for endpoint in network.endpoints) * PACKET_TIME > 15 * MILLISECOND
    network.calm_from = network.now
    network.run_until(network.now + 12 * SECOND)
    run_sum(network, chunks * LANES, 2)
    calm = [endpoint.stats()["window"] * PACKET_TIME / MILLISECOND for endpoint in network.endpoints]
    assert all(6 <= each <= 10 for each in calm)


class Path(Process):
    """An endpoint that waits for another rank, on a path whose switch answers probes, except in outages."""

    def __init__(self, **options: int) -> None:
        endpoint = ina.Endpoint(group=GROUP, child=0, slots=4, lanes=LANES, world_size=2, **options)
        super().__init__(World(seed=0), endpoint)
        values = np.ones(5, np.float32)
        endpoint.start(0, "sum", values, values)
        self.answers_from = 0  # answers to earlier probes come then, others after a millisecond
        self.told: list[tuple[int, object]] = []  # when the endpoint reported the path as dead
        self.pump()

    def run_until(self, when: int, *, answers_from: int = 0) -> None:
        self.answers_from = answers_from
        self.world.run_until(when)

    def transmit(self, packet: bytes) -> None:
        if packet[0] & 0xF == PROBE:
            when = max(self.world.now + MILLISECOND, self.answers_from)
            self.world.at(when, partial(self.arrive, packet))

    def event(self, event: object) -> None:
        self.told.append((self.world.now, event))


NEVER = 100 * SECOND


def test_silence_of_the_switch_is_reported_now_and_then() -> None:
    path = Path(stall_after=500 * MILLISECOND)
    path.run_until(4 * SECOND, answers_from=NEVER)
    assert [event for _, event in path.told] == [("stalled", False, False)] * len(path.told)
    assert 500 * MILLISECOND <= path.told[0][0] <= SECOND
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(path.told)]
    assert gaps
    assert all(SECOND <= gap <= 1.2 * SECOND for gap in gaps)


def test_a_path_whose_answers_come_late_is_not_dead() -> None:
    """A switch waits longer and longer for a CPU. Recent late answers make the endpoint more patient."""
    path = Path()
    path.run_until(SECOND)
    for pause in (250, 550, 1200):
        begin = path.world.now
        path.run_until(begin + 2 * SECOND, answers_from=begin + pause * MILLISECOND)
    assert path.told == []


def test_a_path_that_dies_is_dead_after_twice_its_longest_silence_lately() -> None:
    path = Path()
    path.run_until(SECOND)
    path.run_until(2 * SECOND, answers_from=1250 * MILLISECOND)
    path.run_until(6 * SECOND, answers_from=NEVER)
    assert 2500 * MILLISECOND <= path.told[0][0] <= 3 * SECOND


def test_silence_is_forgotten() -> None:
    path = Path()
    path.run_until(SECOND)
    path.run_until(2 * SECOND, answers_from=1250 * MILLISECOND)
    path.run_until(20 * SECOND)
    path.run_until(24 * SECOND, answers_from=NEVER)
    assert 300 * MILLISECOND <= path.told[0][0] - 20 * SECOND <= 700 * MILLISECOND


def test_a_rank_that_computes_is_no_dead_path() -> None:
    """One rank never comes, but the switch answers probes. So the other reports nothing and sends little."""
    network = build(2)
    values = np.ones(4, np.float32)
    network.endpoints[0].start(0, "sum", values, values)
    network.ranks[0].pump()
    network.run_until(20 * SECOND)
    assert network.events[0] == []
    assert network.endpoints[0].stats()["probes_answered"] > 10
    assert network.ranks[0].packets_sent < 20 * 40  # small packets included


def test_a_dead_trunk_is_told_from_a_dead_leaf() -> None:
    network = build((1, 1))
    network.links = {("trunk up", 1): Link(loss=1.0)}
    values = np.ones(5, np.float32)
    network.endpoints[0].start(0, "sum", values, values)
    network.ranks[0].pump()
    network.run(lambda: bool(network.events[0]), within=SECOND)
    assert network.events[0] == [("stalled", True, False)]
    network.links = {}
    network.endpoints[1].start(0, "sum", values.copy(), values.copy())
    network.ranks[1].pump()
    network.run(lambda: all_have(network, 0), within=SECOND)


def test_an_aborted_endpoint_is_silent() -> None:
    network = build(2)
    outputs = start_all(network, 0, [np.ones(500, np.float32)] * 2)
    for _ in range(5):
        network.step()
    before = [output.copy() for output in outputs]
    for endpoint in network.endpoints:
        endpoint.abort()
    network.drain()
    assert [endpoint.deadline() for endpoint in network.endpoints] == [None, None]
    assert network.events == [[], []]
    assert_bits(outputs[:1], before[0])
    assert_bits(outputs[1:], before[1])


# --- packets that nobody should have sent ---


def waiting_endpoint() -> tuple[ina.Endpoint, Packet]:
    """Return an endpoint with four chunks in flight, and the expected result of the first chunk."""
    endpoint = ina.Endpoint(group=GROUP, child=1, slots=4, lanes=2, world_size=2)
    values = np.arange(14, dtype=np.int32)
    endpoint.start(0, "sum", values, np.zeros_like(values))
    first = endpoint.transmit(0)
    assert first is not None
    while endpoint.transmit(0) is not None:
        pass
    contribution = Packet.parse(first)
    assert contribution is not None
    return endpoint, dataclasses.replace(contribution, kind=RESULT)


HOSTILE = {
    "kind": {"kind": 3},
    "group": {"group": GROUP + 1},
    "child": {"child": 0},
    "length": {"lanes": bytes(7)},
    "slot": {"slot": 8},
    "unsent": {"round": 1},
    "op": {"op": 1},
    "mark": {"mark": 1},
}


@pytest.mark.parametrize(
    ("why", "fields"), [*HOSTILE.items(), ("length", {"flags": OWNER, "lanes": b""})], ids=str
)
def test_wrong_results_are_counted_and_change_nothing(why: str, fields: dict[str, object]) -> None:
    endpoint, result = waiting_endpoint()
    endpoint.receive(dataclasses.replace(result, **fields).encode(), 1)  # type: ignore[arg-type]
    stats = endpoint.stats()
    assert {name: count for name, count in stats["refused"].items() if count} == {why: 1}
    assert stats["results"] == 0
    endpoint.receive(result.encode(), 2)
    assert endpoint.stats()["results"] == 1


def scattering_endpoint(op: str = "sum") -> tuple[ina.Endpoint, NDArray[np.int32], list[Packet]]:
    """Start rank 1 of 2 in a reduce-scatter with one packet per shard.

    Return its endpoint, its output and the results that it expects.
    """
    endpoint = ina.Endpoint(group=GROUP, child=1, slots=4, lanes=2, world_size=2)
    values, output = np.array([1, 2, 30, -40], np.int32), np.zeros(2, np.int32)
    endpoint.start_part(0, op, values, output, Collective.REDUCE_SCATTER, 0, 1, 2, 0, 2)
    others, own = (Packet.parse(endpoint.transmit(0) or b"") for _ in range(2))
    assert others is not None
    assert own is not None
    assert (len(others.lanes), others.flags, len(own.lanes), own.flags) == (8, 0, 0, OWNER)
    elsewhere = dataclasses.replace(others, kind=RESULT, flags=OWNER, lanes=b"")
    return (
        endpoint,
        output,
        [elsewhere, dataclasses.replace(own, kind=RESULT, lanes=struct.pack(">2i", 7, -70))],
    )


@pytest.mark.parametrize(("op", "reduced"), [("sum", [37, -110]), ("max", [30, -40]), ("min", [6, -40])])
def test_the_owner_adds_its_own_lanes_to_the_others(op: str, reduced: list[int]) -> None:
    endpoint, output, (elsewhere, own) = scattering_endpoint(op)
    if op == "min":
        own = dataclasses.replace(own, lanes=struct.pack(">2i", ~6, ~-7))
    endpoint.receive(own.encode(), 1)
    endpoint.receive(own.encode(), 2)
    assert endpoint.poll() is None
    endpoint.receive(elsewhere.encode(), 3)
    assert endpoint.poll() == 0
    assert output.tolist() == reduced


def test_lanes_are_taken_by_their_owner_and_by_nobody_else() -> None:
    endpoint, output, (elsewhere, own) = scattering_endpoint()
    endpoint.receive(dataclasses.replace(elsewhere, lanes=bytes(8)).encode(), 1)
    endpoint.receive(dataclasses.replace(own, lanes=b"").encode(), 1)
    endpoint.receive(dataclasses.replace(elsewhere, flags=0).encode(), 1)
    stats = endpoint.stats()
    assert (stats["refused"]["length"], stats["results"]) == (3, 0)
    endpoint.receive(elsewhere.encode(), 2)
    endpoint.receive(own.encode(), 2)
    assert output.tolist() == [37, -110]


def test_a_mismatch_is_told_with_lanes_and_without() -> None:
    for lanes in (b"", bytes(8)):
        endpoint, _, (elsewhere, _) = scattering_endpoint()
        told = dataclasses.replace(elsewhere, flags=OWNER | MISMATCH, lanes=lanes)
        endpoint.receive(told.encode(), 1)
        kind, _ = endpoint.poll()  # type: ignore[misc]
        assert kind == "mismatch"


def test_short_and_foreign_versions_are_counted() -> None:
    endpoint, result = waiting_endpoint()
    for size in range(16):
        endpoint.receive(result.encode()[:size], 1)
    endpoint.receive(b"\x21" + result.encode()[1:], 1)
    refused = endpoint.stats()["refused"]
    assert (refused["short"], refused["version"]) == (16, 1)


def test_results_of_earlier_rounds_are_stale() -> None:
    endpoint, result = waiting_endpoint()
    endpoint.receive(result.encode(), 1)
    endpoint.receive(result.encode(), 2)
    assert endpoint.transmit(3) is not None  # the slot's other copy
    endpoint.receive(result.encode(), 4)
    assert endpoint.stats()["results"] == 1
    assert endpoint.stats()["duplicates"] == 2


def test_answers_to_probes_that_were_never_sent_are_refused() -> None:
    endpoint, _ = waiting_endpoint()
    for number in (0, 1, 2**31):
        endpoint.receive(struct.pack(">BBHBBHII", 0x12, 0, GROUP, 1, 0, 0, number, 0), 1)
    assert endpoint.stats()["refused"]["unsent"] == 3


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_packet_can_break_an_endpoint(data: st.DataObject) -> None:
    endpoint, result = waiting_endpoint()
    for _ in range(data.draw(st.integers(1, 20))):
        packet = bytearray(result.encode())
        for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(packet) - 1), st.integers(0, 255)))):
            packet[at] = value
        endpoint.receive(bytes(packet[: data.draw(st.integers(0, len(packet)))]), 1)
    stats = endpoint.stats()
    assert stats["results"] <= stats["contributions"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 12}, "power of two"),
        ({"slots": 0}, "power of two"),
        ({"slots": 16384}, "power of two"),
        ({"lanes": 0}, "lanes"),
        ({"lanes": 4096}, "lanes"),
        ({"child": 31}, "child"),
        ({"world_size": 0}, "world size"),
        ({"world_size": 1024}, "world size"),
    ],
)
def test_options_outside_the_protocol_are_refused(options: dict[str, int], message: str) -> None:
    usual = {"group": GROUP, "child": 0, "slots": 8, "lanes": 8, "world_size": 2}
    with pytest.raises(ValueError, match=message):
        ina.Endpoint(**usual | options)


@pytest.mark.parametrize(
    ("given", "out", "message"),
    [
        (np.zeros(0, np.float32), np.zeros(0, np.float32), "at least one element"),
        (np.zeros(2, np.float32), np.zeros(3, np.float32), "dtype or length"),
        (np.zeros(2), np.zeros(2), "switches reduce float32, float16, bfloat16 and int32"),
    ],
    ids=["empty", "lengths", "type"],
)
def test_slices_that_make_no_sense_are_refused(given: NDArray[Any], out: NDArray[Any], message: str) -> None:
    endpoint, _ = waiting_endpoint()
    with pytest.raises(ValueError, match=message):
        endpoint.start(1, "sum", given, out)
