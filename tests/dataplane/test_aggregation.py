# SPDX-License-Identifier: Apache-2.0
"""Edge cases of numbers, rounds and slots at the root of a tree, and the switch's counters.

test_model.py tests the order of packets, retransmissions and flags by comparison with a model.
"""

import itertools
from dataclasses import replace

import pytest
from dataplane.packets import (
    MAX,
    MISMATCH,
    RESULT,
    RETRANSMISSION,
    SUM,
    Chunk,
    Group,
    Switch,
    children,
)

INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


@pytest.fixture
def group(switch: Switch) -> Group:
    return Group(switch, children(3)).install()


def ramp(group: Group, factor: int) -> list[int]:
    return [factor * n for n in range(group.switch.lanes)]


def results(group: Group, lanes: list[int], **fields: int) -> dict[int, Chunk]:
    return {m.port: group.chunk(m, lanes, kind=RESULT, **fields) for m in group.members}


def test_contributions_are_absorbed_and_the_last_one_becomes_everybodys_result(group: Group) -> None:
    a, b, c = group.members
    place = {"slot": 5, "round": 9, "mark": 0xFEEDBEEF}
    assert group.contribute(a, ramp(group, 1), **place) == {}
    assert group.contribute(b, ramp(group, 10), **place) == {}
    assert group.contribute(c, ramp(group, -100), **place) == results(group, ramp(group, -89), **place)

    counts = group.switch.action_packets("decide")
    assert (counts["absorb"], counts["result"]) == (2, 1)
    assert all(group.switch.direct_counter("members", group.key(m)) == 1 for m in group.members)


CORNERS = [INT_MIN, INT_MIN + 1, -2, -1, 0, 1, 2, INT_MAX - 1, INT_MAX]
PAIRS = list(itertools.product(CORNERS, repeat=2))


@pytest.mark.parametrize(("op", "combine"), [(SUM, lambda x, y: wrap(x + y)), (MAX, max)], ids=["sum", "max"])
def test_every_pair_of_corner_values(switch: Switch, op: int, combine: object) -> None:
    group = Group(switch, children(2)).install()
    a, b = group.members
    assert callable(combine)
    for first in range(0, len(PAIRS), switch.lanes):
        pairs = (PAIRS[first:] + [(0, 0)] * switch.lanes)[: switch.lanes]
        left, right = [list(side) for side in zip(*pairs, strict=True)]
        where = {"op": op, "round": first}
        assert group.contribute(a, left, **where) == {}
        expected = [combine(x, y) for x, y in pairs]
        assert group.contribute(b, right, **where) == results(group, expected, **where)


def test_a_retransmission_of_an_incomplete_chunk_is_dropped_and_does_not_count_twice(group: Group) -> None:
    a, b, c = group.members
    group.contribute(a, ramp(group, 1))
    assert group.contribute(a, ramp(group, 1), flags=RETRANSMISSION) == {}
    group.contribute(b, ramp(group, 1))
    assert group.contribute(a, ramp(group, 1)) == {}
    assert group.contribute(c, ramp(group, 1)) == results(group, ramp(group, 3))
    assert group.switch.action_packets("decide")["duplicate"] == 2


def test_what_arrives_late_is_stale_and_changes_nothing(group: Group) -> None:
    a, b, c = group.members
    group.contribute(a, ramp(group, 1), round=6)
    for late in (5, 0):
        assert group.contribute(b, ramp(group, 1000), round=late) == {}
    group.contribute(b, ramp(group, 1), round=6)
    assert group.contribute(c, ramp(group, 1), round=6) == results(group, ramp(group, 3), round=6)
    assert group.contribute(c, ramp(group, 1), round=5) == {}
    assert group.switch.action_packets("decide")["stale"] == 3


def test_slots_and_their_copies_are_apart(group: Group) -> None:
    slots = range(2 * group.slots)
    for m in group.members[:2]:
        for slot in slots:
            assert group.contribute(m, ramp(group, slot + 1), slot=slot) == {}
    for slot in reversed(slots):
        last = group.contribute(group.members[2], ramp(group, slot + 1), slot=slot)
        assert last == results(group, ramp(group, 3 * (slot + 1)), slot=slot)


def test_serial_numbers_run_over_the_top(group: Group) -> None:
    """A tag is start + round, and start is 1. So the last rounds have the tags 2^32 - 1, 0 and 1."""
    a, b, c = group.members
    for round_ in (2**31 - 9, 2**32 - 17, 2**32 - 2, 2**32 - 1, 0):
        assert group.contribute(a, ramp(group, 1), round=round_) == {}
        assert group.contribute(b, ramp(group, 1), round=round_) == {}
        assert group.contribute(c, ramp(group, 1), round=round_) == results(
            group, ramp(group, 3), round=round_
        )
    assert group.contribute(a, ramp(group, 1), round=2**32 - 1) == {}
    assert group.switch.action_packets("decide")["stale"] == 1


@pytest.mark.parametrize(
    ("ahead", "outcome"), [(2**31 - 1, "absorb"), (2**31, "stale"), (2**32 - 1, "stale")]
)
def test_newer_means_less_than_half_the_circle_ahead(group: Group, ahead: int, outcome: str) -> None:
    a, b, _ = group.members
    group.contribute(a, ramp(group, 1))
    before = group.switch.action_packets("decide")[outcome]
    assert group.contribute(b, ramp(group, 1), round=ahead) == {}
    assert group.switch.action_packets("decide")[outcome] == before + 1


def test_a_later_group_on_the_same_slots_starts_clean(group: Group) -> None:
    for m in group.members:
        group.contribute(m, ramp(group, 9), round=3)
    later = replace(group, number=2, start=group.start + 4, mcast_group=3).install_members().install_tree()
    a, b, c = later.members
    assert later.contribute(a, ramp(later, 1)) == {}
    assert later.contribute(b, ramp(later, 1)) == {}
    assert later.contribute(c, ramp(later, 1)) == results(later, ramp(later, 3))


def test_groups_on_neighbouring_slots_do_not_meet(group: Group) -> None:
    other = replace(group, number=2, slot_base=group.slot_base + 2 * group.slots, mcast_group=3)
    other.install_members().install_tree()
    for m in group.members[:2]:
        for g, factor in ((group, 1), (other, 5)):
            assert g.contribute(m, ramp(g, factor), slot=0) == {}
            assert g.contribute(m, ramp(g, factor), slot=7) == {}
    for g, factor in ((group, 1), (other, 5)):
        for slot in (0, 7):
            last = g.contribute(g.members[2], ramp(g, factor), slot=slot)
            assert last == results(g, ramp(g, 3 * factor), slot=slot)


def test_a_single_member_gets_its_own_chunk_back(switch: Switch) -> None:
    group = Group(switch, children(1)).install()
    [only] = group.members
    assert group.contribute(only, ramp(group, 3)) == results(group, ramp(group, 3))


@pytest.mark.parametrize("odd_one_out", range(3))
def test_marks_that_differ_are_told_to_everybody(group: Group, odd_one_out: int) -> None:
    answers = [
        group.contribute(m, ramp(group, 1), mark=0xBAD if m.child == odd_one_out else 0x600D)
        for m in group.members
    ]
    first = 0xBAD if odd_one_out == 0 else 0x600D
    assert answers == [{}, {}, results(group, ramp(group, 3), mark=first, flags=MISMATCH)]
    assert group.switch.action_packets("decide")["mismatch"] == 1
    again = group.contribute(group.members[1], ramp(group, 1), mark=first)
    assert again[group.members[1].port].flags == MISMATCH
