# SPDX-License-Identifier: Apache-2.0
"""Tables, value sets, messages, state and limits of the engine. test_vectors.py compares it with BMv2."""

from __future__ import annotations

import json
import random

import pytest
from vectors.case import case
from vectors.steps import Packet

from railweave.switch.errors import DuplicateEntry, OutOfRange, TableFull, UnknownEntry
from railweave.switch.pipeline import (
    Match,
    Pipeline,
    Replica,
    Target,
    exact,
    lpm,
    range_,
    ternary,
)

RECORDED = ("arithmetic", "parsing", "tables", "state")


def test_every_prefix_of_a_packet_is_survived() -> None:
    for name in RECORDED:
        pipeline = case(name).pipeline()
        packets = [bytes.fromhex(step.data) for step, _ in case(name).load() if isinstance(step, Packet)]
        for packet in packets[:5]:
            for size in range(len(packet)):
                pipeline.inject(1, packet[:size])
        assert pipeline.native.statistics()["aborted"] == 0


# control.p4: a table of every kind, filled at run time.


@pytest.fixture
def control() -> Pipeline:
    return case("control").pipeline()


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
    handles = {
        key: control.tables["hosts"].insert([exact(key)], Target("forward", (key % 500,))) for key in keys
    }
    gone = set(rng.sample(keys, 1000))
    for key in gone:
        control.tables["hosts"].delete(handles[key])
    for key in keys:
        assert port_of(control, packet(2, key)) == (None if key in gone else key % 500)
    assert len(control.tables["hosts"].entries()) == 1000


def test_refusals_that_no_p4runtime_message_causes(control: Pipeline) -> None:
    hosts = control.tables["hosts"]
    handle = hosts.insert([exact(1)], Target("forward", (1,)))
    with pytest.raises(DuplicateEntry):
        hosts.insert([exact(b"\x01")], Target("forward", (2,)))
    for match, action in (([], "forward"), ([lpm(1, 4)], "forward"), ([exact(2)], "nothing")):
        with pytest.raises(ValueError, match=r"."):
            hosts.insert(match, Target(action, (1,)))
    hosts.delete(handle)
    with pytest.raises(UnknownEntry):
        hosts.delete(handle)


def test_registers_from_outside(control: Pipeline) -> None:
    control.arrays.set_registers("wide", range(3, 4), 1 << 99 | 5)
    cells = control.arrays.registers("wide", range(2, 4))
    assert [int.from_bytes(cells[:13], "big"), int.from_bytes(cells[13:], "big")] == [0, 1 << 99 | 5]
    with pytest.raises(ValueError, match="100 bits"):
        control.arrays.set_registers("wide", range(0, 1), 1 << 100)
    with pytest.raises(ValueError, match="indexes"):
        control.arrays.registers("wide", range(16, 17))
    control.tables["hosts"].set_default(Target("forward", (1,)))
    assert control.inject(1, packet(2, 9, 60000))  # a counter's index out of range has no effect


def test_multicast_replicates_with_instances(control: Pipeline) -> None:
    control.replication.set_group(7, [Replica(1, 11), Replica(2, 22), Replica(2, 23)])
    out = control.inject(5, packet(3, group=7))
    assert [(port, data[7]) for port, data in out] == [(2, 23), (2, 22), (1, 11)]  # egress writes egress_rid
    control.replication.set_group(7, [Replica(4)])
    assert [port for port, _ in control.inject(5, packet(3, group=7))] == [4]
    control.replication.set_group(7, [])
    assert control.inject(5, packet(3, group=7)) == []


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
    control.tables["hosts"].set_default(Target("forward", (1,)))
    assert port_of(control, packet(2, 9)) == 1


def test_clones_that_clone_themselves_end(control: Pipeline) -> None:
    control.tables["hosts"].set_default(Target("forward", (1,)))
    control.replication.set_session(200, [Replica(8), Replica(9)])
    ports = [port for port, _ in control.inject(1, packet(9))]
    assert ports[:2] == [1, 8]
    assert control.native.statistics()["aborted"] > 0
    assert port_of(control, packet(2)) == 1


def test_oversized_packet_is_dropped(control: Pipeline) -> None:
    control.tables["hosts"].set_default(Target("forward", (1,)))
    assert len(control.inject(1, packet(2) + bytes(65000))) == 1
    assert control.inject(1, packet(2) + bytes(65536)) == []


# value_sets.p4: the bits of `way` show the parser states that a packet went through.

KNOWN, SERVICE, FOUND = 2, 4, 16


def way(pipeline: Pipeline, what: int, vlan: int = 0, port: int = 0, address: int = 0) -> int:
    header = bytes([what]) + (vlan << 4).to_bytes(2, "big") + port.to_bytes(2, "big")
    [(_, packet)] = pipeline.inject(1, header + address.to_bytes(9, "big"))
    return packet[0]


@pytest.mark.parametrize(
    ("member", "inside", "outside"),
    [
        (exact(7), (7,), (6, 0, 0x17)),
        (ternary(0x30, 0xF0), (0x30, 0x3F), (0x20, 0x40)),
        (lpm(0x80, 1), (0x80, 0xFE), (0x7F,)),
        (range_(3, 5), (3, 4, 5), (2, 6)),
    ],
)
def test_members_of_every_kind(member: Match, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    pipeline = case("value_sets").pipeline()
    pipeline.value_sets["P.kinds"].set_members([[member]])
    assert all(way(pipeline, what) & KNOWN for what in inside)
    assert not any(way(pipeline, what) & KNOWN for what in outside)


def test_members_of_several_fields_and_wide_ones() -> None:
    pipeline = case("value_sets").pipeline()
    pipeline.value_sets["P.kinds"].set_members([[exact(1)]])
    pipeline.value_sets["P.services"].set_members(
        [[exact(5), exact(80)], [ternary(0x100, 0xF00), range_(1000, 2000)]]
    )
    pipeline.value_sets["P.addresses"].set_members([[exact(1 << 71 | 3)]])
    assert way(pipeline, 1, 5, 80) == KNOWN | SERVICE
    assert way(pipeline, 1, 0x1AB, 1234) == KNOWN | SERVICE
    assert way(pipeline, 1, 5, 81, 1 << 71 | 3) == KNOWN | FOUND
    assert way(pipeline, 2, 0, 0, 3) == 0


def test_a_set_is_replaced_as_a_whole() -> None:
    pipeline = case("value_sets").pipeline()
    pipeline.value_sets["P.kinds"].set_members([[exact(number)] for number in range(1, 5)])
    pipeline.value_sets["P.kinds"].set_members(
        [[exact(number)] for number in range(3, 7)]
    )  # as many as it holds, twice
    assert [bool(way(pipeline, what) & KNOWN) for what in range(8)] == [False] * 3 + [True] * 4 + [False]
    assert pipeline.value_sets["P.kinds"].members() == [(exact(number),) for number in range(3, 7)]
    pipeline.value_sets["P.kinds"].set_members([])
    assert not way(pipeline, 3)


@pytest.mark.parametrize(
    ("name", "members", "error", "message"),
    [
        ("P.kinds", [[exact(number)] for number in range(5)], TableFull, "holds 4 members, not 5"),
        ("P.services", [[exact(1)]], ValueError, "have 2 fields, not 1"),
        ("P.kinds", [[exact(256)]], OutOfRange, "has 8 bits"),
        ("P.kinds", [[exact(1)], [exact(1)]], DuplicateEntry, "given twice"),
        ("P.addresses", [[range_(1, 2)]], ValueError, "no range"),
    ],
)
def test_value_sets_refuse_what_does_not_fit(
    name: str, members: list[list[Match]], error: type[Exception], message: str
) -> None:
    pipeline = case("value_sets").pipeline()
    pipeline.value_sets["P.kinds"].set_members([[exact(1)]])
    with pytest.raises(error, match=message):
        pipeline.value_sets[name].set_members(members)
    assert way(pipeline, 1) & KNOWN


# messages.p4


def test_messages_are_kept_while_somebody_listens() -> None:
    pipeline = case("messages").pipeline()
    assert len(set(pipeline.program.messages)) == len(pipeline.program.messages)
    packet = bytes([41, 0xFE]) + (1 << 79).to_bytes(10, "big")
    quiet = pipeline.inject(1, packet)
    assert pipeline.take_log() == ([], 0)
    pipeline.set_logging(on=True)
    assert [port for port, _ in pipeline.inject(1, packet)] == [port for port, _ in quiet]
    assert pipeline.take_log().messages == [
        "parsed 41",
        "a packet",
        f"small -2 of wide {1 << 79}, sum 42",
        "at the 9 of 1",
    ]
    assert pipeline.take_log() == ([], 0)


def test_messages_that_nobody_takes_are_bounded() -> None:
    pipeline = case("messages").pipeline()
    pipeline.set_logging(on=True)
    for _ in range(2000):
        pipeline.inject(1, bytes(12))
    messages, lost = pipeline.take_log()
    assert (len(messages), lost) == (4096, 2000 * 3 - 4096)


def test_messages_are_bounded_in_rate() -> None:
    pipeline = case("messages").pipeline()
    pipeline.set_logging(on=True)

    def kept(seconds: int, packets: int) -> int:
        for _ in range(packets):
            pipeline.inject(1, bytes(12), seconds * 1_000_000)
        messages, lost = pipeline.take_log()
        assert len(messages) + lost == 3 * packets
        return len(messages)

    assert kept(0, 2000) == 4096
    assert kept(0, 10) == 0
    assert kept(1, 2000) == 100
    assert kept(3, 10) == 30
    assert kept(3, 2000) == 170


def test_a_failed_assertion_drops_the_packet_and_says_where() -> None:
    pipeline = case("messages").pipeline()
    assert pipeline.inject(1, bytes([100]) + bytes(11)) == []
    assert pipeline.inject(3, bytes([77]) + bytes(11)) == []
    assert len(pipeline.inject(1, bytes([77]) + bytes(11))) == 1
    first, second = pipeline.take_log().messages
    assert first.startswith("assertion failed: messages.p4:")
    assert second != first
    assert pipeline.native.statistics()["aborted"] == 2


# Elements of stacks at indexes that the packet gives.


def test_an_index_outside_a_stack_reads_nothing_and_writes_nothing() -> None:
    """BMv2 exits on such packets, so the vectors do not contain them."""

    guard = json.dumps({"type": "hexstr", "value": "0x04"})
    unguarded = json.dumps(json.loads(case("stacks").json.read_text())).replace(
        guard, guard.replace("04", "ff")
    )
    pipeline = Pipeline.load(unguarded.encode())
    labels = b"".join((number << 1 | (number == 3)).to_bytes(2, "big") for number in range(4))
    rng = random.Random(1)
    for index in (4, 5, 100, 254):
        for what in (1, 3):
            packet = bytes([what, index, index, 9]) + labels + rng.randbytes(6)
            [(_, out)] = pipeline.inject(1, packet)
            assert out.endswith(packet[4:])  # all labels as they were, and valid
