# SPDX-License-Identifier: Apache-2.0
"""Two jobs on one switch, with the same slots, rounds and children. Neither job sees the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dataplane.packets import RESULT, VIRTUAL, Group, Switch, children, frame


@pytest.fixture
def jobs(switch: Switch) -> tuple[Group, Group]:
    """Two jobs, on ports 1 and 2 and on ports 3 and 4. Both use the same child indices."""
    a, b, c, d = children(4)
    one = Group(switch, (a, b)).install()
    others = (replace(c, child=0), replace(d, child=1))
    two = replace(one, members=others, number=2, slot_base=64, mcast_group=3, start=500)
    return one, two.install_members().install_tree()


def lanes(group: Group, value: int) -> tuple[int, ...]:
    return (value,) * group.switch.lanes


def test_sums_in_turn_stay_apart(jobs: tuple[Group, Group]) -> None:
    one, two = jobs
    for slot, round_ in ((0, 0), (5, 0), (0, 1), (5, 1)):
        fields = {"slot": slot, "round": round_}
        assert one.contribute(one.members[0], lanes(one, 1), **fields) == {}
        assert two.contribute(two.members[0], lanes(two, 10), **fields) == {}
        for group, value in ((one, 1), (two, 10)):
            last = group.members[1]
            expected = {
                m.port: group.chunk(m, lanes(group, 2 * value), kind=RESULT, **fields) for m in group.members
            }
            assert group.contribute(last, lanes(group, value), **fields) == expected


def test_a_member_of_one_is_a_stranger_to_the_other(jobs: tuple[Group, Group]) -> None:
    one, two = jobs
    a, b = one.members
    x, y = two.members
    two.contribute(x, lanes(two, 10))
    forged = two.chunk(y, lanes(two, 666))
    for sender in (a, b, replace(a, ip=y.ip, mac=y.mac), replace(y, ip=b.ip), replace(x, ip=y.ip)):
        assert one.switch.exchange(sender.port, frame(sender, VIRTUAL, forged.pack())) == []
    assert one.switch.action_packets("decide")["refused"] == 5
    expected = {m.port: two.chunk(m, lanes(two, 20), kind=RESULT) for m in two.members}
    assert two.contribute(y, lanes(two, 10)) == expected


def test_a_slot_beyond_the_own_range_is_not_the_neighbours(jobs: tuple[Group, Group]) -> None:
    one, two = jobs
    two.contribute(two.members[0], lanes(two, 10))
    reach = two.slot_base - one.slot_base
    assert one.contribute(one.members[0], lanes(one, 666), slot=reach, round=499) == {}
    assert one.switch.action_packets("decide")["bad_slot"] == 1
    expected = {m.port: two.chunk(m, lanes(two, 20), kind=RESULT) for m in two.members}
    assert two.contribute(two.members[1], lanes(two, 10)) == expected
