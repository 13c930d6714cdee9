# SPDX-License-Identifier: Apache-2.0
"""Every target with a small router program: tables, counters, registers, multicast, odd frames."""

from __future__ import annotations

import pytest
from dataplane.harness import Switch
from dataplane.programs import ROUTER
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet

A, B = 0x020000000001, 0x020000000002
NOBODY = 0x020000000099
FULL = (1 << 48) - 1


def mac(value: int) -> str:
    return value.to_bytes(6, "big").hex(":")


def frame(to: int = B, source: int = A, payload: Packet | bytes = b"x" * 50, type_: int = 0x1234) -> bytes:
    header = Ether(dst=mac(to), src=mac(source), type=type_)
    return bytes(header / payload).ljust(60, b"\0")


@pytest.fixture
def router(target: Switch) -> Switch:
    target.load(ROUTER)
    target.insert("bridge", {"destination": B}, "to_port", {"port": 2})
    return target


@pytest.mark.parametrize("size", [60, 61, 64, 999, 1514, 9014])
def test_frames_of_any_size_cross_unchanged(router: Switch, size: int) -> None:
    data = frame(payload=bytes(i % 251 for i in range(size - 14)))
    assert router.exchange(1, data) == [(2, data)]


@pytest.mark.parametrize("size", [14, 15, 20, 33])
def test_short_frames_cross_unchanged(router: Switch, size: int) -> None:
    data = frame()[:size]
    assert router.exchange(1, data) == [(2, data)]


@pytest.mark.parametrize(
    "payload",
    [
        Dot1Q(vlan=5, prio=3, type=0x1234) / bytes(50),
        Dot1Q(vlan=4095, dei=1) / Dot1Q(vlan=1) / IP() / bytes(20),
        ARP(psrc="10.0.0.1", pdst="10.0.0.2"),
    ],
    ids=["vlan", "two tags", "arp"],
)
@pytest.mark.parametrize("outer", [0x8100, 0x88A8])
def test_tagged_frames_keep_their_tags(router: Switch, payload: Packet, outer: int) -> None:
    data = frame(payload=payload, type_=outer if Dot1Q in payload else 0x0806)
    assert router.exchange(1, data) == [(2, data)]


def test_a_burst_keeps_its_order(router: Switch) -> None:
    burst = [(1, frame(payload=i.to_bytes(4, "big") * 20)) for i in range(300)]
    assert router.exchange_many(burst) == [(2, data) for _, data in burst]


def test_a_miss_takes_the_default_action(router: Switch) -> None:
    assert router.exchange(1, frame(to=NOBODY)) == []
    router.default("bridge", "to_port", {"port": 3})
    assert router.exchange(1, frame(to=NOBODY)) == [(3, frame(to=NOBODY))]
    router.default("bridge", None)
    assert router.exchange(1, frame(to=NOBODY)) == []


def test_entries_are_modified_and_deleted(router: Switch) -> None:
    router.modify("bridge", {"destination": B}, "to_port", {"port": 4})
    assert router.exchange(1, frame()) == [(4, frame())]
    router.delete("bridge", {"destination": B})
    assert router.exchange(1, frame()) == []


def test_a_group_reaches_its_members_each_with_its_copy(router: Switch) -> None:
    router.multicast(9, [(1, 1), (2, 2), (4, 0)])
    router.insert("bridge", {"destination": NOBODY}, "to_group", {"group": 9})
    router.insert("copies", {"instance": 2}, "mark_copy", {"source": 0x0200000000EE})
    out = router.exchange(3, frame(to=NOBODY))
    changed = frame(to=NOBODY, source=0x0200000000EE)
    assert sorted(out) == [(1, frame(to=NOBODY)), (2, changed), (4, frame(to=NOBODY))]


def test_the_greatest_priority_wins(router: Switch) -> None:
    every = {"source": (A, FULL)}
    router.insert("acl", every, "drop", priority=10)
    assert router.exchange(1, frame()) == []
    router.insert("acl", every | {"type": (0x1200, 0x12FF)}, "pass", priority=20)
    router.insert("acl", every | {"port": 3}, "drop", priority=30)
    assert router.exchange(1, frame()) == [(2, frame())]
    assert router.exchange(1, frame(type_=0x1300)) == []
    assert router.exchange(3, frame()) == []
    assert router.direct_counter("acl", every, priority=10) == 2
    assert router.action_packets("acl")["drop"] == 3


def packet(to: str, ttl: int = 9) -> bytes:
    return bytes(Ether(dst=mac(NOBODY), src=mac(A)) / IP(src="10.0.0.1", dst=to, ttl=ttl) / UDP() / bytes(30))


def test_the_longest_prefix_wins_and_checksums_are_updated(router: Switch) -> None:
    router.insert("routes", {"destination": ("10.1.0.0", 16)}, "next_hop", {"port": 3, "destination": A})
    router.insert("routes", {"destination": ("10.1.2.0", 24)}, "next_hop", {"port": 4, "destination": B})
    for to, port, hop in (("10.1.9.9", 3, A), ("10.1.2.3", 4, B)):
        [(out, data)] = router.exchange(1, packet(to))
        expected = Ether(packet(to, ttl=8))
        expected.dst = mac(hop)
        assert (out, data) == (port, bytes(expected))
    assert router.exchange(1, packet("10.2.0.1")) == []


def test_const_entries_match(router: Switch) -> None:
    router.insert("acl", {"source": (A, FULL)}, "paint", {"color": 7}, priority=1)
    assert router.exchange(3, frame(to=NOBODY)) == [(1, frame(to=NOBODY))]
    assert {entry.action.name for entry in router.entries("painted")} == {"to_port"}


def test_counters_count(router: Switch) -> None:
    router.exchange_many([(1, frame())] * 5)
    router.exchange(2, frame(to=NOBODY))
    assert router.direct_counter("bridge", {"destination": B}) == 5
    # Sentinels came in by ports 1 and 2 as well.
    assert router.counter("arrivals", 1) >= 5
    assert router.counter("arrivals", 3) == 0


def test_registers_can_be_read_and_written(router: Switch) -> None:
    if router.name == "bmv2":
        pytest.skip("BMv2's P4Runtime server reads and writes no registers")
    router.exchange(3, frame(source=0x0200DEADBEEF))
    if router.name == "inprocess":
        assert router.register("last_source", 3) == 0x0200DEADBEEF
    router.set_register("last_source", 9, FULL)
    assert router.register("last_source", 9) == FULL


def test_a_program_starts_with_nothing_of_the_one_before(router: Switch) -> None:
    router.multicast(9, [(1, 1)])
    router.load(ROUTER)
    router.multicast(9, [(1, 1)])
    assert router.exchange(1, frame()) == []
