# SPDX-License-Identifier: Apache-2.0
"""Frames of any size and kind through every target. The golden vectors test tables, state and replication."""

from __future__ import annotations

import pytest
from dataplane.harness import Switch
from dataplane.programs import ROUTER
from scapy.layers.inet import IP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet

from railweave.switch.targets import TARGETS

PEER = 0x020000000002

pytestmark = pytest.mark.parametrize("target", ["inprocess", *TARGETS], indirect=True)


def frame(payload: Packet | bytes, type_: int = 0x1234) -> bytes:
    header = Ether(dst=PEER.to_bytes(6, "big").hex(":"), src="02:00:00:00:00:01", type=type_)
    return bytes(header / payload).ljust(60, b"\0")


@pytest.fixture
def router(target: Switch) -> Switch:
    target.load(ROUTER)
    target.insert("bridge", {"destination": PEER}, "to_port", {"port": 2})
    return target


def test_frames_of_any_size_cross_unchanged_and_in_order(router: Switch) -> None:
    long = [frame(bytes(i % 251 for i in range(size - 14))) for size in (60, 61, 64, 999, 1514, 9014)]
    short = [frame(b"x" * 50)[:size] for size in (14, 15, 20, 33)]
    burst = [frame(i.to_bytes(4, "big") * 20) for i in range(300)]
    for frames in (long, short, burst):
        assert router.exchange_many([(1, data) for data in frames]) == [(2, data) for data in frames]


@pytest.mark.parametrize("outer", [0x8100, 0x88A8])
def test_tagged_frames_keep_their_tags(router: Switch, outer: int) -> None:
    two_tags = Dot1Q(vlan=4095, dei=1) / Dot1Q(vlan=1) / IP() / bytes(20)
    frames = [frame(Dot1Q(vlan=5, prio=3, type=0x1234) / bytes(50), outer), frame(two_tags, outer)]
    frames.append(frame(ARP(psrc="10.0.0.1", pdst="10.0.0.2"), 0x0806))
    for data in frames:
        assert router.exchange(1, data) == [(2, data)]


def test_copies_leave_by_their_ports_and_counters_are_read(router: Switch) -> None:
    router.multicast(9, [(1, 1), (2, 2), (4, 0)])
    router.insert("bridge", {"destination": 7}, "to_group", {"group": 9})
    data = bytes(5) + b"\7" + frame(bytes(50))[6:]
    assert sorted(router.exchange(3, data)) == [(port, data) for port in (1, 2, 4)]
    assert router.direct_counter("bridge", {"destination": 7}) == 1
    assert router.counter("arrivals", 3) >= 1  # sentinels came in, too
    router.load(ROUTER)
    assert router.exchange(1, data) == [], "the program starts without the entries of the last one"
    router.multicast(9, [(1, 1)])  # and without its groups
