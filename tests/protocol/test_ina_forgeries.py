# SPDX-License-Identifier: Apache-2.0
"""Packets that a link damages or that a stranger forges. No rank accepts a wrong number."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from protocol.calls import Array, Call, assert_bits
from protocol.network import GROUP, SECRET, Network, build, join, tree_of
from protocol.oracle import expected
from protocol.switch_model import MISMATCH, NONFINITE, OVERFLOW, RESULT, Packet
from protocol.test_ina import all_have, random_inputs, start_all
from protocol.test_ina_moves import move
from protocol.virtual_time import MICROSECOND, MILLISECOND, SECOND, Link

from railweave._rigs import ina

LANES = 12
RANKS = 3
BOUND = 60 * SECOND
KINDS = [(op, dtype) for op in ("sum", "max") for dtype in ("float32", "int32")]

Change = Callable[[Packet], Packet | None]


class Tampered(Network):
    """A network in which `change` alters the packets to host 0, or with `way` "up" the packets from it."""

    change: Change = staticmethod(lambda packet: packet)
    way = "down"
    tampered = 0

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.tamper = self._tamper

    def _tamper(self, name: object, data: bytes) -> bytes:
        packet = Packet.parse(data) if name == (self.way, 0) else None
        changed = self.change(packet) if packet is not None and packet.kind <= RESULT else None
        self.tampered += changed is not None and changed != packet
        return data if changed is None else changed.encode()


REDO_WITHIN = 400 * MILLISECOND
SPOILT = ("stalled", "spoilt")


class Moved(Tampered):
    """A network that moves the group when a rank reports a wrong sum."""

    moves = 0
    moving = False

    def step(self) -> bool:
        if any(SPOILT in events for events in self.events) and not self.moving:
            self.moves, self.moving = self.moves + 1, True
            move(self, GROUP + self.moves, 16, [len(self.ranks)], LANES)
            self.moving = False
            for events in self.events:
                events[:] = [event for event in events if event != SPOILT]
        return super().step()


def tampered(
    change: Change, way: str = "down", ranks: int = RANKS, kind: type[Tampered] = Tampered, **options: int
) -> Tampered:
    root = tree_of(ranks, LANES)
    network = kind(join(root, range(ranks), 16, LANES, **options), root, Link(), 1)
    network.change, network.way = change, way  # type: ignore[method-assign]
    return network


def flip(generator: random.Random, share: float) -> Change:
    """Flip one bit in the lanes of a share of the packets."""

    def change(packet: Packet) -> Packet:
        if not packet.lanes or generator.random() >= share:
            return packet
        lanes = bytearray(packet.lanes)
        lanes[generator.randrange(len(lanes))] ^= 1 << generator.randrange(8)
        return replace(packet, lanes=bytes(lanes))

    return change


def outcome(network: Tampered, op: str, inputs: list[Array]) -> list[object]:
    """Run one call. Return "right" or the kind of failure by rank. A wrong number raises AssertionError."""
    outputs = start_all(network, 0, Call(inputs, op=op))

    def over() -> bool:
        return all(any(event == 0 or is_failure(event) for event in events) for events in network.events)

    try:
        network.run(over, BOUND)
    except AssertionError:  # a failed rank answers nobody, so the others may never complete
        assert any(is_failure(event) for events in network.events for event in events)
    wanted = expected(inputs, op, LANES)
    ends: list[object] = []
    for events, output in zip(network.events, outputs, strict=True):
        if 0 in events:
            assert_bits([output], wanted)
            ends.append("right")
        else:
            ends.append(next((event[0] for event in events if is_failure(event)), "late"))
    return ends


def is_failure(event: object) -> bool:
    return isinstance(event, tuple) and event[0] != "stalled"


def refused(network: Network, why: str, rank: int = 0) -> int:
    return int(network.endpoints[rank].stats()["refused"][why])


def inputs_of(dtype: str, count: int = 200) -> list[Array]:
    return random_inputs(np.random.default_rng(7), RANKS, count, dtype)


@pytest.mark.parametrize(("op", "dtype"), KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_damaged_on_the_last_link_is_asked_for_again(op: str, dtype: str, seed: int) -> None:
    network = tampered(flip(random.Random(seed), 0.2))
    ends = outcome(network, op, inputs_of(dtype))
    assert network.tampered
    if op == "sum" and dtype == "int32":  # these sums use no maxima, whose checks come later
        assert ends == ["right"] * RANKS
        assert refused(network, "seal") >= network.tampered - network.endpoints[0].stats()["duplicates"]
    assert "mismatch" not in ends


@pytest.mark.parametrize(("op", "dtype"), KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_damaged_before_the_switch_is_nobodys_result(op: str, dtype: str, seed: int) -> None:
    network = tampered(flip(random.Random(seed), 0.2), "up")
    ends = outcome(network, op, inputs_of(dtype))
    assert network.tampered
    assert "silent" in ends or op == "max", "of lanes that are no maximum nothing is left"
    assert "mismatch" not in ends


def moved(change: Change, way: str = "up") -> Tampered:
    return tampered(change, way, kind=Moved, redo_within=REDO_WITHIN)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("way", ["down", "up"])
@pytest.mark.parametrize("seed", range(2))
def test_a_sum_that_the_switch_has_wrong_is_made_again_after_a_move(dtype: str, way: str, seed: int) -> None:
    network = moved(flip(random.Random(seed), 0.2), way)
    # All ranks have the same exponents, so that a damaged exponent cannot hide the greatest.
    inputs = [(np.linspace(1, 1.9, 500) + rank / 100).astype(dtype) for rank in range(RANKS)]
    assert outcome(network, "sum", inputs) == ["right"] * RANKS
    stats = network.endpoints[0].stats()
    assert stats["moves"] > 0 or way == "down"
    assert stats["refused"]["seal"] > 0


def test_a_maximum_that_only_a_damaged_packet_had_ends_the_rail() -> None:
    """Only the rank with the greatest value sees that the maximum is too small. Others have used it."""
    inputs = [np.full(40, 2.0 ** (10 * (rank == 0)), np.float32) for rank in range(RANKS)]
    network = moved(once(with_lane(0, -(20 << 14)), is_maximum))
    assert "silent" in outcome(network, "sum", inputs)


def test_a_mark_that_is_damaged_on_its_way_to_the_switch_is_no_mismatch() -> None:
    network = moved(once(lambda packet: replace(packet, mark=packet.mark ^ 1 << 20), has_lanes))
    assert outcome(network, "sum", inputs_of("int32", 8)) == ["right"] * RANKS
    assert network.endpoints[0].stats()["moves"] == 1


def test_damage_to_a_chunk_that_all_hold_causes_no_move() -> None:
    """After a move the lanes of such a chunk are unused. Its result only frees the slot."""
    spoilt: list[tuple[int, int]] = []

    def change(packet: Packet) -> Packet:
        here = network.moves, packet.slot
        if here not in {(0, 0), (1, 2)} or here in spoilt or not packet.lanes:
            return packet
        spoilt.append(here)
        return with_lane(2, 1)(packet) or packet

    network = moved(change)
    assert outcome(network, "sum", inputs_of("int32", 2 * (LANES - 4))[:RANKS]) == ["right"] * RANKS
    network.drain()
    assert spoilt == [(0, 0), (1, 2)]
    assert network.endpoints[0].stats()["moves"] == 1


def test_a_slot_that_a_damaged_round_keeps_silent_is_left() -> None:
    """The switch refuses rounds older than the damaged one. A rank that has seen damage asks for a move."""
    network = moved(once(with_lane(2, 1), has_lanes), "down")
    inputs = [np.full(8, rank, np.int32) for rank in range(RANKS)]
    assert outcome(network, "sum", inputs) == ["right"] * RANKS
    assert network.endpoints[0].stats()["moves"] == 0
    network.way = "up"
    network.change = once(  # type: ignore[method-assign]
        lambda packet: replace(packet, round=packet.round + 1000), has_lanes
    )
    outputs = start_all(network, 1, inputs)
    network.run(lambda: all_have(network, 1), BOUND)
    assert_bits(outputs, expected(inputs, "sum", LANES))
    assert network.endpoints[0].stats()["moves"] == 1


def test_ranks_that_call_different_things_still_differ_after_a_move() -> None:
    network = moved(lambda packet: packet)
    for rank, endpoint in enumerate(network.endpoints):
        values = np.ones(8 if rank == 0 else 7, np.int32)
        endpoint.start(0, "sum", values, values.copy())
        network.ranks[rank].pump()
    network.run(lambda: any(any(map(is_failure, events)) for events in network.events), BOUND)
    assert {event[0] for events in network.events for event in events} == {"mismatch"}  # type: ignore[index]
    assert network.endpoints[0].stats()["moves"] == 3


def test_without_a_move_a_wrong_sum_fails_in_time() -> None:
    network = tampered(with_lane(2, 1), "up", redo_within=REDO_WITHIN)
    assert "silent" in outcome(network, "sum", inputs_of("int32", 8))
    assert REDO_WITHIN <= network.now < 2 * REDO_WITHIN


def test_a_sum_that_is_wrong_after_every_move_fails() -> None:
    network = moved(lambda packet: with_lane(2, 1)(packet) if packet.lanes else packet)
    assert "silent" in outcome(network, "sum", inputs_of("int32", 8))
    assert network.endpoints[0].stats()["moves"] == 32


def once(change: Change, where: Callable[[Packet], bool]) -> Change:
    done = []

    def changed(packet: Packet) -> Packet:
        if done or not where(packet):
            return packet
        done.append(packet)
        return change(packet) or packet

    return changed


def with_lane(lane: int, add: int) -> Change:
    def change(packet: Packet) -> Packet:
        lanes = np.frombuffer(packet.lanes, ">i4").copy()
        lanes[lane] += add
        return replace(packet, lanes=lanes.tobytes())

    return change


def has_lanes(packet: Packet) -> bool:
    return bool(packet.lanes)


def is_maximum(packet: Packet) -> bool:
    return packet.op == 1 and bool(packet.lanes)


@pytest.mark.parametrize(
    ("way", "holder", "add", "end"),
    [
        ("down", 0, -7, {"right"}),  # refused by the rank that has a greater value
        ("down", 1, 1, {"silent"}),  # this rank cannot find the error alone; the witnesses find it
        ("down", 1, -7, {"silent"}),
        ("up", 1, 1000, {"silent"}),  # the damaged maximum looks possible to rank 0
    ],
)
def test_a_wrong_maximum_is_found(way: str, holder: int, add: int, end: set[str]) -> None:
    """`holder` has the greatest value, and rank 0's packet is damaged."""
    inputs = [np.full(8, 100 * (rank == holder), np.int32) for rank in range(RANKS)]
    network = tampered(once(with_lane(2, add), is_maximum), way)
    ends = set(outcome(network, "max", inputs))
    assert ends == end if way == "down" else end <= ends
    assert refused(network, "seal") == 1 or holder != 0


@pytest.mark.parametrize("way", ["down", "up"])
@pytest.mark.parametrize("add", [1, 1 << 14])
def test_an_exponent_that_no_rank_has_is_refused(way: str, add: int) -> None:
    """The tag of an exponent is in the lower 14 bits of its lane."""
    inputs = [np.linspace(1, 300 + rank, 40, dtype=np.float32) for rank in range(RANKS)]
    network = tampered(once(with_lane(0, add), is_maximum), way)
    ends = outcome(network, "sum", inputs)
    assert network.tampered == 1
    if way == "down":
        assert ends == ["right"] * RANKS
        assert refused(network, "seal") == 1
    else:
        assert "silent" in ends


@pytest.mark.parametrize("flag", [NONFINITE, OVERFLOW])
@pytest.mark.parametrize(("op", "dtype"), KINDS[1:3])
def test_flags_in_headers_change_no_result(op: str, dtype: str, flag: int) -> None:
    network = tampered(lambda packet: replace(packet, flags=packet.flags ^ flag))
    ends = outcome(network, op, inputs_of(dtype))
    assert "mismatch" not in ends


def blind(network: Network, packet: Packet) -> None:
    """Deliver a stranger's packet. Its slot and round are right, and its mark is guessed."""
    network.endpoints[0].receive(packet.encode(), network.now)
    network.ranks[0].pump()


@pytest.mark.parametrize(("flags", "op", "dtype"), [(0, *KINDS[0]), (MISMATCH, *KINDS[3])])
def test_a_thousand_guesses_change_nothing(op: str, dtype: str, flags: int) -> None:
    inputs = inputs_of(dtype)
    network = tampered(lambda packet: packet)
    outputs = start_all(network, 0, Call(inputs, op=op))
    generator = np.random.default_rng(3)
    while network.endpoints[0].stats()["contributions"] < 5:
        network.step()
    for number in range(1000):
        lanes = generator.integers(0, 256, 4 * LANES, np.uint8).tobytes()
        mark = int(generator.integers(0, 2**32))
        blind(network, Packet(RESULT, number % 2, 7, 0, flags, number % 4 * 2, 0, mark, lanes))
    network.run(lambda: all_have(network, 0), BOUND)
    assert_bits(outputs, expected(inputs, op, LANES))
    assert refused(network, "mark") > 100


def test_guessed_marks_are_no_damage_of_the_chunk() -> None:
    """A stranger's guesses do not count as tries of a chunk. The link then damages the chunk once."""
    inputs = inputs_of("int32", 8)
    network = tampered(once(with_lane(2, 1), has_lanes))
    outputs = start_all(network, 0, inputs)
    while network.endpoints[0].stats()["contributions"] < 1:
        network.step()
    for mark in range(10):
        blind(network, Packet(RESULT, 0, GROUP, 0, 0, 0, 0, mark, bytes(4 * LANES)))
    assert refused(network, "mark") == 10
    network.run(lambda: all_have(network, 0), BOUND)
    assert_bits(outputs, expected(inputs, "sum", LANES))
    assert refused(network, "seal") == 1


def test_a_mismatch_is_believed_when_it_comes_twice() -> None:
    """A single flipped bit in the flags does not end the call."""
    inputs = inputs_of("int32", 8)
    network = tampered(once(lambda packet: replace(packet, flags=packet.flags | MISMATCH), lambda _: True))
    assert outcome(network, "sum", inputs) == ["right"] * RANKS
    network = tampered(lambda packet: replace(packet, flags=packet.flags | MISMATCH))
    assert outcome(network, "sum", inputs)[0] == "mismatch"


def test_results_of_other_chunks_do_not_pass() -> None:
    """The link replaces the lanes of a result by those of an earlier result."""
    kept: list[Packet] = []

    def replay(packet: Packet) -> Packet:
        kept.append(packet)
        older = [each for each in kept[:-1] if each.lanes and each.op == packet.op]
        return replace(packet, lanes=older[0].lanes) if older and packet.lanes else packet

    assert outcome(tampered(replay), "sum", inputs_of("int32"))[0] == "silent"


def test_a_group_of_another_secret_is_a_group_of_strangers() -> None:
    network = build(2, lanes=LANES)
    stranger = ina.Endpoint(
        group=7, child=1, slots=16, lanes=LANES, world_size=2, secret=SECRET[::-1], rank=1
    )
    network.ranks[1].machine = stranger
    values = np.ones(8, np.int32)
    for rank, endpoint in enumerate(network.endpoints):
        endpoint.start(0, "sum", values, values.copy())
        network.at(rank * MICROSECOND, network.ranks[rank].pump)
    network.run(
        lambda: any(is_failure(e) for events in network.events for e in events) or network.now > SECOND, BOUND
    )
    assert not any(0 in events for events in network.events)


@pytest.mark.parametrize("kind", ["guesses", "replays"])
def test_a_dead_path_looks_dead_whatever_a_stranger_answers(kind: str) -> None:
    network = tampered(lambda packet: packet, ranks=2)
    answers: list[bytes] = []

    def heard(host: int, data: bytes) -> None:
        answers.append(data)
        Network.at_host(network, host, data)

    network.at_host = heard  # type: ignore[method-assign]
    endpoint = network.endpoints[0]
    values = np.ones(5, np.float32)
    endpoint.start(0, "sum", values, values)
    network.ranks[0].pump()
    network.run(lambda: endpoint.stats()["probes_answered"] > 10, 10 * SECOND)
    if kind == "guesses":
        asked = [Packet.parse(answer) for answer in answers]
        answers = [
            replace(packet, mark=mark, round=n).encode()
            for packet in asked[-2:]
            for mark in (0, packet.mark)
            for n in range(1, 200)
        ]
    network.link = Link(loss=1.0)

    def forge() -> None:
        for answer in answers:
            endpoint.receive(answer, network.now)
        network.at(network.now + 50 * MILLISECOND, forge)

    forge()
    network.run(lambda: bool(network.events[0]), SECOND)
    assert network.events[0] == [("stalled", False, False)]
    assert refused(network, "unsent") + endpoint.stats()["duplicates"] >= len(answers)
