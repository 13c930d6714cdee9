# SPDX-License-Identifier: Apache-2.0
"""Action profiles: updates that entries follow, and refusals. The vectors test the selectors' choice."""

from __future__ import annotations

import struct

import pytest
from vectors.case import case

from railweave.switch.errors import DuplicateEntry, InUse, TableFull, UnknownEntry
from railweave.switch.pipeline import Group, GroupMember, Pipeline, WeightedAction, exact, lpm

ONCE = 5  # byte of the returned header


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline.load(case("selectors").json.read_bytes())


def send(
    pipeline: Pipeline, *, plain: int = 0, chosen: int = 0, once: int = 0, flow: int = 0
) -> bytes | None:
    packet = struct.pack(">BBBBHB", plain, chosen, 0, once, flow, 0) + bytes(7)
    sent = pipeline.inject(1, packet)
    return sent[0][1][7:] if sent else None


def chosen(pipeline: Pipeline, key: int = 1) -> set[int]:
    """Return the parameters of the actions that flows get."""
    outs = [send(pipeline, chosen=key, flow=flow) for flow in range(64)]
    return {int.from_bytes(out[1:3], "big") for out in outs if out is not None}


def grouped(pipeline: Pipeline) -> None:
    for member in (1, 2, 3):
        pipeline.profiles.insert_member("I.selector", member, "I.choose", [member * 10])
    pipeline.profiles.insert_group("I.selector", 7, [(1, 1, 4), (2, 2, 5), (3, 1, None)])
    pipeline.tables.insert("I.choices", [exact(1)], group=7)


def test_entries_follow_their_member(pipeline: Pipeline) -> None:
    pipeline.profiles.insert_member("I.profile", 4, "I.plain", [40])
    handle = pipeline.tables.insert("I.plains", [exact(1)], member=4)
    assert send(pipeline, plain=1) == bytes([40, 0, 0, 0, 9, 0, 0])
    pipeline.profiles.modify_member("I.profile", 4, "I.plain", [41])
    assert send(pipeline, plain=1) == bytes([41, 0, 0, 0, 9, 0, 0])
    pipeline.profiles.modify_member("I.profile", 4, "I.drop")
    assert send(pipeline, plain=1) is None
    with pytest.raises(InUse, match="member 4"):
        pipeline.profiles.delete_member("I.profile", 4)
    pipeline.tables.delete("I.plains", handle)
    pipeline.profiles.delete_member("I.profile", 4)
    assert pipeline.profiles.members("I.profile") == {}


def test_groups_follow_their_members(pipeline: Pipeline) -> None:
    grouped(pipeline)
    assert chosen(pipeline) == {10, 20, 30}
    pipeline.profiles.modify_member("I.selector", 2, "I.choose", [99])
    assert chosen(pipeline) == {10, 99, 30}
    with pytest.raises(InUse):
        pipeline.profiles.delete_member("I.selector", 2)
    with pytest.raises(InUse):
        pipeline.profiles.delete_group("I.selector", 7)
    pipeline.profiles.modify_group("I.selector", 7, [(3, 5)])
    assert chosen(pipeline) == {30}
    pipeline.profiles.delete_member("I.selector", 2)
    assert pipeline.profiles.groups("I.selector") == {7: Group((GroupMember(3, 5),))}


def test_members_are_left_out_while_their_port_is_down(pipeline: Pipeline) -> None:
    grouped(pipeline)
    pipeline.profiles.set_port_up(5, up=False)
    assert chosen(pipeline) == {10, 30}
    pipeline.profiles.set_port_up(4, up=False)
    assert chosen(pipeline) == {30}
    pipeline.profiles.set_port_up(5, up=True)
    assert chosen(pipeline) == {20, 30}
    sets = [WeightedAction("I.once", (1,), 2, watch_port=4), WeightedAction("I.once", (2,), 1, watch_port=5)]
    pipeline.tables.insert("I.sets", [lpm(0x80, 8)], action_set=sets)
    assert {out[ONCE] for flow in range(64) if (out := send(pipeline, once=0x80, flow=flow))} == {2}


def test_an_empty_group_does_nothing(pipeline: Pipeline) -> None:
    grouped(pipeline)
    pipeline.profiles.modify_group("I.selector", 7, [])
    assert chosen(pipeline) == {0}
    for port in (4, 5):
        pipeline.profiles.set_port_up(port, up=False)
    pipeline.profiles.modify_group("I.selector", 7, [(1, 1, 4), (2, 1, 5)])
    assert chosen(pipeline) == {0}


def test_tables_share_a_selector(pipeline: Pipeline) -> None:
    grouped(pipeline)
    program = pipeline.program
    assert {table.name for table in program.tables.values() if table.profile == "I.selector"} == {
        "I.choices",
        "I.shared",
    }
    pipeline.tables.set_default("I.shared", None, group=7)
    assert {10, 20, 30} == chosen(pipeline, key=0)
    assert pipeline.tables.default("I.shared") is None
    with pytest.raises(InUse):
        pipeline.profiles.delete_group("I.selector", 7)
    pipeline.tables.set_default("I.shared", None)
    assert chosen(pipeline, key=0) == {0}


def test_one_shot_sets_come_and_go(pipeline: Pipeline) -> None:
    handle = pipeline.tables.insert("I.sets", [lpm(0, 0)], action_set=[WeightedAction("I.once", (5,))])
    assert send(pipeline) == bytes([0, 0, 0, 0, 12, 5, 0])
    pipeline.tables.modify("I.sets", handle, action_set=[WeightedAction("I.again", (6, 7), 3)])
    assert send(pipeline) == bytes([0, 0, 0, 0, 24, 6, 7])
    assert pipeline.tables.entry("I.sets", handle).target.action_set == (
        WeightedAction("I.again", (6, 7), 3),
    )
    pipeline.tables.delete("I.sets", handle)
    assert send(pipeline) == bytes([0, 0, 0, 0, 8, 0, 0])


def test_refusals(pipeline: Pipeline) -> None:
    grouped(pipeline)

    def once(weight: int) -> int:
        return pipeline.tables.insert(
            "I.sets", [lpm(0, 0)], action_set=[WeightedAction("I.once", (1,), weight)]
        )

    refused = [
        (DuplicateEntry, lambda: pipeline.profiles.insert_member("I.selector", 1, "I.choose", [1])),
        (DuplicateEntry, lambda: pipeline.profiles.insert_group("I.selector", 7, [])),
        (UnknownEntry, lambda: pipeline.profiles.modify_member("I.selector", 9, "I.choose", [1])),
        (UnknownEntry, lambda: pipeline.profiles.delete_member("I.selector", 9)),
        (UnknownEntry, lambda: pipeline.profiles.modify_group("I.selector", 9, [])),
        (UnknownEntry, lambda: pipeline.profiles.insert_group("I.selector", 8, [(9, 1)])),
        (UnknownEntry, lambda: pipeline.tables.insert("I.choices", [exact(3)], member=9)),
        (UnknownEntry, lambda: pipeline.tables.insert("I.choices", [exact(3)], group=9)),
        (ValueError, lambda: pipeline.profiles.insert_group("I.profile", 1, [])),
        (ValueError, lambda: pipeline.profiles.insert_group("I.selector", 8, [(1, 0)])),
        (ValueError, lambda: pipeline.profiles.insert_group("I.selector", 8, [(1, 1), (1, 2)])),
        (ValueError, lambda: pipeline.profiles.modify_group("I.selector", 7, [(1, 1)], max_size=3)),
        (ValueError, lambda: pipeline.profiles.insert_member("I.selector", 8, "I.plain", [1])),
        (ValueError, lambda: pipeline.profiles.insert_member("I.selector", 8, "I.choose", [])),
        (ValueError, lambda: pipeline.profiles.insert_member("nowhere", 8, "I.choose", [1])),
        (ValueError, lambda: pipeline.tables.insert("I.choices", [exact(3)], "I.choose", [1])),
        (ValueError, lambda: pipeline.tables.insert("I.choices", [exact(3)], member=1, group=7)),
        (ValueError, lambda: pipeline.tables.insert("I.choices", [exact(3)])),
        (ValueError, lambda: pipeline.tables.insert("I.plains", [exact(3)], action_set=[])),
        (ValueError, lambda: once(0)),
        (TableFull, lambda: pipeline.profiles.insert_group("I.selector", 8, [(1, 2), (2, 1)], 2)),
        (TableFull, lambda: pipeline.profiles.insert_group("I.selector", 8, [(1, 1 << 30)])),
        (TableFull, lambda: once(1 << 30)),
        (TableFull, lambda: pipeline.profiles.insert_member("I.profile", 16, "I.plain", [1])),
    ]  # fmt: skip
    for member in range(16):  # as many as fit
        pipeline.profiles.insert_member("I.profile", member, "I.plain", [member])
    before = pipeline.profiles.groups("I.selector"), pipeline.profiles.members("I.selector")
    for error, call in refused:
        with pytest.raises(error):
            call()
    assert (pipeline.profiles.groups("I.selector"), pipeline.profiles.members("I.selector")) == before
    assert pipeline.tables.entries("I.sets") == []
    assert chosen(pipeline) == {10, 20, 30}


def test_a_snapshot_stays_as_it_was(pipeline: Pipeline) -> None:
    grouped(pipeline)
    view = pipeline.snapshot()
    before = view.profiles.members("I.selector"), view.profiles.groups("I.selector")
    pipeline.profiles.modify_member("I.selector", 1, "I.choose", [99])
    pipeline.profiles.modify_group("I.selector", 7, [])
    assert (view.profiles.members("I.selector"), view.profiles.groups("I.selector")) == before
    assert pipeline.profiles.members("I.selector") != before[0]
