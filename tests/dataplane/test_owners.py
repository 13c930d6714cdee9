# SPDX-License-Identifier: Apache-2.0
"""Chunks with an owner: one child of each switch gets the result's lanes, the others a header."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from dataplane.packets import (
    CONTRIBUTE,
    MAX,
    MISMATCH,
    NONFINITE,
    OWNER,
    PARENT,
    PROBE,
    RESULT,
    RETRANSMISSION,
    SUM,
    VIRTUAL,
    Chunk,
    Group,
    Member,
    Switch,
    children,
    frame,
)

pytestmark = pytest.mark.usefixtures("full_answers")


@pytest.fixture
def group(switch: Switch) -> Group:
    return Group(switch, children(3)).install()


@pytest.fixture
def leaf(switch: Switch) -> Group:
    return Group(switch, children(2), root=False).install()


def lanes(group: Group, value: int) -> tuple[int, ...]:
    return (value,) * group.switch.lanes


def result(group: Group, value: int, owner: Member | None, **fields: int) -> dict[int, Chunk]:
    """A copy for everybody; without an owner among the children, nobody's has lanes."""
    fields = {"flags": OWNER, "kind": RESULT} | fields
    return {
        m.port: group.chunk(m, lanes(group, value) if m is owner else (), **fields) for m in group.members
    }


def contribute(group: Group, m: Member, owner: Member, value: int, **fields: Any) -> dict[int, Chunk]:
    """The owner's own lanes stay with it."""
    if m is owner:
        return group.contribute(m, (), flags=OWNER | fields.pop("flags", 0), **fields)
    return group.contribute(m, lanes(group, value), **fields)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize(("op", "value"), [(SUM, -18), (MAX, -7)], ids=["sum", "max"])
def test_the_owner_gets_what_the_others_contribute(
    group: Group, order: tuple[int, ...], op: int, value: int
) -> None:
    owner = group.members[1]
    answers = [contribute(group, group.members[i], owner, -7 - 2 * i, op=op) for i in order]
    assert answers == [{}, {}, result(group, value, owner, op=op)]


def test_an_owner_may_contribute_lanes(group: Group) -> None:
    a, b, c = group.members
    group.contribute(a, lanes(group, 1), flags=OWNER)
    group.contribute(b, lanes(group, 2))
    assert group.contribute(c, lanes(group, 3)) == result(group, 6, a)


def test_each_is_answered_from_the_slot_as_at_first(group: Group) -> None:
    owner = group.members[2]
    for m in group.members:
        contribute(group, m, owner, 5, flags=NONFINITE)
    expected = result(group, 10, owner, flags=OWNER | NONFINITE)
    for m in group.members:
        again = contribute(group, m, owner, 5, flags=RETRANSMISSION)
        assert again == {m.port: expected[m.port]}
    claimed = group.contribute(group.members[0], (), flags=OWNER | RETRANSMISSION)
    assert claimed == {group.members[0].port: expected[group.members[0].port]}, "it was not the owner before"


def test_the_next_round_has_an_owner_of_its_own(group: Group) -> None:
    a, b, c = group.members
    for round_, owner in enumerate((a, c, b)):
        answers = [contribute(group, m, owner, 1, round=round_) for m in group.members]
        assert answers[-1] == result(group, 2, owner, round=round_)
    assert [group.contribute(m, lanes(group, 1), round=3) for m in group.members][-1] == {
        m.port: group.chunk(m, lanes(group, 3), kind=RESULT, round=3) for m in group.members
    }


@pytest.mark.parametrize("bare", [True, False], ids=["without lanes", "with lanes"])
def test_two_owners_are_told_to_everybody(group: Group, bare: bool) -> None:
    a, b, c = group.members
    group.contribute(a, () if bare else lanes(group, 0), flags=OWNER)
    group.contribute(b, lanes(group, 1))
    told = {
        m.port: group.chunk(m, lanes(group, 1), kind=RESULT, flags=OWNER | MISMATCH) for m in group.members
    }
    assert group.contribute(c, () if bare else lanes(group, 0), flags=OWNER) == told
    assert group.contribute(b, lanes(group, 1)) == {b.port: told[b.port]}


def test_a_mismatch_is_told_to_everybody(group: Group) -> None:
    a, b, c = group.members
    group.contribute(a, (), flags=OWNER, mark=1)
    group.contribute(b, lanes(group, 1), mark=2)
    assert group.contribute(c, lanes(group, 1), mark=1) == {
        m.port: group.chunk(m, lanes(group, 2), kind=RESULT, flags=OWNER | MISMATCH, mark=1)
        for m in group.members
    }


def test_the_sum_of_a_subtree_goes_up_with_the_owners_claim(leaf: Group) -> None:
    a, b = leaf.members
    up = replace(leaf.chunk(PARENT, lanes(leaf, 4)), kind=CONTRIBUTE, flags=OWNER)
    leaf.contribute(b, lanes(leaf, 4))
    assert leaf.contribute(a, (), flags=OWNER) == {PARENT.port: up}
    assert leaf.contribute(a, (), flags=OWNER | RETRANSMISSION) == {PARENT.port: up}


@pytest.mark.parametrize("below", [True, False], ids=["owner below", "owner elsewhere"])
def test_a_result_goes_down_to_its_owner(leaf: Group, below: bool) -> None:
    owner = leaf.members[1] if below else None
    for m in leaf.members:
        assert leaf.contribute(m, () if m is owner else lanes(leaf, 4), flags=OWNER if m is owner else 0) in (
            {},
            {PARENT.port: leaf.chunk(PARENT, lanes(leaf, 4 if below else 8), flags=OWNER if below else 0)},
        )
    down = leaf.chunk(PARENT, lanes(leaf, 99), kind=RESULT, flags=OWNER)
    assert leaf.send(PARENT, down) == result(leaf, 99, owner)
    assert leaf.send(PARENT, down) == {}
    for m in leaf.members:
        again = leaf.contribute(m, () if m is owner else lanes(leaf, 4), flags=OWNER if m is owner else 0)
        assert again == {m.port: result(leaf, 99, owner)[m.port]}


@pytest.mark.parametrize("claims", [True, False], ids=["owner below", "owner elsewhere"])
def test_where_the_parent_sends_no_lanes_none_leave(leaf: Group, claims: bool) -> None:
    """Not even for a child that claims to be the owner: this switch has a part of the sum only."""
    a, b = leaf.members
    leaf.contribute(a, lanes(leaf, 4))
    leaf.contribute(b, lanes(leaf, 4), flags=OWNER if claims else 0)
    bare = leaf.chunk(PARENT, (), kind=RESULT, flags=OWNER)
    assert leaf.send(PARENT, bare) == result(leaf, 0, None)
    for m, flags in ((a, 0), (b, OWNER)):
        assert leaf.contribute(m, lanes(leaf, 4), flags=flags) == {m.port: result(leaf, 0, None)[m.port]}
    assert leaf.send(PARENT, replace(bare, lanes=lanes(leaf, 66))) == {}
    counts = leaf.switch.action_packets("decide")
    assert (counts["deliver_down"], counts["reflect"], counts["late_result"]) == (1, 2, 1)


@pytest.mark.parametrize("change", [{"slot": 8}, {"child": 6}, {"round": 1}, {"flags": 0}], ids=str)
def test_a_result_without_lanes_is_judged_as_any_other(leaf: Group, change: dict[str, int]) -> None:
    for m in leaf.members:
        leaf.contribute(m, lanes(leaf, 4))
    forged = replace(leaf.chunk(PARENT, (), kind=RESULT, flags=OWNER), **change)
    assert leaf.switch.exchange(PARENT.port, frame(PARENT, VIRTUAL, forged.pack())) == []
    bare = leaf.chunk(PARENT, (), kind=RESULT, flags=OWNER)
    assert leaf.send(PARENT, bare) == result(leaf, 0, None)


def test_without_lanes_a_child_sends_no_result_and_a_parent_contributes_nothing(leaf: Group) -> None:
    a = leaf.members[0]
    assert leaf.send(a, leaf.chunk(a, (), kind=RESULT, flags=OWNER)) == {}
    assert leaf.send(PARENT, leaf.chunk(PARENT, (), flags=OWNER)) == {}
    assert leaf.switch.action_packets("decide")["bad_role"] == 2


def test_a_probe_keeps_what_is_behind_its_header(group: Group) -> None:
    a = group.members[0]
    probe = group.chunk(a, lanes(group, 3), kind=PROBE, flags=OWNER)
    assert group.send(a, probe) == {a.port: probe}
