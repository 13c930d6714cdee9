# SPDX-License-Identifier: Apache-2.0
"""The source guard. A host can send only with its own addresses; other frames are dropped and counted."""

from __future__ import annotations

import pytest
from dataplane.harness import Switch
from dataplane.packets import VIRTUAL, Group, Station, children, frame
from dataplane.programs import PLACES, SENTINEL_SOURCE, everywhere, netreduce, place_name
from hostile import forging
from hostile.forging import BROADCAST, Guess, Target, arp, ethernet, ipv4, syn, tagged, udp

from railweave.controller import desired
from railweave.topologies.model import Nic, Plane, Trunk

EVERY_PROGRAM = pytest.mark.parametrize(
    "switch", [*PLACES, *everywhere(netreduce)], indirect=True, ids=place_name
)

HOST, PEER = children(2)
TRUNK, UNLISTED = 3, 4
FLOOD_GROUP = 1
EVERYBODY = Station(0xFFFFFFFF, BROADCAST)
IPV6, LLDP, SERVICE_TAG = 0x86DD, 0x88CC, 0x88A8


def datagram(source: Station, to: Station = PEER) -> bytes:
    return udp(source, to, 7, 9, bytes(40))


def with_options(source: Station) -> bytes:
    whole = ipv4(source, PEER, 17, b"\x01" * 4 + bytes(40))
    return whole[:14] + b"\x46" + whole[15:]


def fragment(source: Station) -> bytes:
    whole = datagram(source)
    return whole[:20] + b"\x00\x10" + whole[22:]


AS_PEER = Station(PEER.ip, HOST.mac)
WITH_PEERS_MAC = Station(HOST.ip, PEER.mac)
AS_SWITCH = Station(VIRTUAL.ip, HOST.mac)
OWN_WITHOUT_ADDRESS = Station(0, HOST.mac)

FORGED = {
    "another host's address": datagram(AS_PEER),
    "another host's MAC": datagram(WITH_PEERS_MAC),
    "another host": datagram(PEER),
    "a virtual address": datagram(AS_SWITCH),
    "the switch": datagram(VIRTUAL),
    "an address of no host": datagram(Station(0x08080808, HOST.mac)),
    "loopback": datagram(Station(0x7F000001, HOST.mac)),
    "a fragment": fragment(AS_SWITCH),
    "IPv4 options": with_options(AS_SWITCH),
    "no address, another MAC": datagram(Station(0, PEER.mac), EVERYBODY),
    "ARP about another host's address": arp(HOST, PEER.ip, says=AS_PEER),
    "ARP about a virtual address": arp(HOST, PEER.ip, says=AS_SWITCH, reply=True),
    "ARP about another MAC": arp(HOST, PEER.ip, says=WITH_PEERS_MAC, reply=True),
    "ARP with another MAC": arp(WITH_PEERS_MAC, PEER.ip, says=HOST),
    "IPv6 with another MAC": ethernet(PEER, EVERYBODY, IPV6, bytes(60)),
    "VLAN 0": tagged(datagram(HOST)),
    "a service tag of VLAN 0": tagged(datagram(VIRTUAL), SERVICE_TAG),
    "two tags": tagged(tagged(datagram(AS_SWITCH)), SERVICE_TAG),
    **{
        f"{kind} of {name}": forge(Guess(lanes=64), claimed, Target(PEER))
        for kind, forge in forging.KINDS.items()
        for name, claimed in (("the switch", VIRTUAL), ("a virtual address", AS_SWITCH), ("a member", PEER))
    },
}
OWN = {
    "UDP": datagram(HOST),
    "TCP": syn(Guess(), HOST, Target(PEER)),
    "a fragment": fragment(HOST),
    "IPv4 options": with_options(HOST),
    "broadcast": datagram(HOST, EVERYBODY),
    "without an address yet": datagram(OWN_WITHOUT_ADDRESS, EVERYBODY),
    "ARP": arp(HOST, PEER.ip),
    "ARP reply": arp(HOST, PEER.ip, reply=True),
    "ARP probe": arp(OWN_WITHOUT_ADDRESS, HOST.ip),
    "IPv6": ethernet(HOST, EVERYBODY, IPV6, bytes(60)),
    "LLDP": ethernet(HOST, EVERYBODY, LLDP, bytes(60)),
}


def plane() -> Plane:
    """Return a plane with the hosts on their ports of a switch, and a trunk to another switch."""
    nics = (Nic(f"h{m.port}", "eth0", m.ip_text, m.mac_text, "s", m.port) for m in (HOST, PEER))
    return Plane("ina", "ina", "10.1.0.0/16", 0, (), tuple(nics), (Trunk("s", TRUNK, "spine", 1),))


@pytest.fixture
def guarded(switch: Switch) -> Switch:
    """Set up bridging and the source guard on a switch, as the controller does."""
    for port in switch.ports:
        switch.delete("trunk_ports", {"ingress_port": port})
        switch.insert("other_sources", {"ingress_port": port, "mac": SENTINEL_SOURCE}, "own")
    switch.install(desired.source_guard(plane(), "s"))
    switch.multicast(FLOOD_GROUP, [(PEER.port, 0)])
    switch.insert("mac_table", {"destination": PEER.mac}, "forward", {"port": PEER.port})
    return switch


def forged(switch: Switch, port: int) -> int:
    return switch.counter("forged_sources", port)


@EVERY_PROGRAM
def test_forged_frames_are_dropped_and_counted_at_their_port(guarded: Switch) -> None:
    assert guarded.exchange_many([(HOST.port, frame) for frame in FORGED.values()]) == []
    assert forged(guarded, HOST.port) == len(FORGED)
    assert forged(guarded, PEER.port) == 0


@EVERY_PROGRAM
def test_own_frames_pass_unchanged(guarded: Switch) -> None:
    sent = [(HOST.port, frame) for frame in OWN.values()]
    assert guarded.exchange_many(sent) == [(PEER.port, frame) for frame in OWN.values()]
    assert forged(guarded, HOST.port) == 0


@EVERY_PROGRAM
def test_nobody_speaks_at_a_port_that_the_topology_does_not_list(guarded: Switch) -> None:
    """Frames with a valid pair of addresses are dropped too."""
    frames = [*OWN.values(), *FORGED.values()]
    assert guarded.exchange_many([(UNLISTED, frame) for frame in frames]) == []
    assert forged(guarded, UNLISTED) == len(frames)


@EVERY_PROGRAM
def test_another_switch_speaks_for_all_behind_it(guarded: Switch) -> None:
    frames = [*OWN.values(), datagram(VIRTUAL), tagged(datagram(AS_PEER), vlan=5)]
    assert guarded.exchange_many([(TRUNK, frame) for frame in frames]) == [(PEER.port, f) for f in frames]
    assert forged(guarded, TRUNK) == 0


def test_the_switch_answers_no_forged_question(guarded: Switch) -> None:
    guarded.insert("virtual_addresses", {"address": VIRTUAL.ip}, "owned", {"mac": VIRTUAL.mac})
    asked = [(HOST.port, arp(HOST, VIRTUAL.ip, says=said)) for said in (AS_PEER, WITH_PEERS_MAC)]
    assert guarded.exchange_many(asked) == []
    assert len(guarded.exchange(HOST.port, arp(HOST, VIRTUAL.ip))) == 1


def test_a_forged_contribution_reaches_no_slot_and_no_group(guarded: Switch) -> None:
    """The first packet has the port and IPv4 address of a member, but another MAC."""
    group = Group(guarded, (HOST, PEER)).install()
    chunk = group.chunk(HOST, [1] * guarded.lanes)
    packets = [
        (HOST.port, frame(WITH_PEERS_MAC, VIRTUAL, chunk.pack())),
        (UNLISTED, frame(HOST, VIRTUAL, chunk.pack())),
    ]
    assert guarded.exchange_many(packets) == []
    assert (forged(guarded, HOST.port), forged(guarded, UNLISTED)) == (1, 1)
    assert [guarded.register(name, group.slot_base) for name in ("slot_tag", "slot_seen")] == [0, 0]
    assert group.outcomes() == {}
    assert not any(guarded.action_packets("decide").values())
    assert group.contribute(HOST, chunk.lanes) == {}
    assert guarded.register("slot_seen", group.slot_base) == 1 << HOST.child
