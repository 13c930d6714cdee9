# SPDX-License-Identifier: Apache-2.0
"""Multicast refuses wrong options and tasks, and hostile packets."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from protocol.spread_network import GROUP, SECRET, Link, SpreadNetwork, Task
from protocol.test_spread import ALL_GATHER, BROADCAST, CHUNK, RATE, finish
from protocol.virtual_time import FRAMING, MICROSECOND, MILLISECOND, SECOND

from railweave._native import ina
from railweave._native.collectives import Collective
from railweave._rigs import spread
from railweave._rigs.secret import authenticate, authenticate_named, derive_key

SPREAD_KEY, FETCH_KEY = derive_key(SECRET, "spread"), derive_key(SECRET, "fetch")
NUMBERS = itertools.count(1)  # numbers of FETCHes
FREE = range(6)  # header bytes that the code does not cover: version and kind, op, group, child, flags


def lone(number: int = 1, count: int = 10 * CHUNK + 5) -> tuple[SpreadNetwork, Task]:
    """Start rank 1 of three in a broadcast of 11 chunks from rank 0. Only the test delivers packets."""
    network = SpreadNetwork(3, Link())
    task = network.task(BROADCAST, count, CHUNK, number=number)
    network.start(task, 1)
    return network, task


def packet(task: Task, chunk: int, *, payload: bytes | None = None, **fields: int) -> bytes:
    """Return a SPREAD of the task's root with a right code. `fields` replace fields of the header."""
    begin = chunk * task.chunk_bytes
    good = {
        "group": GROUP,
        "kind": spread.KIND_SPREAD,
        "slot": task.root,
        "round": chunk,
        "mark": task.number % 2**32,
    }
    header = ina.Header(**good | fields)
    body = task.input(task.root)[begin : begin + task.chunk_bytes].tobytes() if payload is None else payload
    ahead = (header.mark - task.number + 2**31) % 2**32 - 2**31
    name = struct.pack(">QHI", (task.number + ahead) % 2**64, header.slot, header.round)
    return header.encode() + body + authenticate_named(SPREAD_KEY, name, body)


def fetch(
    task: Task, first: int, count: int, origin: int, *, to: int = 1, number: int | None = None, **fields: int
) -> bytes:
    """Return a FETCH by `origin` for chunks of the task's root, with a right code."""
    good = {"group": GROUP, "kind": spread.KIND_FETCH, "slot": task.root, "round": first, "mark": task.number}
    header = ina.Header(**good | fields)
    number = next(NUMBERS) if number is None else number
    sender = origin if origin < 3 else 2
    said = struct.pack(">QHIHHHHQ", header.mark, header.slot, header.round, origin, count, sender, to, number)
    body = struct.pack(">HHHQ", origin, count, sender, number)
    return header.encode() + body + authenticate(FETCH_KEY, said)


def sent_by(machine: spread.Spreader, now: int) -> list[tuple[bytes, int]]:
    """Return the datagrams that a machine sends now, and their receivers."""
    return list(iter(lambda: machine.transmit(now), None))


def deliver(network: SpreadNetwork, data: bytes, rank: int = 1) -> None:
    """Give a rank a datagram. The network does not carry the rank's packets."""
    network.spreaders[rank].receive(data, network.now)


# --- wrong options and tasks ---


@pytest.mark.parametrize(
    ("name", "value"),
    [("child", 31), ("world_size", 1), ("rank", 2), ("rank", -1), ("world_size", 65536), ("roots", 0)],
)
def test_options_are_checked(name: str, value: int) -> None:
    good = {"group": 1, "child": 0, "rank": 0, "world_size": 2}
    with pytest.raises(ValueError, match=r"must be|at least"):
        spread.Spreader(**good | {name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"chunk_bytes": 0}, "1 to 65475 bytes"),
        ({"chunk_bytes": 65476}, "1 to 65475 bytes"),
        ({"count": 2**32, "chunk_bytes": 1}, "at most 2\\^32 - 1 chunks"),
        ({"collective": Collective.ALL_REDUCE}, "broadcast and all_gather"),
        ({"root": 3}, "not a rank"),
        ({"task": 5}, "numbers of tasks grow"),
    ],
)
def test_what_cannot_be_carried_is_refused(wrong: dict[str, object], says: str) -> None:
    network, _ = lone(number=5)
    values = np.zeros(8, np.uint8)
    good = {"task": 6, "slice_id": 9, "collective": BROADCAST, "count": 8, "chunk_bytes": 4}
    good |= {"input": values, "output": values, "unfinished": 0, "now": 0}
    with pytest.raises(ValueError, match=says):
        network.spreaders[1].start(**good | wrong)  # type: ignore[arg-type]
    assert network.spreaders[1].tasks == 1
    network.spreaders[1].start(**good)  # type: ignore[arg-type]


# --- hostile packets ---


def changed(data: bytes) -> Iterator[bytes]:
    """Yield the datagram with each bit flipped, except in the bytes that the code does not cover."""
    for bit in range(8 * len(data)):
        if bit // 8 not in FREE:
            spoilt = bytearray(data)
            spoilt[bit // 8] ^= 1 << bit % 8
            yield bytes(spoilt)


def test_a_chunk_that_is_spoilt_or_made_up_is_refused_and_fetched_as_if_it_were_lost() -> None:
    network, task = lone(count=3 * CHUNK)
    forged = packet(task, 0)[: -spread.CODE_BYTES]
    for data in (*changed(packet(task, 0)), forged, forged + bytes(spread.CODE_BYTES)):
        deliver(network, data)
    stats = network.spreaders[1].stats()
    assert (stats["received"], stats["stale"], stats["duplicates"]) == (0, 0, 0)
    assert stats["refused"]["code"] > 8 * CHUNK
    assert (task.outputs[1] == 0xA5).all()
    for rank in (0, 2):
        network.start(task, rank)
    finish(network)


def test_a_packet_of_a_task_to_come_is_kept_only_with_its_code() -> None:
    """A rank keeps 512 such packets. Forged packets do not push out packets of peers."""
    network = SpreadNetwork(3, Link())
    task = network.task(BROADCAST, 2 * CHUNK, CHUNK)
    for chunk in range(2):
        deliver(network, packet(task, chunk))
    for chunk in range(1000):
        deliver(network, packet(task, chunk % 2, payload=bytes(CHUNK))[:-1] + b"x")
    assert network.spreaders[1].stats()["refused"]["code"] == 1000
    network.start(task, 1)
    assert network.spreaders[1].stats()["received"] == 2


def test_a_packet_of_another_task_source_or_chunk_has_another_code() -> None:
    network, task = lone()
    good = packet(task, 3)
    for fields in ({"round": 4}, {"mark": 2}, {"mark": 0}, {"slot": 2}):
        other = packet(task, 3, **fields)
        deliver(network, other[: -spread.CODE_BYTES] + good[-spread.CODE_BYTES :])
    assert network.spreaders[1].stats()["refused"]["code"] == 4
    later, _ = lone(number=task.number + 2**32)
    deliver(later, good)
    assert later.spreaders[1].stats()["refused"]["code"] == 1


def test_a_fetch_is_answered_once_and_only_with_its_code() -> None:
    network, task = lone()
    for chunk in range(10):
        deliver(network, packet(task, chunk))
    asked = fetch(task, 0, 10, 2)
    for data in changed(asked):
        deliver(network, data)
    deliver(network, fetch(task, 0, 10, 2, to=0))  # for another rank
    assert network.spreaders[1].transmit(0) is None
    counts = network.spreaders[1].stats()
    assert counts["fetches_taken"] == counts["fetches_passed"] == 0
    assert counts["refused"]["code"] > 8 * 20
    for _ in range(1000):
        deliver(network, asked)
    answers = 0
    for now in range(0, SECOND, MILLISECOND):
        network.spreaders[1].expire(now)
        answers += sum(data[0] & 0xF == spread.KIND_SPREAD for data, _ in sent_by(network.spreaders[1], now))
    counts = network.spreaders[1].stats()
    assert (answers, counts["refused"]["replay"]) == (10, 999)


OUT_OF_RANGE = {
    "version": {"version": (0, 2)},
    "kind": {"kind": (0, 5)},
    "group": {"group": (GROUP + 1,)},
    "source": {"slot": (1, 3)},
    "chunk": {"round": (11, 2**32 - 1)},
    "length": {"round": (10,)},
    "stale": {"mark": (0, 2**31 + 1, 2**32 - 1)},
    None: {"mark": (2, 2**31)},  # kept, because this rank may begin such a task later
}


@pytest.mark.parametrize(
    ("fields", "counter"),
    [
        ({name: value}, counter)
        for counter, field in OUT_OF_RANGE.items()
        for name, values in field.items()
        for value in values
    ],
)
def test_a_field_out_of_range_places_nothing(fields: dict[str, int], counter: str | None) -> None:
    network, task = lone()
    deliver(network, packet(task, 3, **fields))
    stats = network.spreaders[1].stats()
    refused = {name for name, count in stats["refused"].items() if count}
    assert refused == {counter} - {None, "stale"}
    assert stats["stale"] == (counter == "stale")
    assert stats["received"] == 0
    assert (task.outputs[1] == 0xA5).all()
    deliver(network, packet(task, 3))
    assert network.spreaders[1].stats()["received"] == 1


@pytest.mark.parametrize("chunk", [3, 10])
def test_a_payload_of_another_length_places_nothing(chunk: int) -> None:
    network, task = lone()
    right = len(packet(task, chunk))
    whole = packet(task, chunk) + bytes(20)
    for length in {*range(24), right - 1, right + 1, right + 4, len(whole)} - {right}:
        deliver(network, whole[:length])
    stats = network.spreaders[1].stats()
    assert stats["received"] == 0
    assert stats["refused"]["short"] == 16
    assert (task.outputs[1] == 0xA5).all()


def test_a_rank_believes_nobody_about_its_own_shard() -> None:
    network = SpreadNetwork(3, Link())
    task = network.task(ALL_GATHER, 3 * CHUNK, CHUNK)
    network.start(task, 1)
    deliver(network, packet(task, 2, payload=bytes(CHUNK), slot=1))
    assert network.spreaders[1].stats()["refused"]["source"] == 1
    for rank in (0, 2):
        network.start(task, rank)
    finish(network)


def test_the_first_to_come_stays() -> None:
    """A second packet with other bytes does not change a chunk that has arrived."""
    network, task = lone()
    deliver(network, packet(task, 4))
    deliver(network, packet(task, 4, payload=bytes(CHUNK)))
    assert network.spreaders[1].stats()["duplicates"] == 1
    begin = 4 * CHUNK
    assert (task.outputs[1][begin : begin + CHUNK] == task.input(0)[begin : begin + CHUNK]).all()


WRONG_FETCHES: dict[str | None, list[tuple[int, int, int, dict[str, int]]]] = {
    "chunk": [(*each, 2, {}) for each in ((0, 0), (0, 12), (10, 2), (11, 1), (2**32 - 1, 2))],
    "origin": [(0, 1, origin, {}) for origin in (0, 1, 3)],
    "source": [(0, 1, 2, {"slot": slot}) for slot in (2, 3)],
    None: [(0, 1, 2, {"mark": 7})],
}


@pytest.mark.parametrize(
    ("first", "count", "origin", "fields", "counter"),
    [(*each, counter) for counter, some in WRONG_FETCHES.items() for each in some],
)
def test_a_fetch_out_of_range_is_not_answered(
    first: int, count: int, origin: int, fields: dict[str, int], counter: str | None
) -> None:
    network, task = lone()
    for chunk in range(11):
        deliver(network, packet(task, chunk))
    asked = fetch(task, first, count, origin, **fields)
    for data in (asked, asked[:-1], asked + b"\0"):
        deliver(network, data)
    assert network.spreaders[1].transmit(0) is None
    refused = network.spreaders[1].stats()["refused"]
    if counter:
        assert (refused.pop(counter), refused.pop("length")) == (1, 2)
    assert not any(refused.values()) or not counter


def test_a_flood_of_fetches_is_answered_at_the_links_rate_and_beside_the_own_shard() -> None:
    """Memory and time stay bounded for any number of FETCHes. The own shard still gets half of the link."""
    network = SpreadNetwork(3, Link(rate_bps=RATE))
    task = network.task(BROADCAST, 1000 * CHUNK, CHUNK)
    network.start(task, 0)
    machine = network.spreaders[0]
    sent: Counter[int] = Counter()
    for now in range(0, 40 * MILLISECOND, 100 * MICROSECOND):
        machine.expire(now)
        for first in range(50):
            machine.receive(fetch(task, first, 3, 2, to=0), now)
        for data, to in sent_by(machine, now):
            sent[to] += len(data) + FRAMING
    on_link = (40 * MILLISECOND) * RATE // 8 // SECOND
    assert sum(sent.values()) <= on_link * 1.02
    assert sent[spread.TREE] >= sent[2] * 0.9
    stats = machine.stats()
    assert stats["fetches_taken"] <= stats["answered"] + 52  # the FETCHes ask for 52 different chunks
    assert stats["fetches_taken"] + stats["fetches_dropped"] == 400 * 50


def test_fetches_that_wait_are_bounded() -> None:
    """Each FETCH asks for a different chunk."""
    network = SpreadNetwork(3, Link(rate_bps=RATE))
    task = network.task(BROADCAST, 3000, 1)
    network.start(task, 0)
    machine = network.spreaders[0]
    now = 0
    while machine.stats()["sent"] < 3000:
        now += MILLISECOND
        machine.expire(now)
        sent_by(machine, now)
    for first in range(3000):
        machine.receive(fetch(task, first, 1, 2, to=0), now)
    stats = machine.stats()
    assert (stats["fetches_taken"], stats["fetches_dropped"]) == (1024, 3000 - 1024)


def test_a_fetch_is_passed_on_once_and_only_to_the_owner() -> None:
    network, task = lone()
    deliver(network, packet(task, 0))
    for _ in range(3000):
        deliver(network, fetch(task, 0, 2, 2))
    passed = sent_by(network.spreaders[1], 0)
    assert len(passed) == 1024
    said = ina.HEADER_BYTES + 4
    assert {(data[:said], to) for data, to in passed} == {(fetch(task, 0, 2, 2, child=1)[:said], 0)}
    for data, _ in passed:
        network.spreaders[0].receive(data, 0)
    assert not any(network.spreaders[0].stats()["refused"].values())


def test_packets_of_the_group_before_a_move_are_stale_and_of_others_refused() -> None:
    """A rank must refuse other groups, because another tree of its rail may use the same task number."""
    network, task = lone()
    network.spreaders[1].resume(GROUP + 1, 1, 0)
    for group, counter in ((GROUP, "stale"), (GROUP + 2, "group")):
        deliver(network, packet(task, 0, group=group))
        stats = network.spreaders[1].stats()
        assert (stats["stale"], stats["refused"]["group"]) == (1, int(counter == "group"))
    deliver(network, packet(task, 0, group=GROUP + 1))
    assert network.spreaders[1].stats()["received"] == 1


def test_what_waits_for_a_rank_is_sent_to_it_once_and_ranks_take_turns() -> None:
    network = SpreadNetwork(3, Link(rate_bps=RATE))
    task = network.task(BROADCAST, 100 * CHUNK, CHUNK)
    network.start(task, 0)
    machine = network.spreaders[0]

    def sent(begin: int) -> list[tuple[int, int]]:
        """Return the receivers and chunks of all packets in a tenth of a second."""
        found = []
        for now in range(begin, begin + 100 * MILLISECOND, 100 * MICROSECOND):
            machine.expire(now)
            found += [(to, ina.Header.decode(data).round) for data, to in sent_by(machine, now)]
        return found

    assert sent(0)[-1] == (spread.TREE, 99)
    for first, count, origin in ((0, 50, 1), (10, 60, 1), (20, 20, 1), (0, 50, 2), (40, 60, 1)):
        machine.receive(fetch(task, first, count, origin, to=0), 100 * MILLISECOND)
    answered = sent(100 * MILLISECOND)
    assert sorted(answered) == [(1, chunk) for chunk in range(100)] + [(2, chunk) for chunk in range(50)]
    assert {rank for rank, _ in answered[:30]} == {1, 2}
