# SPDX-License-Identifier: Apache-2.0
"""The compiled P4 program in the embedded engine, as a switch of the simulated network.

It wraps datagrams into frames, and checks of every frame that leaves that it is addressed to whom it goes to.
"""

from __future__ import annotations

import functools
import ipaddress
import struct
from dataclasses import dataclass

from protocol.switch_model import PARENT, Membership, Output, Port
from railweave.p4src.artifacts import artifact
from railweave.switch.lowering import lower
from railweave.switch.pipeline import Pipeline, Replica, exact
from railweave.switch.program import Program

UDP_PORT = 5257
PARENT_PORT = 100
MULTICAST_GROUP = 2
ETHERNET = struct.Struct(">6s6sH")
IPV4 = struct.Struct(">BBHHHBBH4s4s")
UDP = struct.Struct(">HHHH")


@dataclass(frozen=True)
class Station:
    """A host or switch as the others address it."""

    ip: bytes
    mac: bytes
    udp_port: int


def station(ip: str, udp_port: int = UDP_PORT) -> Station:
    """A station whose MAC follows from its address."""
    packed = ipaddress.IPv4Address(ip).packed
    return Station(packed, b"\x02\x00" + packed, udp_port)


def host_station(rack: int, child: int) -> Station:
    """A host below a leaf switch; its port is ephemeral."""
    return station(f"10.{rack}.0.{child + 1}", udp_port=40_000 + child)


def switch_station(rack: int | None) -> Station:
    """A leaf's address, at which its children and its parent reach it; None: the root's."""
    return station("10.255.255.1" if rack is None else f"10.255.0.{rack + 1}")


def frame(source: Station, target: Station, payload: bytes) -> bytes:
    """One UDP datagram from station to station."""
    length = UDP.size + len(payload)
    header = IPV4.pack(0x45, 0, IPV4.size + length, 0, 0, 64, 17, 0, source.ip, target.ip)
    words = sum(struct.unpack(">10H", header))
    checksum = ~(words % 0xFFFF) & 0xFFFF
    header = header[:10] + struct.pack(">H", checksum) + header[12:]
    udp = UDP.pack(source.udp_port, target.udp_port, length, 0)
    return ETHERNET.pack(target.mac, source.mac, 0x0800) + header + udp + payload


@functools.cache
def _lowered(lanes: int) -> tuple[Program, bytes]:
    return lower(artifact(lanes).json_path.read_bytes())


class EngineSwitch:
    """One switch with one group, configured as the controller would."""

    def __init__(self, lanes: int, member: Membership, rack: int | None = None, below: str = "hosts") -> None:
        self.pipeline = Pipeline(*_lowered(lanes))
        self.member = member
        self.me = switch_station(rack)
        self.children = [
            host_station(rack or 0, child) if below == "hosts" else switch_station(child)
            for child in range(member.children)
        ]
        self.parent = switch_station(None)
        self.pipeline.insert("virtual_addresses", [exact(self.me.ip)], "owned", [self.me.mac])
        self._preset_tags()
        for child, who in enumerate(self.children):
            self._add_child(child, who)
        replicas = [Replica(child + 1, child + 1) for child in range(member.children)]
        self.pipeline.multicast(MULTICAST_GROUP, replicas)
        if member.child_at_parent is not None:
            self._add_parent(member.child_at_parent)

    def _preset_tags(self) -> None:
        """As if earlier groups had used the slots up to `start`."""
        for slot in range(2 * self.member.slots):
            self.pipeline.set_register("slot_tag", self.member.base + slot, self.member.start - 1)

    def _add_child(self, child: int, who: Station) -> None:
        m = self.member
        everybody = (1 << m.children) - 1
        key = [exact(m.group), exact(child + 1), exact(child), exact(who.ip)]
        is_root = int(m.child_at_parent is None)
        params = [1 << child, everybody, m.base, 2 * m.slots - 1, m.start, is_root, MULTICAST_GROUP]
        self.pipeline.insert("members", key, "contributor", params)
        to = [child, self.me.mac, who.mac, self.me.ip, who.ip, who.udp_port]
        self.pipeline.insert("replicas", [exact(m.group), exact(child + 1)], "to_child", to)

    def _add_parent(self, child: int) -> None:
        m, parent = self.member, self.parent
        key = [exact(m.group), exact(PARENT_PORT), exact(child), exact(parent.ip)]
        self.pipeline.insert("members", key, "parent", [m.base, 2 * m.slots - 1, m.start, MULTICAST_GROUP])
        up = [PARENT_PORT, child, self.me.mac, parent.mac, self.me.ip, parent.ip]
        self.pipeline.insert("uplinks", [exact(m.group)], "uplink", up)

    def process(self, port: Port, data: bytes) -> list[Output]:
        """Datagram in, datagrams out."""
        sender = self.parent if port == PARENT else self.children[int(port)]
        number = PARENT_PORT if port == PARENT else int(port) + 1
        outputs: list[Output] = []
        for out, packet in self.pipeline.inject(number, frame(sender, self.me, data)):
            where: Port = PARENT if out == PARENT_PORT else out - 1
            receiver = self.parent if where == PARENT else self.children[int(where)]
            payload = packet[ETHERNET.size + IPV4.size + UDP.size :]
            assert packet == frame(self.me, receiver, payload), f"a frame to {where} is addressed wrongly"
            outputs.append((where, payload))
        return outputs
