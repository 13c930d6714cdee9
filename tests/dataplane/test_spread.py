# SPDX-License-Identifier: Apache-2.0
"""SPREAD packets. Each packet reaches all other members of its group once and changes no register."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dataplane.inprocess import InProcessSwitch
from dataplane.packets import (
    FETCH,
    PARENT,
    RESULT,
    SPREAD,
    VIRTUAL,
    Chunk,
    Group,
    Member,
    Switch,
    children,
    frame,
    open_frame,
)
from dataplane.programs import aggregation

HEADERS = 44  # IPv4, UDP and the packet's own
SIZES = (1, 1024, 1500 - HEADERS, 9000 - HEADERS)
NEVER = 2**32 - 1  # the injector's threshold that lets nothing through


@pytest.fixture(params=[True, False], ids=["root", "leaf"])
def group(request: pytest.FixtureRequest, switch: Switch) -> Group:
    return Group(switch, children(3), root=request.param).install()


def everybody(group: Group) -> tuple[Member, ...]:
    """Return the neighbours that send to this switch and get the packets of the others."""
    return group.members if group.root else (*group.members, PARENT)


def packet(group: Group, sender: Member, payload: bytes, /, **fields: Any) -> bytes:
    """Return a frame of a member. Its slot (a rank) and round (a chunk number) match no slot."""
    there = {"kind": SPREAD, "slot": 0xFFFF, "round": 2**31 + 7} | fields
    return frame(sender, VIRTUAL, group.chunk(sender, (), **there).pack() + payload)


def arrived(group: Group, frames: list[tuple[int, bytes]], payload: bytes) -> list[Member]:
    """Check that copies differ only in their addresses. Return their receivers in the ports' order."""
    found = []
    for port, data in sorted(frames):
        header_bytes = data[42:58]
        to = next(m for m in everybody(group) if (m.port, m.child) == (port, header_bytes[4]))
        expected = group.chunk(to, (), kind=SPREAD, slot=0xFFFF, round=2**31 + 7)
        assert open_frame(data, VIRTUAL, to) == (to.udp_port, expected.pack() + payload)
        found.append(to)
    return found


def test_what_anybody_sends_reaches_all_others_once(group: Group) -> None:
    for number, sender in enumerate(everybody(group), start=1):
        for size in SIZES:
            payload = bytes((number + place) % 251 for place in range(size))
            frames = group.switch.exchange(sender.port, packet(group, sender, payload))
            assert arrived(group, frames, payload) == [m for m in everybody(group) if m != sender]
        assert group.switch.action_packets("decide")["spread"] == number * len(SIZES)
    assert group.outcomes() == {"SPREAD": len(everybody(group)) * len(SIZES)}


def test_ethernets_padding_is_no_payload(group: Group) -> None:
    a = group.members[0]
    for payload in (b"\x55", b"\x55" * 2):
        frames = group.switch.exchange(a.port, packet(group, a, payload).ljust(60, b"\xaa"))
        assert arrived(group, frames, payload) == [m for m in everybody(group) if m != a]


def test_ranks_behind_one_port_reach_each_other(switch: Switch) -> None:
    """The switch sends no copy to the sender, but it does send copies to the sender's port."""
    a, b, c = children(3)
    group = Group(switch, (a, replace(b, port=a.port), c), root=False).install()
    for sender in group.members:
        frames = switch.exchange(sender.port, packet(group, sender, b"shard"))
        assert arrived(group, frames, b"shard") == [m for m in everybody(group) if m != sender]


def test_other_groups_get_nothing(group: Group) -> None:
    others = tuple(replace(m, udp_port=50_000 + m.port) for m in group.members[:2])
    beside = replace(group, members=others, number=2, slot_base=64, mcast_group=3)
    beside.install_members().install_tree()
    for sender in everybody(beside):
        frames = group.switch.exchange(sender.port, packet(beside, sender, b"shard"))
        assert arrived(beside, frames, b"shard") == [m for m in everybody(beside) if m != sender]
    assert group.outcomes() == {}
    assert beside.outcomes() == {"SPREAD": len(everybody(beside))}


def posing(member: Member) -> dict[str, Member]:
    """Return strangers that differ from the member in one property."""
    return {
        "from another port": replace(member, port=member.port % 4 + 1),
        "as another child": replace(member, child=member.child + 1),
        "as no child": replace(member, child=31),
        "from another address": replace(member, ip=member.ip + 0x100),
    }


def test_strangers_reach_nobody(group: Group) -> None:
    strangers = 0
    for sender in everybody(group):
        for name, stranger in posing(sender).items():
            assert group.switch.exchange(stranger.port, packet(group, stranger, bytes(1024))) == [], name
            strangers += 1
        for number in (0, 2, 0xFFFF):
            elsewhere = packet(group, sender, bytes(1024), group=number)
            assert group.switch.exchange(sender.port, elsewhere) == [], number
            strangers += 1
    assert group.switch.action_packets("decide")["refused"] == strangers
    assert group.outcomes() == {}


LENGTHS = {  # errors of the UDP and IPv4 lengths
    "udp too short": (-1, 0),
    "udp too long": (1, 0),
    "ip too short": (0, -1),
    "ip too long": (0, 1),
    "no payload": (-8, -8),
    "less than a header": (-9, -9),
}


def test_lengths_that_do_not_fit_are_refused(group: Group) -> None:
    a = group.members[0]
    payload = group.chunk(a, (), kind=SPREAD).pack() + bytes(8)
    for count, (name, (udp, ip)) in enumerate(LENGTHS.items(), start=1):
        data = frame(a, VIRTUAL, payload, {"len": 8 + 24 + udp}, len=28 + 24 + ip)
        assert group.switch.exchange(a.port, data) == [], name
        assert group.switch.action_packets("decide")["bad_length"] == count, name


@pytest.mark.parametrize(("field", "counted_as"), [("op", "bad_op"), ("version", "bad_version")])
def test_other_operations_and_versions_are_refused(group: Group, field: str, counted_as: str) -> None:
    a = group.members[0]
    assert group.switch.exchange(a.port, packet(group, a, bytes(1024), **{field: 2})) == []
    assert group.switch.action_packets("decide")[counted_as] == 1


def test_sums_in_progress_do_not_notice(group: Group) -> None:
    """Send SPREAD packets between contributions to a slot, with its number and with later rounds."""
    a, b, c = group.members
    ones = (1,) * group.switch.lanes
    noise = bytes(n % 256 for n in range(4 * group.switch.lanes))

    def disturb() -> None:
        for sender in everybody(group):
            for slot, later in ((3, 0), (3, 1), (3, 2**30), (0x4003, 0)):
                fields = {"slot": slot, "round": 9 + later, "mark": 0xBAD, "flags": 14}
                assert group.switch.exchange(sender.port, packet(group, sender, noise, **fields))

    for sender in (a, b):
        assert group.contribute(sender, ones, slot=3, round=9) == {}
        disturb()
    complete = group.contribute(c, ones, slot=3, round=9)
    if not group.root:
        assert complete == {PARENT.port: group.chunk(PARENT, [3] * len(ones), slot=3, round=9)}
        disturb()
        complete = group.send(PARENT, group.chunk(PARENT, [3] * len(ones), kind=RESULT, slot=3, round=9))
    result = {"kind": RESULT, "slot": 3, "round": 9}
    assert complete == {m.port: group.chunk(m, [3] * len(ones), **result) for m in group.members}


def test_no_register_changes(group: Group) -> None:
    if group.switch.name == "bmv2":
        pytest.skip("BMv2's P4Runtime server reads no registers")
    last = group.switch.lanes - 1
    digits = len(f"{last:02X}")
    names = ("slot_tag", "slot_seen", "slot_mark", "slot_flags", f"lane_{0:0{digits}X}", f"lane_{last:02X}")
    for sender in everybody(group):
        payload = b"\xff" * 4 * group.switch.lanes
        assert group.switch.exchange(sender.port, packet(group, sender, payload, slot=2, round=5, flags=14))
    assert {group.switch.register(name, group.slot_base + 2) for name in names} == {0}


@pytest.mark.usefixtures("injector")
def test_copies_can_be_lost_one_by_one(group: Group) -> None:
    a, b, *_ = group.members
    group.switch.insert("injector_egress", {"port": b.port}, "inject_loss", {"threshold": NEVER})
    frames = group.switch.exchange(a.port, packet(group, a, b"shard"))
    assert arrived(group, frames, b"shard") == [m for m in everybody(group) if m not in (a, b)]
    assert group.switch.counter("injected_drops_egress", b.port) >= 1


@pytest.mark.usefixtures("injector")
def test_losses_on_the_way_in_reach_nobody(group: Group) -> None:
    a = group.members[0]
    group.switch.insert("injector_ingress", {"port": a.port}, "inject_loss", {"threshold": NEVER})
    assert group.switch.exchange(a.port, packet(group, a, b"shard")) == []
    assert group.outcomes() == {}


def test_the_copy_that_would_go_back_is_not_counted_as_lost() -> None:
    """This test runs in process, where no sentinels pass the injector."""
    group = Group(InProcessSwitch().load(aggregation(64)), children(3)).install()
    a = group.members[0]
    group.switch.insert("injector_egress", {"port": a.port}, "inject_loss", {"threshold": NEVER})
    frames = group.switch.exchange(a.port, packet(group, a, b"shard"))
    assert arrived(group, frames, b"shard") == list(group.members[1:])
    assert group.switch.counter("injected_drops_egress", a.port) == 0


@pytest.mark.parametrize("kind", [SPREAD, FETCH])
def test_between_hosts_they_are_frames_like_others(group: Group, kind: int) -> None:
    a, b, _ = group.members
    group.switch.insert("mac_table", {"destination": b.mac}, "forward", {"port": b.port})
    data = frame(a, b, Chunk(kind=kind, group=group.number, child=a.child).pack() + bytes(4))
    assert group.switch.exchange(a.port, data) == [(b.port, data)]
    assert group.outcomes() == {}
