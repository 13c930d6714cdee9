# SPDX-License-Identifier: Apache-2.0
"""Functions of the program besides aggregation: bridging, ARP and ICMP echo, injected loss."""

from __future__ import annotations

import pytest
from dataplane.packets import VIRTUAL, Station, Switch, children, frame
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

FLOOD_GROUP = 1
HOST, PEER = children(2)
BROADCAST = "ff:ff:ff:ff:ff:ff"


@pytest.fixture
def bridge(switch: Switch) -> Switch:
    switch.multicast(FLOOD_GROUP, [(port, 0) for port in switch.ports])
    switch.insert("virtual_addresses", {"address": VIRTUAL.ip}, "owned", {"mac": VIRTUAL.mac})
    switch.insert("mac_table", {"destination": PEER.mac}, "forward", {"port": PEER.port})
    return switch


def datagram(sender: Station, to: Station, size: int) -> bytes:
    packet = Ether(src=sender.mac_text, dst=to.mac_text) / IP(src=sender.ip_text, dst=to.ip_text)
    return bytes(packet / UDP(sport=7, dport=9) / Raw(bytes(n % 251 for n in range(size))))


def others(switch: Switch, port: int, data: bytes) -> list[tuple[int, bytes]]:
    return [(p, data) for p in switch.ports if p != port]


@pytest.mark.parametrize("size", [0, 18, 200, 1472])
def test_a_known_address_is_forwarded_unchanged(bridge: Switch, size: int) -> None:
    data = datagram(HOST, PEER, size).ljust(60, b"\0")
    assert bridge.exchange(HOST.port, data) == [(PEER.port, data)]


def test_a_frame_to_its_own_port_is_dropped(bridge: Switch) -> None:
    assert bridge.exchange(PEER.port, datagram(HOST, PEER, 64)) == []


@pytest.mark.parametrize("destination", [BROADCAST, "01:00:5e:00:00:01", "02:00:00:00:99:99"])
@pytest.mark.parametrize("ethertype", [0x0800, 0x0806, 0x86DD, 0x1234])
def test_unknown_and_group_addresses_are_flooded_but_not_back(
    bridge: Switch, destination: str, ethertype: int
) -> None:
    data = bytes(Ether(src=HOST.mac_text, dst=destination, type=ethertype)) + bytes(range(60))
    assert sorted(bridge.exchange(3, data)) == others(bridge, 3, data)


def test_the_controller_may_choose_another_group_to_flood(bridge: Switch) -> None:
    bridge.multicast(9, [(1, 0), (4, 0)])
    bridge.default("mac_table", "flood", {"mcast_group": 9})
    data = bytes(Ether(src=PEER.mac_text, dst=BROADCAST, type=0x1234)) + bytes(50)
    assert sorted(bridge.exchange(2, data)) == [(1, data), (4, data)]


@pytest.mark.parametrize("checksum", [0, 0x1234, 0xFFFF])
def test_a_bridged_packet_keeps_a_wrong_checksum(bridge: Switch, checksum: int) -> None:
    packet = Ether(src=HOST.mac_text, dst=PEER.mac_text) / IP(dst=PEER.ip_text, chksum=checksum) / UDP()
    data = bytes(packet).ljust(60, b"\0")
    assert bridge.exchange(HOST.port, data) == [(PEER.port, data)]


def test_aggregation_between_others_is_bridged(bridge: Switch) -> None:
    data = frame(HOST, PEER, bytes(16 + 4 * bridge.lanes))
    assert bridge.exchange(HOST.port, data) == [(PEER.port, data)]


def arp_request(target: int | str, **fields: int) -> bytes:
    question = ARP(op=1, hwsrc=HOST.mac_text, psrc=HOST.ip_text, pdst=str(target), **fields)
    return bytes(Ether(src=HOST.mac_text, dst=BROADCAST) / question).ljust(60, b"\0")


def test_arp_for_a_virtual_address_is_answered(bridge: Switch) -> None:
    [(port, data)] = bridge.exchange(HOST.port, arp_request(VIRTUAL.ip_text))
    answer = Ether(data)
    assert (port, answer.dst, answer.src) == (HOST.port, HOST.mac_text, VIRTUAL.mac_text)
    assert (answer[ARP].op, answer[ARP].hwsrc, answer[ARP].psrc) == (2, VIRTUAL.mac_text, VIRTUAL.ip_text)
    assert (answer[ARP].hwdst, answer[ARP].pdst) == (HOST.mac_text, HOST.ip_text)


@pytest.mark.parametrize(
    "data",
    [
        arp_request(PEER.ip_text),
        arp_request(VIRTUAL.ip_text, hwtype=6),
        arp_request(VIRTUAL.ip_text, ptype=0x86DD),
        arp_request(VIRTUAL.ip_text)[:41],
        bytes(Ether(src=HOST.mac_text, dst=BROADCAST) / ARP(op=2, pdst=VIRTUAL.ip_text)),
    ],
    ids=["another's", "hardware", "protocol", "cut", "reply"],
)
def test_other_arp_is_flooded(bridge: Switch, data: bytes) -> None:
    assert sorted(bridge.exchange(HOST.port, data)) == others(bridge, HOST.port, data)


@pytest.mark.parametrize("size", [0, 1, 56, 1400])
@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\xf7"])
def test_echo_to_a_virtual_address_is_answered(bridge: Switch, size: int, filler: bytes) -> None:
    echo = IP(src=HOST.ip_text, dst=VIRTUAL.ip_text) / ICMP(id=0x1111, seq=2) / Raw(filler * size)
    request = Ether(src=HOST.mac_text, dst=VIRTUAL.mac_text) / echo
    [(port, data)] = bridge.exchange(HOST.port, bytes(request))
    answer = Ether(data)
    assert (port, answer.src, answer.dst) == (HOST.port, VIRTUAL.mac_text, HOST.mac_text)
    assert (answer[IP].src, answer[IP].dst) == (VIRTUAL.ip_text, HOST.ip_text)
    expected = IP(src=VIRTUAL.ip_text, dst=HOST.ip_text, id=echo.id) / ICMP(type=0, id=0x1111, seq=2)
    assert bytes(answer[IP]) == bytes(expected / Raw(filler * size))


def test_echo_between_others_is_bridged(bridge: Switch) -> None:
    echo = Ether(src=HOST.mac_text, dst=PEER.mac_text) / IP(dst=PEER.ip_text) / ICMP() / Raw(bytes(32))
    assert bridge.exchange(HOST.port, bytes(echo)) == [(PEER.port, bytes(echo))]


@pytest.mark.usefixtures("injector")
@pytest.mark.parametrize("direction", ["ingress", "egress"])
@pytest.mark.parametrize(("threshold", "lost"), [(0, (0, 0)), (2**31, (57, 143)), (2**32 - 1, (200, 200))])
def test_injected_loss_has_the_probability_asked_for(
    bridge: Switch, direction: str, threshold: int, lost: tuple[int, int]
) -> None:
    """Send 200 frames in batches that fit all queues. The bounds of one half are six standard deviations."""
    port = HOST.port if direction == "ingress" else PEER.port
    data = datagram(HOST, PEER, 64)
    bridge.insert(f"injector_{direction}", {"port": port}, "inject_loss", {"threshold": threshold})
    arrived = [got for _ in range(10) for got in bridge.exchange_many([(HOST.port, data)] * 20)]
    assert arrived == [(PEER.port, data)] * len(arrived)
    assert lost[0] <= 200 - len(arrived) <= lost[1]
    # The harness's own frames may have passed the injector too, so the counters may be greater.
    assert bridge.counter(f"injected_drops_{direction}", port) >= 200 - len(arrived)
    assert bridge.direct_counter(f"injector_{direction}", {"port": port}) >= 200


@pytest.mark.usefixtures("injector")
def test_loss_on_one_port_leaves_the_others_alone(bridge: Switch) -> None:
    bridge.insert("injector_egress", {"port": 4}, "inject_loss", {"threshold": 2**32 - 1})
    data = datagram(HOST, PEER, 64)
    assert bridge.exchange(HOST.port, data) == [(PEER.port, data)]
    assert bridge.counter("injected_drops_egress", PEER.port) == 0
