# SPDX-License-Identifier: Apache-2.0
"""Functions of the program besides aggregation: bridging, ARP and ICMP echo, injected loss."""

from __future__ import annotations

import pytest
from dataplane.harness import Switch
from dataplane.inprocess import InProcessSwitch
from dataplane.packets import FETCH, SPREAD, VIRTUAL, Chunk, Group, Station, children, frame
from dataplane.programs import PLACES, TNA, aggregation, place_name
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

FLOOD_GROUP = 1
HOST, PEER = children(2)
BROADCAST = "ff:ff:ff:ff:ff:ff"
ALWAYS, HALF = 2**32 - 1, 2**31  # thresholds of the loss injector
INJECTING = [(target, program) for target, program in PLACES if program not in TNA]


@pytest.fixture
def bridge(switch: Switch) -> Switch:
    switch.multicast(FLOOD_GROUP, [(port, 0) for port in switch.ports])
    switch.insert("virtual_addresses", {"address": VIRTUAL.ip}, "owned", {"mac": VIRTUAL.mac})
    switch.insert("mac_table", {"destination": PEER.mac}, "forward", {"port": PEER.port})
    return switch


def ether(sender: Station = HOST, dst: str = PEER.mac_text, **fields: int) -> Ether:
    return Ether(src=sender.mac_text, dst=dst, **fields)


def datagram(sender: Station, to: Station, size: int) -> bytes:
    packet = ether(sender, to.mac_text) / IP(src=sender.ip_text, dst=to.ip_text)
    return bytes(packet / UDP(sport=7, dport=9) / Raw(bytes(n % 251 for n in range(size))))


def others(switch: Switch, port: int, data: bytes) -> list[tuple[int, bytes]]:
    return [(p, data) for p in switch.ports if p != port]


def test_frames_to_a_known_address_are_forwarded_unchanged(bridge: Switch) -> None:
    to_peer = ether() / IP(dst=PEER.ip_text)
    frames = [
        *(datagram(HOST, PEER, size).ljust(60, b"\0") for size in (0, 18, 200, 1472)),
        *(bytes(ether() / IP(chksum=wrong) / UDP()).ljust(60, b"\0") for wrong in (0, 0x1234, 0xFFFF)),
        frame(HOST, PEER, bytes(16 + 4 * bridge.lanes)),  # aggregation between others
        *(frame(HOST, PEER, Chunk(kind=kind).pack() + bytes(4)) for kind in (SPREAD, FETCH)),
        bytes(to_peer / ICMP() / Raw(bytes(32))),
    ]
    for data in frames:
        assert bridge.exchange(HOST.port, data) == [(PEER.port, data)]
    assert bridge.exchange(PEER.port, datagram(HOST, PEER, 64)) == [], "a frame to its own port"


@pytest.mark.parametrize("destination", [BROADCAST, "01:00:5e:00:00:01", "02:00:00:00:99:99"])
def test_unknown_and_group_addresses_are_flooded_but_not_back(bridge: Switch, destination: str) -> None:
    for ethertype in (0x0800, 0x0806, 0x86DD, 0x1234):
        data = bytes(ether(dst=destination, type=ethertype)) + bytes(range(60))
        assert sorted(bridge.exchange(3, data)) == others(bridge, 3, data)


def test_the_controller_may_choose_another_group_to_flood(bridge: Switch) -> None:
    bridge.multicast(9, [(1, 0), (4, 0)])
    bridge.default("mac_table", "flood", {"mcast_group": 9})
    data = bytes(ether(PEER, BROADCAST, type=0x1234)) + bytes(50)
    assert sorted(bridge.exchange(2, data)) == [(1, data), (4, data)]


def arp_request(target: str, **fields: int) -> bytes:
    question = ARP(hwsrc=HOST.mac_text, psrc=HOST.ip_text, pdst=target, **fields)
    return bytes(ether(dst=BROADCAST) / question).ljust(60, b"\0")


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
        arp_request(VIRTUAL.ip_text, op=2),
    ],
    ids=["another's", "hardware", "protocol", "cut", "reply"],
)
def test_other_arp_is_flooded(bridge: Switch, data: bytes) -> None:
    assert sorted(bridge.exchange(HOST.port, data)) == others(bridge, HOST.port, data)


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\xf7"])
def test_echo_to_a_virtual_address_is_answered(bridge: Switch, filler: bytes) -> None:
    for size in (0, 1, 56, 1400):
        echo = IP(src=HOST.ip_text, dst=VIRTUAL.ip_text) / ICMP(id=0x1111, seq=2) / Raw(filler * size)
        [(port, data)] = bridge.exchange(HOST.port, bytes(ether(dst=VIRTUAL.mac_text) / echo))
        expected = IP(src=VIRTUAL.ip_text, dst=HOST.ip_text, id=echo.id) / ICMP(type=0, id=0x1111, seq=2)
        answer = ether(VIRTUAL, HOST.mac_text) / expected / Raw(filler * size)
        assert (port, data) == (HOST.port, bytes(answer))


def lose(switch: Switch, direction: str, port: int, threshold: int = ALWAYS) -> None:
    switch.insert(f"injector_{direction}", {"port": port}, "inject_loss", {"threshold": threshold})


@pytest.mark.parametrize("switch", INJECTING, indirect=True, ids=place_name)
@pytest.mark.parametrize("direction", ["ingress", "egress"])
@pytest.mark.parametrize(("threshold", "lost"), [(0, (0, 0)), (HALF, (57, 143)), (ALWAYS, (200, 200))])
def test_injected_loss_has_the_probability_asked_for(
    bridge: Switch, direction: str, threshold: int, lost: tuple[int, int]
) -> None:
    """The bounds of one half are six standard deviations."""
    port = HOST.port if direction == "ingress" else PEER.port
    data = datagram(HOST, PEER, 64)
    lose(bridge, direction, port, threshold)
    arrived = bridge.exchange_many([(HOST.port, data)] * 200)
    assert arrived == [(PEER.port, data)] * len(arrived)
    assert lost[0] <= 200 - len(arrived) <= lost[1]
    # The harness's own frames may have passed the injector too, so the counters may be greater.
    assert bridge.counter(f"injected_drops_{direction}", port) >= 200 - len(arrived)
    assert bridge.direct_counter(f"injector_{direction}", {"port": port}) >= 200


@pytest.mark.parametrize("switch", INJECTING, indirect=True, ids=place_name)
def test_loss_on_one_port_leaves_the_others_alone(bridge: Switch) -> None:
    lose(bridge, "egress", 4)
    data = datagram(HOST, PEER, 64)
    assert bridge.exchange(HOST.port, data) == [(PEER.port, data)]
    assert bridge.counter("injected_drops_egress", PEER.port) == 0


def test_copies_are_lost_one_by_one_and_the_copy_that_would_go_back_is_no_loss() -> None:
    """This test runs in process, where no sentinels pass the injector."""
    group = Group(InProcessSwitch().load(aggregation(64)), children(3)).install()
    a, b, c = group.members
    shard = frame(a, VIRTUAL, group.chunk(a, (), kind=SPREAD).pack() + b"shard")
    for port in (a.port, b.port):
        lose(group.switch, "egress", port)
    assert [port for port, _ in group.switch.exchange(a.port, shard)] == [c.port]
    drops = [group.switch.counter("injected_drops_egress", m.port) for m in group.members]
    assert drops == [0, 1, 0]
    lose(group.switch, "ingress", a.port)
    assert group.switch.exchange(a.port, shard) == []
    assert group.outcomes() == {"SPREAD": 1}
