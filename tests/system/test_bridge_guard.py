# SPDX-License-Identifier: Apache-2.0
"""The source guard of a lab's plain bridges: a host can send only with its own addresses."""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from dataplane.packets import Station
from hostile import forging
from hostile.forging import BROADCAST, Target, arp, ethernet, tagged, udp
from hostile.stranger import Stranger, station_of, stranger_on
from system.namespaces import inside
from system.plane_network import PlaneNetwork, plane_network

from railweave.topologies.lab import guard
from railweave.topologies.model import Nic

DEADLINE_S = 10.0
END, PROBE = 0x88B5, 0x88B6  # ether types of the last frame of a test, and of frames before it: local ones
PROBE_S = 0.05
LLDP = 0x88CC
COUNT = 100  # frames of each kind


@dataclass(frozen=True)
class Place:
    """A stranger on a bridge, and a socket on a member's NIC."""

    network: PlaneNetwork
    stranger: Stranger
    member: socket.socket
    to: Station
    other: Station

    def wait_until_open(self) -> None:
        """Send frames until one arrives: the kernel opens the ports of a new bridge after a while."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            self.stranger.send([ethernet(self.stranger.own, self.to, PROBE, b"probe")])
            if select.select([self.member], [], [], PROBE_S)[0]:
                return
        raise TimeoutError("the bridge does not forward frames")

    def seen(self) -> list[bytes]:
        """Send a last frame with the stranger's own address, and return the member's frames before it."""
        self.stranger.send([ethernet(self.stranger.own, self.to, END, b"end")])
        return self.until_end()

    def until_end(self) -> list[bytes]:
        """Return the member's frames before the last frame."""
        frames: list[bytes] = []
        while select.select([self.member], [], [], DEADLINE_S)[0]:
            frame = self.member.recv(1 << 16)
            (ether_type,) = struct.unpack(">H", frame[12:14])
            if ether_type == END:
                return frames
            if ether_type != PROBE:
                frames.append(frame)
        raise TimeoutError("the last frame has not come")

    def dropped(self) -> int:
        with inside(self.network.of("s-tcp")):
            shown = subprocess.run(guard.COUNT_COMMAND, capture_output=True, text=True, check=True)
        return guard.dropped(shown.stdout)


def nic_of(network: PlaneNetwork, rank: int) -> Nic:
    return network.plane("tcp").nics[rank]


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        network = stack.enter_context(plane_network(3, ["tcp"], guarded=True))
        member, other, stranger = (nic_of(network, rank) for rank in range(3))
        with inside(network.at(2)):
            attacker = stack.enter_context(stranger_on(stranger))
        with inside(network.at(0)):
            seeing = stack.enter_context(stranger_on(member))
        made = Place(network, attacker, seeing.raw, station_of(member), station_of(other))
        made.wait_until_open()
        yield made


def test_only_frames_in_the_own_name_arrive(place: Place) -> None:
    own, to = place.stranger.own, Target(place.to)
    names = (place.other, Station(place.other.ip, own.mac), Station(own.ip, place.other.mac))
    for kind in forging.KINDS:
        before = place.dropped()
        forged = sum(place.stranger.spray(kind, name, to, COUNT) for name in names)
        honest = place.stranger.spray(kind, own, to, COUNT)
        assert len(place.seen()) == honest, kind
        assert place.dropped() - before == forged, kind


def test_arp_and_tags_are_guarded_as_well(place: Place) -> None:
    own, other = place.stranger.own, place.other
    as_other, with_others_mac = Station(other.ip, own.mac), Station(own.ip, other.mac)
    whole = udp(as_other, place.to, 7, 9, bytes(40))
    forged = [
        arp(own, place.to.ip, says=as_other, reply=True),
        arp(own, place.to.ip, says=with_others_mac, reply=True),
        arp(with_others_mac, place.to.ip, says=own),
        ethernet(other, place.to, LLDP, bytes(60)),
        tagged(whole),
        tagged(whole, 0x88A8),
        tagged(tagged(whole), 0x88A8),
    ]
    honest = [
        arp(own, place.to.ip),
        arp(Station(0, own.mac), own.ip),
        udp(Station(0, own.mac), Station(0xFFFFFFFF, BROADCAST), 68, 67, bytes(40)),
        ethernet(own, place.to, LLDP, bytes(60)),
    ]
    place.stranger.send([*forged, *honest])
    assert place.seen() == honest
    assert place.dropped() == len(forged)


def test_a_bridge_learns_nothing_from_a_forged_frame(place: Place) -> None:
    """Otherwise one frame with a member's MAC would redirect the member's packets to the stranger."""
    place.stranger.spray("syn", place.other, Target(place.to), COUNT)
    assert place.seen() == []
    with inside(place.network.at(0)):
        sent = udp(place.to, place.other, 7, 9, bytes(40))
        place.member.send(sent)
    with inside(place.network.at(1)), stranger_on(nic_of(place.network, 1)) as other:
        place.member.send(sent)
        assert select.select([other.raw], [], [], DEADLINE_S)[0]
        assert other.raw.recv(1 << 16) == sent


def test_a_port_that_the_topology_does_not_list_is_closed(place: Place) -> None:
    with inside(place.network.of("s-tcp")):
        rules = (
            f"delete element bridge {guard.TABLE} stations {{ s-tcp-eth3 . {nic_of(place.network, 2).mac} }}"
        )
        subprocess.run(["nft", rules], check=True)
    place.stranger.spray("syn", place.stranger.own, Target(place.to), COUNT)
    with inside(place.network.at(1)), stranger_on(nic_of(place.network, 1)) as other:
        other.send([ethernet(other.own, place.to, END, b"end")])
    assert place.until_end() == []
    assert place.dropped() == COUNT
