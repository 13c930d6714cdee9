# SPDX-License-Identifier: Apache-2.0
"""Invalid packets. The switch drops each one, counts it by its reason, and changes no slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from dataplane.harness import Switch
from dataplane.packets import FETCH, PORT, PROBE, RESULT, SPREAD, VIRTUAL, Group, children, frame
from scapy.layers.inet import ICMP, IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw


def hostile(
    g: Group,
    *,
    lanes: int = 0,
    header: int | None = None,
    udp_length: int = 0,
    ip_length: int = 0,
    cut: int = 0,
    udp: Mapping[str, int] = {},
    ip: Mapping[str, Any] = {},
    **fields: int,
) -> bytes:
    """Return the second member's contribution, with header fields and other changes.

    `lanes` and the two lengths are differences. `header` keeps only the first bytes of the payload.
    """
    m = g.members[1]
    payload = g.chunk(m, [1] * (g.switch.lanes + lanes), **fields).pack()[:header]
    size = 8 + len(payload)
    length = {"len": (size + udp_length) & 0xFFFF}
    data = frame(m, VIRTUAL, payload, length | dict(udp), len=20 + size + ip_length, **ip)
    return data[: len(data) - cut].ljust(60, b"\0")


def other(layers: Packet, g: Group) -> bytes:
    """Return a packet to the virtual address that is no aggregation packet."""
    m = g.members[1]
    ethernet = Ether(src=m.mac_text, dst=VIRTUAL.mac_text)
    return bytes(ethernet / IP(src=m.ip_text, dst=VIRTUAL.ip_text) / layers / Raw(bytes(32)))


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "version 0": ({"version": 0}, "bad_version"),
    "version 2": ({"version": 2}, "bad_version"),
    "a shard of version 2": ({"kind": SPREAD, "version": 2}, "bad_version"),
    "a fetch, which is for a host": ({"kind": FETCH}, "bad_kind"),
    "kind 15": ({"kind": 15}, "bad_kind"),
    "op 2": ({"op": 2}, "bad_op"),
    "op 255": ({"op": 255}, "bad_op"),
    "a shard with op 2": ({"kind": SPREAD, "op": 2}, "bad_op"),
    "first slot outside": ({"slot": 8}, "bad_slot"),
    "last slot": ({"slot": 0xFFFF}, "bad_slot"),
    "slot that wraps to the group's first": ({"slot": 0x4000}, "bad_slot"),
    "result from a child": ({"kind": RESULT}, "bad_role"),
    "last byte missing": ({"cut": 1}, "bad_length"),
    "all lanes missing": ({"cut": 64 * 4}, "bad_length"),
    "one lane too few": ({"lanes": -1}, "bad_length"),
    "one lane too many": ({"lanes": 1}, "bad_length"),
    "no lane": ({"header": 16}, "bad_length"),
    "header cut": ({"header": 15}, "bad_length"),
    "probe with its header cut": ({"header": 15, "kind": PROBE}, "bad_length"),
    "shard with its header cut": ({"header": 15, "kind": SPREAD}, "bad_length"),
    "shard without payload": ({"header": 16, "kind": SPREAD}, "bad_length"),
    "empty": ({"header": 0}, "bad_length"),
    **{
        f"{length} of kind {kind} {by:+}": ({"kind": kind, length: by}, "bad_length")
        for kind, step in ((0, 4), (SPREAD, 1))
        for length in ("udp_length", "ip_length")
        for by in (-step, step)
    },
    "ip checksum": ({"ip": {"chksum": 0x1234}}, "bad_checksum"),
    "first fragment": ({"ip": {"flags": "MF"}}, "no_service"),
    "later fragment": ({"ip": {"frag": 5}}, "no_service"),
    "ip options": ({"ip": {"options": b"\x01\x01\x01\x00"}}, "no_service"),
    "another udp port": ({"udp": {"dport": PORT + 1}}, "no_service"),
    "tcp": ({"layers": TCP(dport=PORT)}, "no_service"),
    "icmp unreachable": ({"layers": ICMP(type=3)}, "no_service"),
}


@pytest.fixture
def group(switch: Switch) -> Group:
    return Group(switch, children(3)).install()


def test_hostile_packets_are_counted_by_name_and_change_no_slot(group: Group) -> None:
    """Send the packets between the contributions to one chunk. Any harm would show in its result."""
    a, b, c = group.members
    ones = [1] * group.switch.lanes
    assert group.contribute(a, ones) == {}
    for name, (changes, counted_as) in HOSTILE.items():
        data = other(g=group, **changes) if "layers" in changes else hostile(group, **changes)
        before = group.switch.action_packets("decide")
        assert group.switch.exchange(b.port, data) == [], name
        after = group.switch.action_packets("decide")
        assert {action for action in after if after[action] != before[action]} == {counted_as}, name
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
        # Any shorter frame is bridged.
        assert len(data) < 42, "a frame with its UDP header was bridged"
    assert group.contribute(b, ones) == {}
    assert set(group.contribute(c, ones)) == {m.port for m in group.members}


def test_aggregation_needs_the_virtual_mac(group: Group) -> None:
    """The switch bridges a frame to another MAC, even if its IPv4 destination is the virtual address."""
    a = group.members[0]
    elsewhere = replace(VIRTUAL, mac=0x02000001AAAA)
    group.switch.insert("mac_table", {"destination": elsewhere.mac}, "forward", {"port": 2})
    data = frame(a, elsewhere, group.chunk(a, [1] * group.switch.lanes).pack())
    assert group.switch.exchange(a.port, data) == [(2, data)]
