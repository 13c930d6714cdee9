# SPDX-License-Identifier: Apache-2.0
"""The switch's counters, later groups, strangers, and ranks behind one port.

test_model.py tests numbers, rounds, flags and the order of packets by comparison with a model.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from dataplane.harness import Switch
from dataplane.packets import (
    CONTRIBUTE,
    PARENT,
    PROBE,
    RESULT,
    SPREAD,
    TO_ROOT,
    VIRTUAL,
    Chunk,
    Group,
    Member,
    children,
    frame,
)


@pytest.fixture(params=[True, False], ids=["root", "leaf"])
def group(request: pytest.FixtureRequest, switch: Switch) -> Group:
    return Group(switch, children(2), root=request.param).install()


def ones(group: Group) -> list[int]:
    return [1] * group.switch.lanes


def sums(group: Group) -> dict[int, Chunk]:
    """Return the result of two contributions on every port."""
    return {m.port: group.chunk(m, [2] * group.switch.lanes, kind=RESULT) for m in group.members}


def complete(group: Group) -> dict[int, Chunk]:
    """Let the last member contribute, and a parent answer. Return the results."""
    out = group.contribute(B, ones(group))
    return out if group.root else group.send(PARENT, replace(out[PARENT.port], kind=RESULT))


A, B = children(2)
CONTRIBUTIONS = [
    (A, {}, "absorb", "ABSORB"),
    (A, {}, "duplicate", "DUPLICATE"),
    (B, {"round": 2**31}, "stale", "STALE"),
]
REQUESTS = [
    (B, {"slot": 8}, "bad_slot", "REFUSED"),
    (B, {"kind": RESULT}, "bad_role", "REFUSED"),
    (A, {"kind": SPREAD}, "spread", "SPREAD"),
    (B, {"kind": PROBE}, "probe", "PROBE"),
]
AT_ROOT = [
    *CONTRIBUTIONS,
    (B, {}, "result", "RESULT"),
    (A, {}, "reflect", "REFLECT"),
    (A, {"slot": 1}, "absorb", "ABSORB"),
    (B, {"slot": 1, "mark": 7}, "mismatch", "MISMATCH"),
    *REQUESTS,
    (B, {"kind": PROBE, "flags": TO_ROOT}, "probe", "PROBE"),
]
AT_LEAF = [
    *CONTRIBUTIONS,
    (B, {}, "forward_up", "FORWARD_UP"),
    (A, {}, "forward_up_again", "FORWARD_UP_AGAIN"),
    (B, {}, "duplicate", "DUPLICATE"),
    (PARENT, {"kind": CONTRIBUTE}, "bad_role", "REFUSED"),
    (PARENT, {"kind": RESULT}, "deliver_down", "DELIVER_DOWN"),
    (PARENT, {"kind": RESULT}, "late_result", "LATE_RESULT"),
    (B, {}, "reflect", "REFLECT"),
    *REQUESTS,
    (B, {"kind": PROBE, "flags": TO_ROOT}, "probe_up", "PROBE"),
    (PARENT, {"kind": PROBE, "flags": TO_ROOT}, "probe_down", "PROBE"),
    (PARENT, {"kind": PROBE}, "no_path", "PROBE"),
]


def test_what_becomes_of_packets_is_counted_for_the_switch_and_for_their_group(group: Group) -> None:
    other = replace(group, number=2, slot_base=64).install(group)
    sequence = AT_ROOT if group.root else AT_LEAF
    for sender, fields, action, outcome in sequence:
        before, counted = group.switch.action_packets("decide"), group.outcomes()
        group.send(sender, group.chunk(sender, ones(group), **fields))
        after = group.switch.action_packets("decide")
        assert {name for name in after if after[name] != before[name]} == {action}, (fields, action)
        assert group.outcomes() == counted | {outcome: counted.get(outcome, 0) + 1}, (fields, outcome)
    assert other.outcomes() == {}
    for m in group.members:
        count = sum(sender == m for sender, *_ in sequence)
        assert group.switch.direct_counter("members", group.key(m)) == count


def test_a_later_group_on_the_same_slots_starts_clean(group: Group) -> None:
    for m in group.members:
        group.contribute(m, [9] * group.switch.lanes, round=3)
    later = replace(group, number=2, start=group.start + 4).install(group)
    assert later.contribute(A, ones(later)) == {}
    assert complete(later) == sums(later)


def posing(member: Member) -> list[Member]:
    """Return strangers that differ from the member in port, child or address."""
    ports = [replace(member, port=port) for port in (1, 2, 3, 4) if port != member.port]
    children_ = [replace(member, child=child) for child in (0, 1, 2, 6, 31) if child != member.child]
    return [*ports, *children_, replace(member, ip=member.ip + 0x100)]


def test_strangers_reach_no_slot_and_nobody(group: Group) -> None:
    """Even the newest round of a stranger does not disturb a chunk."""
    assert group.contribute(A, ones(group)) == {}
    sent = 0
    for member in (A, B) if group.root else (A, B, PARENT):
        for kind in (CONTRIBUTE, RESULT, PROBE, SPREAD):
            known = group.chunk(member, ones(group), kind=kind, round=2**30)
            elsewhere = [(member, replace(known, group=number)) for number in (0, 2, 0xFFFF)]
            here = [(stranger, replace(known, child=stranger.child)) for stranger in posing(member)]
            for stranger, chunk in elsewhere + here:
                data = frame(stranger, VIRTUAL, chunk.pack())
                assert group.switch.exchange(stranger.port, data) == [], (member, stranger, chunk.group)
                sent += 1
    assert group.switch.action_packets("decide")["refused"] == sent
    assert group.outcomes() == {"ABSORB": 1}
    assert complete(group) == sums(group)


def test_ranks_behind_one_port_reach_each_other(switch: Switch) -> None:
    """The switch sends no copy to the sender, but it does send copies to the sender's port."""
    a, b, c = children(3)
    group = Group(switch, (a, replace(b, port=a.port), c), root=False).install()
    for sender in group.members:
        data = group.chunk(sender, (), kind=SPREAD).pack() + b"shard"
        out = switch.exchange(sender.port, frame(sender, VIRTUAL, data))
        expected = {(m.port, m.child) for m in (*group.members, PARENT) if m != sender}
        assert {(port, left[14 + 28 + 4]) for port, left in out} == expected
        assert len(out) == len(expected)
