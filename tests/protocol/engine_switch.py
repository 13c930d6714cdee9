# SPDX-License-Identifier: Apache-2.0
"""The compiled P4 program in the embedded engine, as a switch of the simulated network.

It wraps datagrams into frames, and checks of every frame that leaves that it is addressed to whom it goes to.
"""

from __future__ import annotations

import functools
import ipaddress
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from protocol.switch_model import PARENT, Membership, Output, Port

from railweave.p4src.artifacts import artifact
from railweave.switch.lowering import lower
from railweave.switch.pipeline import Match, Pipeline, Replica, exact
from railweave.switch.program import Program

UDP_PORT = 5257
PARENT_PORT = 100
FIRST_MULTICAST_GROUP = 2
UPLINK_RID = 32  # of the copy for the parent: no child has it
ETHERNET = struct.Struct(">6s6sH")
IPV4 = struct.Struct(">BBHHHBBH4s4s")
UDP = struct.Struct(">HHHH")
HEADERS = ETHERNET.size + IPV4.size + UDP.size


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


def host_station(host: int) -> Station:
    """A host; its port is ephemeral."""
    return station(f"10.0.{host // 250}.{host % 250 + 1}", udp_port=40_000 + host)


def switch_station(switch: int) -> Station:
    """A switch's address, at which its children and its parent reach it."""
    return station(f"10.255.0.{switch + 1}")


@functools.lru_cache(maxsize=4096)
def headers(source: Station, target: Station, size: int) -> bytes:
    """Everything in front of a payload of `size` bytes from station to station."""
    length = UDP.size + size
    header = IPV4.pack(0x45, 0, IPV4.size + length, 0, 0, 64, 17, 0, source.ip, target.ip)
    words = sum(struct.unpack(">10H", header))
    checksum = ~(words % 0xFFFF) & 0xFFFF
    header = header[:10] + struct.pack(">H", checksum) + header[12:]
    udp = UDP.pack(source.udp_port, target.udp_port, length, 0)
    return ETHERNET.pack(target.mac, source.mac, 0x0800) + header + udp


def frame(source: Station, target: Station, payload: bytes) -> bytes:
    """One UDP datagram from station to station."""
    return headers(source, target, len(payload)) + payload


@functools.cache
def _lowered(lanes: int) -> tuple[Program, bytes]:
    return lower(artifact(lanes).json_path.read_bytes())


def _number(port: Port) -> int:
    """The number by which the program knows a port."""
    return PARENT_PORT if port == PARENT else int(port) + 1


class EngineSwitch:
    """One switch with groups, configured as the controller would.

    `stations` are the neighbours by port; without them the ports lead to hosts 0, 1, ….
    """

    def __init__(
        self,
        lanes: int,
        groups: Iterable[Membership],
        number: int = 0,
        stations: Mapping[Port, Station] | None = None,
    ) -> None:
        self.pipeline = Pipeline(*_lowered(lanes))
        self.me = switch_station(number)
        self.stations = {PARENT: switch_station(99), **{port: host_station(port) for port in range(31)}}
        self.stations.update(stations or {})
        for port in self.stations:  # the source guard is not what these tests are about
            self.pipeline.tables.insert("trunk_ports", [exact(_number(port))], "trusted", [])
        self._next_multicast = FIRST_MULTICAST_GROUP
        self._used_slots: set[int] = set()
        self._entries: dict[int, list[tuple[str, int]]] = {}
        self.pipeline.tables.insert("virtual_addresses", [exact(self.me.ip)], "owned", [self.me.mac])
        for member in groups:
            self.add(member)

    def add(self, member: Membership) -> None:
        """Give a group its entries. Registers of a fresh range are as if earlier groups had used it."""
        fresh = {member.base + slot for slot in range(2 * member.slots)} - self._used_slots
        for slot in fresh:
            self.pipeline.arrays.set_registers(
                "slot_tag", range(slot, slot + 1), (member.start - 1) & 0xFFFFFFFF
            )
        self._used_slots |= fresh
        is_root = member.child_at_parent is None
        children = [Replica(port + 1, child + 1) for child, port in enumerate(member.at_ports)]
        multicast = spread = self._new_multicast(children)
        if not is_root:
            spread = self._new_multicast([*children, Replica(PARENT_PORT, UPLINK_RID)])
        for child, port in enumerate(member.at_ports):
            self._add_child(member, child, port, [int(is_root), multicast, spread])
        if member.child_at_parent is not None:
            self._add_parent(member, member.child_at_parent, multicast)

    def _new_multicast(self, replicas: list[Replica]) -> int:
        self._next_multicast += 1
        self.pipeline.replication.set_group(self._next_multicast - 1, replicas)
        return self._next_multicast - 1

    def _insert(
        self, group: int, table: str, key: list[Match], action: str, params: list[int | bytes]
    ) -> None:
        handle = self.pipeline.tables.insert(table, key, action, params)
        self._entries.setdefault(group, []).append((table, handle))

    def _add_child(self, m: Membership, child: int, port: int, ways: list[int]) -> None:
        who = self.stations[port]
        everybody = (1 << m.children) - 1
        key = [exact(m.group), exact(port + 1), exact(child), exact(who.ip)]
        params: list[int | bytes] = [1 << child, everybody, m.base, 2 * m.slots - 1, m.start, *ways]
        self._insert(m.group, "members", key, "contributor", params)
        self._add_copy(m.group, child + 1, child, who)

    def _add_parent(self, m: Membership, child: int, multicast: int) -> None:
        parent = self.stations[PARENT]
        key = [exact(m.group), exact(PARENT_PORT), exact(child), exact(parent.ip)]
        self._insert(m.group, "members", key, "parent", [m.base, 2 * m.slots - 1, m.start, multicast])
        up: list[int | bytes] = [PARENT_PORT, child, self.me.mac, parent.mac, self.me.ip, parent.ip]
        self._insert(m.group, "uplinks", [exact(m.group)], "uplink", up)
        self._add_copy(m.group, UPLINK_RID, child, parent)

    def _add_copy(self, group: int, rid: int, child: int, to: Station) -> None:
        params: list[int | bytes] = [child, self.me.mac, to.mac, self.me.ip, to.ip, to.udp_port]
        self._insert(group, "replicas", [exact(group), exact(rid)], "readdress", params)

    def remove(self, group: int) -> None:
        """Take a group's entries away; what it left in registers stays."""
        for table, handle in self._entries.pop(group):
            self.pipeline.tables.delete(table, handle)

    def process(self, port: Port, data: bytes) -> list[Output]:
        """Datagram in, datagrams out."""
        sender = self.stations[port]
        outputs: list[Output] = []
        for out, packet in self.pipeline.inject(_number(port), headers(sender, self.me, len(data)) + data):
            where: Port = PARENT if out == PARENT_PORT else out - 1
            front = headers(self.me, self.stations[where], len(packet) - HEADERS)
            assert packet.startswith(front), f"a frame to {where} is addressed wrongly"
            outputs.append((where, packet[HEADERS:]))
        return outputs
