# SPDX-License-Identifier: Apache-2.0
"""The program on a switch below another one: sums go up, results come down, probes get answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dataplane.packets import (
    CONTRIBUTE,
    PARENT,
    PROBE,
    RESULT,
    TO_ROOT,
    VIRTUAL,
    Chunk,
    Group,
    Member,
    Switch,
    children,
    frame,
    open_frame,
)


@pytest.fixture
def group(switch: Switch) -> Group:
    return Group(switch, children(2), root=False).install()


def lanes(group: Group, value: int) -> tuple[int, ...]:
    return (value,) * group.switch.lanes


def sum_at_the_parent(group: Group, value: int, **fields: int) -> dict[int, Chunk]:
    chunk = replace(
        group.chunk(group.members[0], lanes(group, value)), kind=CONTRIBUTE, child=PARENT.child, **fields
    )
    return {PARENT.port: chunk}


def from_parent(group: Group, value: int, **fields: int) -> Chunk:
    return group.chunk(PARENT, lanes(group, value), kind=RESULT, **fields)


def results(group: Group, value: int, **fields: int) -> dict[int, Chunk]:
    return {m.port: group.chunk(m, lanes(group, value), kind=RESULT, **fields) for m in group.members}


def complete(group: Group, value: int, **fields: int) -> None:
    a, b = group.members
    assert group.contribute(a, lanes(group, value), **fields) == {}
    assert group.contribute(b, lanes(group, value), **fields) == sum_at_the_parent(group, 2 * value, **fields)


def test_a_complete_subtree_goes_up_as_one_contribution(group: Group) -> None:
    complete(group, 5, slot=3, round=8)
    assert group.switch.action_packets("decide")["forward_up"] == 1


@pytest.mark.parametrize("round_", [6, 8, 7 + 2**31])
def test_a_result_of_another_round_is_dropped(group: Group, round_: int) -> None:
    complete(group, 5, round=7)
    assert group.send(PARENT, from_parent(group, 99, round=round_)) == {}
    assert group.send(PARENT, from_parent(group, 77, round=7)) == results(group, 77, round=7)
    assert group.switch.action_packets("decide")["stale"] == 1


@pytest.mark.parametrize(
    "change", [{"port": 1}, {"port": 3}, {"ip": PARENT.ip + 1}, {"child": 6}], ids=lambda c: next(iter(c))
)
def test_results_come_from_the_parents_place_only(group: Group, change: dict[str, int]) -> None:
    complete(group, 5)
    impostor = replace(PARENT, **change)
    forged = replace(from_parent(group, 666), child=impostor.child)
    assert group.switch.exchange(impostor.port, frame(impostor, VIRTUAL, forged.pack())) == []
    assert group.switch.action_packets("decide")["refused"] == 1
    assert group.send(PARENT, from_parent(group, 99)) == results(group, 99)


def test_the_parent_does_not_contribute(group: Group) -> None:
    assert group.send(PARENT, replace(from_parent(group, 5), kind=CONTRIBUTE)) == {}
    assert group.switch.action_packets("decide")["bad_role"] == 1
    complete(group, 5)


@pytest.mark.parametrize("payload", [b"", b"\x01", bytes(range(256)) * 4], ids=len)
def test_a_probe_comes_back_as_it_is(group: Group, payload: bytes) -> None:
    a = group.members[0]
    probe = group.chunk(a, (), kind=PROBE, round=0x01020304, mark=0x05060708, slot=0xFFFF).pack() + payload
    [(port, data)] = group.switch.exchange(a.port, frame(a, VIRTUAL, probe))
    assert port == a.port
    assert open_frame(data, VIRTUAL, a) == (a.udp_port, probe)
    assert group.switch.action_packets("decide")["probe"] == 1


def test_a_strangers_probe_is_not_answered(group: Group) -> None:
    stranger = replace(group.members[0], ip=0x0A010063)
    probe = group.chunk(stranger, (), kind=PROBE).pack()
    assert group.switch.exchange(stranger.port, frame(stranger, VIRTUAL, probe)) == []


def probe_to_root(group: Group, member: Member, slot: int, payload: bytes = b"") -> bytes:
    chunk = group.chunk(member, (), kind=PROBE, flags=TO_ROOT, slot=slot, round=9)
    return frame(member, VIRTUAL, chunk.pack() + payload)


@pytest.mark.parametrize(("slot", "left"), [(0, 0), (5, 5 << 5), (0x7FF, (0x7FF << 5) & 0xFFFF)])
def test_a_probe_to_the_root_goes_up_and_notes_its_way(group: Group, slot: int, left: int) -> None:
    b = group.members[1]
    up = group.received(group.switch.exchange(b.port, probe_to_root(group, b, slot)))
    expected = group.chunk(PARENT, (), kind=PROBE, flags=TO_ROOT, slot=left | b.child, round=9)
    assert up == {PARENT.port: expected}
    assert group.switch.action_packets("decide")["probe_up"] == 1


@pytest.mark.parametrize("payload", [b"", b"rtt"], ids=len)
def test_the_roots_answer_goes_back_to_the_child_that_asked(group: Group, payload: bytes) -> None:
    for m in group.members:
        answer = probe_to_root(group, PARENT, 3 << 5 | m.child, payload)
        [(port, data)] = group.switch.exchange(PARENT.port, answer)
        assert port == m.port
        udp_port, received = open_frame(data, VIRTUAL, m)
        assert udp_port == m.udp_port
        assert received == group.chunk(m, (), kind=PROBE, flags=TO_ROOT, slot=3, round=9).pack() + payload


def test_an_answer_for_a_child_that_there_is_not_goes_nowhere(group: Group) -> None:
    assert group.switch.exchange(PARENT.port, probe_to_root(group, PARENT, 30)) == []


def test_a_parent_asks_nothing(group: Group) -> None:
    assert group.send(PARENT, group.chunk(PARENT, (), kind=PROBE)) == {}
    assert group.switch.action_packets("decide")["no_path"] == 1


def test_the_root_answers_a_probe_to_the_root(group: Group) -> None:
    a = group.members[0]
    top = replace(group, number=2, root=True, slot_base=64, mcast_group=3).install_members().install_tree()
    probe = top.chunk(a, (), kind=PROBE, flags=TO_ROOT, slot=77)
    assert top.send(a, probe) == {a.port: probe}


def test_what_becomes_of_a_groups_packets_is_counted_for_the_group(group: Group) -> None:
    a, b = group.members
    other = replace(group, number=2, slot_base=64, mcast_group=3).install_members().install_tree()
    complete(group, 5)
    group.contribute(a, lanes(group, 5))
    group.send(PARENT, from_parent(group, 99))
    group.send(PARENT, from_parent(group, 99))
    group.contribute(b, lanes(group, 5))
    group.contribute(b, lanes(group, 5), slot=2 * group.slots)
    group.contribute(b, lanes(group, 5), round=2**31 + 5)
    other.contribute(a, lanes(group, 5))
    counted = {"ABSORB": 1, "FORWARD_UP": 1, "FORWARD_UP_AGAIN": 1, "DELIVER_DOWN": 1, "LATE_RESULT": 1}
    assert group.outcomes() == counted | {"REFLECT": 1, "REFUSED": 1, "STALE": 1}
    assert other.outcomes() == {"ABSORB": 1}
