# SPDX-License-Identifier: Apache-2.0
"""The engine's tables, state and limits. test_vectors.py compares the engine with BMv2."""

from __future__ import annotations

import random

import pytest
from vectors.case import case
from vectors.steps import Packet

from railweave.switch.errors import DuplicateEntry, ImmutableTable, UnknownEntry
from railweave.switch.pipeline import (
    Match,
    Pipeline,
    Replica,
    exact,
    lpm,
    optional,
    range_,
    ternary,
)

RECORDED = ("arithmetic", "parsing", "tables", "state")


def load(name: str) -> Pipeline:
    return Pipeline.load(case(name).json.read_bytes())


def test_every_prefix_of_a_packet_is_survived() -> None:
    for name in RECORDED:
        pipeline = load(name)
        packets = [bytes.fromhex(step.data) for step, _ in case(name).load() if isinstance(step, Packet)]
        for packet in packets[:5]:
            for size in range(len(packet)):
                pipeline.inject(1, packet[:size])
        assert pipeline.native.statistics()["aborted"] == 0


# control.p4: a table of every kind, filled at run time.


@pytest.fixture
def control() -> Pipeline:
    return load("control")


def packet(kind: int = 0, address: int = 0, number: int = 0, group: int = 0) -> bytes:
    return (
        bytes([kind]) + address.to_bytes(4, "big") + number.to_bytes(2, "big") + bytes([group]) + b"payload"
    )


def port_of(pipeline: Pipeline, given: bytes) -> int | None:
    out = pipeline.inject(5, given)
    assert len(out) <= 1
    return out[0][0] if out else None


def test_exact_table_of_thousands_with_deletions(control: Pipeline) -> None:
    rng = random.Random(1)
    keys = rng.sample(range(1 << 32), 2000)
    handles = {key: control.tables.insert("hosts", [exact(key)], "forward", [key % 500]) for key in keys}
    gone = set(rng.sample(keys, 1000))
    for key in gone:
        control.tables.delete("hosts", handles[key])
    for key in keys:
        assert port_of(control, packet(2, key)) == (None if key in gone else key % 500)
    assert len(control.tables.entries("hosts")) == 1000


def test_entries_refuse_what_is_wrong(control: Pipeline) -> None:
    handle = control.tables.insert("hosts", [exact(1)], "forward", [1])
    with pytest.raises(DuplicateEntry):
        control.tables.insert("hosts", [exact(b"\x01")], "forward", [2])
    wrong: list[tuple[str, list[Match], str, list[int], int]] = [
        ("hosts", [exact(1 << 32)], "forward", [1], 0),  # value too wide
        ("hosts", [], "forward", [1], 0),  # key too short
        ("hosts", [lpm(1, 4)], "forward", [1], 0),  # another kind
        ("hosts", [exact(2)], "forward", [512], 0),  # parameter too wide
        ("hosts", [exact(2)], "forward", [], 0),  # parameter missing
        ("hosts", [exact(2)], "nothing", [], 0),  # no such action
        ("hosts", [exact(2)], "forward", [1], 3),  # priority where none belongs
        ("rules", [ternary(0, 0), range_(0, 1), optional(None)], "forward", [1], 0),  # priority missing
        ("rules", [ternary(0, 0), range_(2, 1), optional(None)], "forward", [1], 1),  # empty range
        ("routes", [lpm(0, 33)], "forward", [1], 0),  # prefix too long
        ("nowhere", [exact(1)], "forward", [1], 0),
    ]
    for table, match, action, params, priority in wrong:
        with pytest.raises(ValueError, match=r"."):
            control.tables.insert(table, match, action, params, priority)
    control.tables.delete("hosts", handle)
    with pytest.raises(UnknownEntry):
        control.tables.delete("hosts", handle)
    with pytest.raises(ImmutableTable):
        load("tables").tables.insert("I.exacts", [exact(9), exact(9)], "I.e", [1])


def test_registers_from_outside(control: Pipeline) -> None:
    control.arrays.set_registers("wide", range(3, 4), 1 << 99 | 5)
    assert control.arrays.register("wide", 3) == 1 << 99 | 5
    assert control.arrays.register("wide", 2) == 0
    with pytest.raises(ValueError, match="100 bits"):
        control.arrays.set_registers("wide", range(0, 1), 1 << 100)
    with pytest.raises(ValueError, match="indexes"):
        control.arrays.register("wide", 16)
    control.tables.set_default("hosts", "forward", [1])
    assert control.inject(1, packet(2, 9, 60000))  # a counter's index out of range has no effect


def test_random_is_seeded_and_within_bounds(control: Pipeline) -> None:
    def draw() -> list[int]:
        control.seed(42)
        return [int.from_bytes(control.inject(1, packet(6))[0][1][5:7], "big") for _ in range(100)]

    first = draw()
    assert first == draw()
    assert min(first) >= 100
    assert max(first) <= 199
    assert len(set(first)) > 30


def test_a_packet_that_recirculates_for_ever_ends(control: Pipeline) -> None:
    assert control.inject(1, packet(7)) == []
    assert control.native.statistics()["aborted"] == 1
    control.tables.set_default("hosts", "forward", [1])
    assert port_of(control, packet(2, 9)) == 1


def test_clones_that_clone_themselves_end(control: Pipeline) -> None:
    control.tables.set_default("hosts", "forward", [1])
    control.replication.set_session(200, [Replica(8), Replica(9)])
    ports = [port for port, _ in control.inject(1, packet(9))]
    assert ports[:2] == [1, 8]
    assert control.native.statistics()["aborted"] > 0
    assert port_of(control, packet(2)) == 1


def test_oversized_packet_is_dropped(control: Pipeline) -> None:
    control.tables.set_default("hosts", "forward", [1])
    assert len(control.inject(1, packet(2) + bytes(65000))) == 1
    assert control.inject(1, packet(2) + bytes(65536)) == []
