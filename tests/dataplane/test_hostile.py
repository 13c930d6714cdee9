# SPDX-License-Identifier: Apache-2.0
"""Invalid packets. The switch drops each one, counts it by its reason, and changes no slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dataplane.packets import (
    FETCH,
    PORT,
    PROBE,
    RESULT,
    SPREAD,
    VIRTUAL,
    Group,
    Member,
    Switch,
    children,
    frame,
)
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

Make = Callable[[Group], tuple[Member, bytes]]
"""Returns who sends (its port counts) and the frame."""


def altered(**fields: Any) -> Make:
    """The second member's contribution with other header fields."""

    def make(g: Group) -> tuple[Member, bytes]:
        m = g.members[1]
        return m, frame(m, VIRTUAL, g.chunk(m, [1] * g.switch.lanes, **fields).pack())

    return make


def posing(**place: int) -> Make:
    """The second member's contribution from another port, address or child index."""

    def make(g: Group) -> tuple[Member, bytes]:
        m = replace(g.members[1], **place)
        return m, frame(m, VIRTUAL, g.chunk(m, [1] * g.switch.lanes).pack())

    return make


def resized(*, lanes: int = 0, udp: int = 0, ip: int = 0, cut: int = 0) -> Make:
    """The second member's contribution with extra lanes, wrong lengths, or without its last bytes."""

    def make(g: Group) -> tuple[Member, bytes]:
        m = g.members[1]
        payload = g.chunk(m, [1] * (g.switch.lanes + lanes)).pack()
        size = 8 + len(payload)
        data = frame(m, VIRTUAL, payload, {"len": (size + udp) & 0xFFFF}, len=20 + size + ip)
        return m, data[: len(data) - cut]

    return make


def with_ip(**fields: Any) -> Make:
    """The second member's contribution with other IPv4 fields."""

    def make(g: Group) -> tuple[Member, bytes]:
        m = g.members[1]
        return m, frame(m, VIRTUAL, g.chunk(m, [1] * g.switch.lanes).pack(), **fields)

    return make


def header_only(kept: int, **fields: int) -> Make:
    """The first `kept` bytes of a header, with consistent lengths and Ethernet padding."""

    def make(g: Group) -> tuple[Member, bytes]:
        m = g.members[1]
        data = frame(m, VIRTUAL, g.chunk(m, (), **fields).pack()[:kept])
        return m, data.ljust(60, b"\0")

    return make


def other(layers: Packet) -> Make:
    """A packet to the virtual address that is no aggregation packet."""

    def make(g: Group) -> tuple[Member, bytes]:
        m = g.members[1]
        ethernet = Ether(src=m.mac_text, dst=VIRTUAL.mac_text)
        return m, bytes(ethernet / IP(src=m.ip_text, dst=VIRTUAL.ip_text) / layers / Raw(bytes(32)))

    return make


HOSTILE: dict[str, tuple[Make, str]] = {
    "version 0": (altered(version=0), "bad_version"),
    "version 2": (altered(version=2), "bad_version"),
    "a fetch, which is for a host": (altered(kind=FETCH), "bad_kind"),
    "kind 15": (altered(kind=15), "bad_kind"),
    "op 2": (altered(op=2), "bad_op"),
    "op 255": (altered(op=255), "bad_op"),
    "first slot outside": (altered(slot=8), "bad_slot"),
    "last slot": (altered(slot=0xFFFF), "bad_slot"),
    "slot that wraps to the group's first": (altered(slot=0x4000), "bad_slot"),
    "result from a child": (altered(kind=RESULT), "bad_role"),
    "unknown group": (altered(group=2), "refused"),
    "group 0": (altered(group=0), "refused"),
    "another's child index": (altered(child=2), "refused"),
    "no one's child index": (altered(child=31), "refused"),
    "from another's port": (posing(port=3), "refused"),
    "from a port without members": (posing(port=4), "refused"),
    "from another's address": (posing(ip=0x0A010003), "refused"),
    "last byte missing": (resized(cut=1), "bad_length"),
    "all lanes missing": (resized(cut=64 * 4), "bad_length"),
    "one lane too few": (resized(lanes=-1), "bad_length"),
    "one lane too many": (resized(lanes=1), "bad_length"),
    "no lane": (header_only(16), "bad_length"),
    "header cut": (header_only(15), "bad_length"),
    "probe with its header cut": (header_only(15, kind=PROBE), "bad_length"),
    "spread with its header cut": (header_only(15, kind=SPREAD), "bad_length"),
    "spread without payload": (header_only(16, kind=SPREAD), "bad_length"),
    "empty": (header_only(0), "bad_length"),
    "udp length too short": (resized(udp=-4), "bad_length"),
    "udp length too long": (resized(udp=4), "bad_length"),
    "ip length too short": (resized(ip=-4), "bad_length"),
    "ip length too long": (resized(ip=4), "bad_length"),
    "ip checksum": (with_ip(chksum=0x1234), "bad_checksum"),
    "first fragment": (with_ip(flags="MF"), "no_service"),
    "later fragment": (with_ip(frag=5), "no_service"),
    "ip options": (with_ip(options=b"\x01\x01\x01\x00"), "no_service"),
    "another udp port": (other(UDP(sport=PORT, dport=PORT + 1)), "no_service"),
    "tcp": (other(TCP(dport=PORT)), "no_service"),
    "icmp unreachable": (other(ICMP(type=3)), "no_service"),
}


@pytest.fixture
def group(switch: Switch) -> Group:
    return Group(switch, children(3)).install()


def test_hostile_packets_are_counted_by_name_and_change_no_slot(group: Group) -> None:
    """Send the packets between the contributions to one chunk. Any harm would show in its result."""
    a, b, c = group.members
    ones = [1] * group.switch.lanes
    assert group.contribute(a, ones) == {}
    for name, (make, counted_as) in HOSTILE.items():
        sender, data = make(group)
        before = group.switch.action_packets("decide")
        assert group.switch.exchange(sender.port, data) == [], name
        after = group.switch.action_packets("decide")
        changed = {
            action: after[action] - before[action] for action in after if after[action] != before[action]
        }
        assert changed == {counted_as: 1}, name
    assert group.contribute(b, ones) == {}
    last = group.contribute(c, ones)
    assert last == {m.port: group.chunk(m, [3] * group.switch.lanes, kind=RESULT) for m in group.members}


def test_frames_cut_anywhere_do_no_harm(group: Group) -> None:
    """Cut a frame at many lengths, from its Ethernet header to its last byte but one."""
    a, b, c = group.members
    ones = [1] * group.switch.lanes
    assert group.contribute(a, ones) == {}
    whole = frame(b, VIRTUAL, group.chunk(b, ones).pack())
    cut = [(b.port, whole[:size]) for size in [*range(14, 96), *range(96, len(whole), 37), len(whole) - 1]]
    for port, data in group.switch.exchange_many(cut):
        assert port != b.port
        assert len(data) < 42, (
            "a frame with its UDP header was bridged"
        )  # shorter ones are any Ethernet frame
    assert group.contribute(b, ones) == {}
    assert set(group.contribute(c, ones)) == {m.port for m in group.members}


def test_a_stranger_reaches_no_slot_even_with_the_newest_round(group: Group) -> None:
    a, b, c = group.members
    ones = [1] * group.switch.lanes
    stranger = Member(ip=0x0A010063, mac=0x020000010063, port=4, child=1)
    assert group.contribute(a, ones) == {}
    assert group.contribute(stranger, ones, round=2**30) == {}
    assert group.contribute(b, ones) == {}
    assert group.contribute(c, ones)[a.port].lanes == (3,) * group.switch.lanes


def test_aggregation_needs_the_virtual_mac(group: Group) -> None:
    """The switch bridges a frame to another MAC, even if its IPv4 destination is the virtual address."""
    a = group.members[0]
    elsewhere = replace(VIRTUAL, mac=0x02000001AAAA)
    group.switch.insert("mac_table", {"destination": elsewhere.mac}, "forward", {"port": 2})
    data = frame(a, elsewhere, group.chunk(a, [1] * group.switch.lanes).pack())
    assert group.switch.exchange(a.port, data) == [(2, data)]
