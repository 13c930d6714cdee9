# SPDX-License-Identifier: Apache-2.0
"""Results without lanes, whose owner is elsewhere. The switch never sends a partial sum instead."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dataplane.packets import (
    OWNER,
    PARENT,
    RESULT,
    VIRTUAL,
    Chunk,
    Group,
    Switch,
    children,
    frame,
)

pytestmark = pytest.mark.usefixtures("full_answers")


@pytest.fixture
def leaf(switch: Switch) -> Group:
    return Group(switch, children(2), root=False).install()


def lanes(group: Group, value: int) -> tuple[int, ...]:
    return (value,) * group.switch.lanes


def bare_results(leaf: Group) -> dict[int, Chunk]:
    return {m.port: leaf.chunk(m, (), kind=RESULT, flags=OWNER) for m in leaf.members}


@pytest.mark.parametrize("claims", [True, False], ids=["owner below", "owner elsewhere"])
def test_where_the_parent_sends_no_lanes_none_leave(leaf: Group, claims: bool) -> None:
    """A child that claims to be the owner gets no lanes either: this switch has only a partial sum."""
    a, b = leaf.members
    leaf.contribute(a, lanes(leaf, 4))
    leaf.contribute(b, lanes(leaf, 4), flags=OWNER if claims else 0)
    bare = leaf.chunk(PARENT, (), kind=RESULT, flags=OWNER)
    assert leaf.send(PARENT, bare) == bare_results(leaf)
    for m, flags in ((a, 0), (b, OWNER)):
        assert leaf.contribute(m, lanes(leaf, 4), flags=flags) == {m.port: bare_results(leaf)[m.port]}
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
    assert leaf.send(PARENT, bare) == bare_results(leaf)


def test_without_lanes_a_child_sends_no_result_and_a_parent_contributes_nothing(leaf: Group) -> None:
    a = leaf.members[0]
    assert leaf.send(a, leaf.chunk(a, (), kind=RESULT, flags=OWNER)) == {}
    assert leaf.send(PARENT, leaf.chunk(PARENT, (), flags=OWNER)) == {}
    assert leaf.switch.action_packets("decide")["bad_role"] == 2
