# SPDX-License-Identifier: Apache-2.0
"""Action profiles: updates that entries follow, and refusals. The vectors test the selectors' choice."""

from __future__ import annotations

import struct

import pytest
from vectors.case import case

from railweave.switch.errors import ImmutableTable, InUse, TableFull
from railweave.switch.pipeline import (
    Group,
    GroupMember,
    Pipeline,
    Target,
    WeightedAction,
    exact,
    lpm,
    ternary,
)

ONCE = 5  # byte of the returned header


@pytest.fixture
def pipeline() -> Pipeline:
    return case("selectors").pipeline()


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
        pipeline.profiles["I.selector"].insert_member(member, "I.choose", [member * 10])
    pipeline.profiles["I.selector"].insert_group(7, [(1, 1, 4), (2, 2, 5), (3, 1, None)])
    pipeline.tables["I.choices"].insert([exact(1)], Target(group=7))


def test_entries_follow_their_member(pipeline: Pipeline) -> None:
    pipeline.profiles["I.profile"].insert_member(4, "I.plain", [40])
    handle = pipeline.tables["I.plains"].insert([exact(1)], Target(member=4))
    assert send(pipeline, plain=1) == bytes([40, 0, 0, 0, 9, 0, 0])
    pipeline.profiles["I.profile"].modify_member(4, "I.plain", [41])
    assert send(pipeline, plain=1) == bytes([41, 0, 0, 0, 9, 0, 0])
    pipeline.profiles["I.profile"].modify_member(4, "I.drop")
    assert send(pipeline, plain=1) is None
    with pytest.raises(InUse, match="member 4"):
        pipeline.profiles["I.profile"].delete_member(4)
    pipeline.tables["I.plains"].delete(handle)
    pipeline.profiles["I.profile"].delete_member(4)
    assert pipeline.profiles["I.profile"].members() == {}


def test_groups_follow_their_members(pipeline: Pipeline) -> None:
    grouped(pipeline)
    assert chosen(pipeline) == {10, 20, 30}
    pipeline.profiles["I.selector"].modify_member(2, "I.choose", [99])
    assert chosen(pipeline) == {10, 99, 30}
    with pytest.raises(InUse):
        pipeline.profiles["I.selector"].delete_member(2)
    with pytest.raises(InUse):
        pipeline.profiles["I.selector"].delete_group(7)
    pipeline.profiles["I.selector"].modify_group(7, [(3, 5)])
    assert chosen(pipeline) == {30}
    pipeline.profiles["I.selector"].delete_member(2)
    assert pipeline.profiles["I.selector"].groups() == {7: Group((GroupMember(3, 5),))}


def test_members_are_left_out_while_their_port_is_down(pipeline: Pipeline) -> None:
    grouped(pipeline)
    pipeline.set_port_up(5, up=False)
    assert chosen(pipeline) == {10, 30}
    pipeline.set_port_up(4, up=False)
    assert chosen(pipeline) == {30}
    pipeline.set_port_up(5, up=True)
    assert chosen(pipeline) == {20, 30}
    sets = [WeightedAction("I.once", (1,), 2, watch_port=4), WeightedAction("I.once", (2,), 1, watch_port=5)]
    pipeline.tables["I.sets"].insert([lpm(0x80, 8)], Target(action_set=tuple(sets)))
    assert {out[ONCE] for flow in range(64) if (out := send(pipeline, once=0x80, flow=flow))} == {2}


def test_an_empty_group_does_nothing(pipeline: Pipeline) -> None:
    grouped(pipeline)
    pipeline.profiles["I.selector"].modify_group(7, [])
    assert chosen(pipeline) == {0}
    for port in (4, 5):
        pipeline.set_port_up(port, up=False)
    pipeline.profiles["I.selector"].modify_group(7, [(1, 1, 4), (2, 1, 5)])
    assert chosen(pipeline) == {0}


def test_tables_share_a_selector(pipeline: Pipeline) -> None:
    grouped(pipeline)
    program = pipeline.program
    assert {table.name for table in program.tables.values() if table.profile == "I.selector"} == {
        "I.choices",
        "I.shared",
    }
    handle = pipeline.tables["I.shared"].insert([ternary(0, 0)], Target(group=7), 1)
    assert {10, 20, 30} == chosen(pipeline, key=0)
    with pytest.raises(InUse):
        pipeline.profiles["I.selector"].delete_group(7)
    with pytest.raises(ImmutableTable):
        pipeline.tables["I.shared"].set_default(Target(group=7))
    pipeline.tables["I.shared"].delete(handle)
    assert chosen(pipeline, key=0) == {0}


def test_one_shot_sets_come_and_go(pipeline: Pipeline) -> None:
    handle = pipeline.tables["I.sets"].insert(
        [lpm(0, 0)], Target(action_set=(WeightedAction("I.once", (5,)),))
    )
    assert send(pipeline) == bytes([0, 0, 0, 0, 12, 5, 0])
    pipeline.tables["I.sets"].modify(handle, Target(action_set=(WeightedAction("I.again", (6, 7), 3),)))
    assert send(pipeline) == bytes([0, 0, 0, 0, 24, 6, 7])
    assert pipeline.tables["I.sets"].entry(handle).target.action_set == (
        WeightedAction("I.again", (6, 7), 3),
    )
    pipeline.tables["I.sets"].delete(handle)
    assert send(pipeline) == bytes([0, 0, 0, 0, 8, 0, 0])


def test_refusals_that_no_p4runtime_message_causes(pipeline: Pipeline) -> None:
    grouped(pipeline)
    selector = pipeline.profiles["I.selector"]

    def insert(target: Target) -> int:
        table = "I.sets" if target.action_set else "I.choices"
        return pipeline.tables[table].insert([lpm(0, 0) if target.action_set else exact(3)], target)

    refused = [
        (ValueError, lambda: selector.insert_group(8, [(1, 0)])),
        (ValueError, lambda: selector.insert_group(8, [(1, 1)], max_size=-1)),
        (ValueError, lambda: selector.insert_member(8, "I.plain", [1])),
        (ValueError, lambda: insert(Target(member=1, group=7))),
        (ValueError, lambda: insert(Target(action_set=(WeightedAction("I.once", (1,), 0),)))),
        (TableFull, lambda: selector.insert_group(8, [(1, 1 << 30)])),
        (TableFull, lambda: insert(Target(action_set=(WeightedAction("I.once", (1,), 1 << 30),)))),
    ]
    before = selector.groups(), selector.members()
    for error, call in refused:
        with pytest.raises(error):
            call()
    assert (selector.groups(), selector.members()) == before
    assert pipeline.tables["I.sets"].entries() == []
    assert chosen(pipeline) == {10, 20, 30}
