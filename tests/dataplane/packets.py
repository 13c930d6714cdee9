# SPDX-License-Identifier: Apache-2.0
"""Aggregation packets, their senders, and groups with the entries that the controller computes."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from dataplane.harness import Frames, Switch
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from railweave.controller import desired
from railweave.controller.desired import Aggregation
from railweave.controller.slots import SlotRange
from railweave.controller.state import Entry, SwitchState
from railweave.controller.tables import Endpoint, virtual_mac
from railweave.controller.tree import Contributor, Node, Parent, Tree
from railweave.p4src.config import CONFIG

PORT = 5257
CONTRIBUTE, RESULT, PROBE, SPREAD, FETCH = 0, 1, 2, 3, 4
SUM, MAX = 0, 1
RETRANSMISSION, NONFINITE, OVERFLOW, MISMATCH, TO_ROOT, OWNER, LAST = 1, 2, 4, 8, 16, 32, 64
HEADER = struct.Struct(">BBHBBHII")
OUTER = struct.Struct(">6s6sH xx H 4x BBxx II HHHH")  # the fields of Ethernet, IPv4 and UDP that matter
HEADERS = OUTER.size


@dataclass(frozen=True)
class Station:
    """A host or a virtual address of a switch, with its IPv4 and MAC address."""

    ip: int
    mac: int

    @property
    def ip_text(self) -> str:
        return ".".join(str(b) for b in self.ip.to_bytes(4, "big"))

    @property
    def mac_text(self) -> str:
        return self.mac.to_bytes(6, "big").hex(":")


@dataclass(frozen=True)
class Member(Station):
    """A station that is a member of a group, on a port of the switch."""

    port: int
    child: int
    udp_port: int = PORT


@dataclass(frozen=True)
class Chunk:
    """An aggregation packet without its outer headers. Lanes are signed."""

    kind: int = CONTRIBUTE
    op: int = SUM
    group: int = 1
    child: int = 0
    flags: int = 0
    slot: int = 0
    round: int = 0
    mark: int = 0xC0FFEE
    lanes: tuple[int, ...] = ()
    version: int = 1

    def pack(self) -> bytes:
        first = self.version << 4 | self.kind
        header = HEADER.pack(
            first, self.op, self.group, self.child, self.flags, self.slot, self.round, self.mark
        )
        return header + struct.pack(f">{len(self.lanes)}i", *self.lanes)

    @classmethod
    def unpack(cls, data: bytes) -> Chunk:
        first, op, group, child, flags, slot, round_, mark = HEADER.unpack_from(data)
        lanes = struct.unpack(f">{(len(data) - HEADER.size) // 4}i", data[HEADER.size :])
        return cls(first & 15, op, group, child, flags, slot, round_, mark, lanes, first >> 4)


End: TypeAlias = Member | Endpoint


@functools.lru_cache(maxsize=4096)
def headers(source: End, to: End, size: int) -> bytes:
    """Return Ethernet, IPv4 and UDP headers before `size` bytes, without a UDP checksum."""
    length = 8 + size
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + length, 0, 0, 64, 17, 0, source.ip, to.ip)
    ip = ip[:10] + struct.pack(">H", ~(sum(struct.unpack(">10H", ip)) % 0xFFFF) & 0xFFFF) + ip[12:]
    ethernet = to.mac.to_bytes(6) + source.mac.to_bytes(6) + b"\x08\x00"
    return ethernet + ip + struct.pack(">HHHH", source.udp_port, to.udp_port, length, 0)


def datagram(source: End, to: End, payload: bytes) -> bytes:
    """Return the frame of a datagram as switches send it, without padding and without a UDP checksum."""
    return headers(source, to, len(payload)) + payload


def frame(sender: Station, to: Station, payload: bytes, udp: Mapping[str, Any] = {}, **ip: Any) -> bytes:
    """Return the Ethernet frame of a datagram. `udp` and `ip` override header fields with any values."""
    ports = {"sport": getattr(sender, "udp_port", PORT), "dport": PORT} | dict(udp)
    packet = Ether(dst=to.mac_text, src=sender.mac_text) / IP(src=sender.ip_text, dst=to.ip_text, **ip)
    return bytes(packet / UDP(**ports) / payload)


def open_frame(data: bytes, sender: Station, to: Station) -> tuple[int, bytes]:
    """Check a datagram that the switch made for these stations. Return its UDP destination and payload."""
    target, source, kind, length, *rest = OUTER.unpack_from(data)
    ttl, protocol, source_ip, target_ip, source_port, port, size, checksum = rest
    assert (source, target, kind) == (sender.mac.to_bytes(6), to.mac.to_bytes(6), 0x0800)
    assert (source_ip, target_ip, ttl, protocol) == (sender.ip, to.ip, 64, 17)
    assert sum(struct.unpack_from(">10H", data, 14)) % 0xFFFF == 0, "IPv4 checksum"
    assert (source_port, checksum, length) == (PORT, 0, size + 20)
    return port, data[HEADERS : HEADERS + size - 8]


VIRTUAL = Station(ip=0x0A01FF01, mac=virtual_mac(0x0A01FF01))
HERE = Endpoint(VIRTUAL.mac, VIRTUAL.ip)
PARENT = Member(ip=0x0A01FF02, mac=0x02000001FF02, port=4, child=7)


def children(count: int) -> tuple[Member, ...]:
    """Return hosts on ports 1 to `count`: the children 0, 1, … of a group, each with its own UDP port."""
    return tuple(
        Member(ip=0x0A010000 + n, mac=0x020000010000 + n, port=n, child=n - 1, udp_port=40000 + n)
        for n in range(1, count + 1)
    )


@dataclass(frozen=True)
class Group:
    """A group on a range of `2 * slots` slot numbers. VIRTUAL is also the switch's own address."""

    switch: Switch
    members: tuple[Member, ...]
    number: int = 1
    slot_base: int = 32
    slots: int = 4
    start: int = 1
    root: bool = True

    @property
    def state(self) -> SwitchState:
        """Return what the controller computes for this switch."""
        contributors = tuple(Contributor(m.child, m.port, m.child) for m in self.members)
        parent = None if self.root else Parent("parent", PARENT.port, PARENT.child)
        hosts = {m.child: Endpoint(m.mac, m.ip, m.udp_port) for m in self.members}
        tree = Tree((Node("switch", contributors, parent),))
        group = Aggregation(self.number, "", tree, VIRTUAL.ip, hosts)
        switches = {"switch": HERE, "parent": Endpoint(PARENT.mac, PARENT.ip)}
        slots = SlotRange(self.slot_base // 2, self.slots, self.start)
        return desired.aggregation(group, "switch", slots, switches)

    def install(self, *before: Group) -> Group:
        """Write the state, except what the groups `before` have written."""
        known = frozenset[Entry]().union(*(group.state.entries for group in before))
        self.switch.install(replace(self.state, entries=self.state.entries - known))
        return self

    def key(self, m: Member) -> dict[str, int]:
        return {"group": self.number, "ingress_port": m.port, "child": m.child, "source": m.ip}

    def chunk(self, m: Member, lanes: Sequence[int], **fields: Any) -> Chunk:
        return replace(Chunk(group=self.number, child=m.child, lanes=tuple(lanes)), **fields)

    def send(self, m: Member, chunk: Chunk) -> dict[int, Chunk]:
        """Send a chunk from a member. Return the output by port, checked for the member on that port."""
        return self.received(self.switch.exchange(m.port, frame(m, VIRTUAL, chunk.pack())))

    def contribute(self, m: Member, lanes: Sequence[int], **fields: Any) -> dict[int, Chunk]:
        return self.send(m, self.chunk(m, lanes, **fields))

    def outcomes(self) -> dict[str, int]:
        """Return the switch's counters of this group's packets that are not zero."""
        names = {n.removeprefix("OUTCOME_"): v for n, v in CONFIG.items() if n.startswith("OUTCOME_")}
        first = self.slot_base // CONFIG["GROUP_STEP"] * CONFIG["OUTCOMES"]
        counts = {name: self.switch.counter("group_packets", first + place) for name, place in names.items()}
        return {name: count for name, count in counts.items() if count}

    def received(self, frames: Frames) -> dict[int, Chunk]:
        return {port: Chunk.unpack(payload) for port, payload in self.opened(frames).items()}

    def opened(self, frames: Frames) -> dict[int, bytes]:
        """Check frames for the members on their ports. Return the payload by port."""
        payloads = {}
        for port, data in frames:
            to = next(m for m in (*self.members, PARENT) if m.port == port)
            udp_port, payloads[port] = open_frame(data, VIRTUAL, to)
            assert udp_port == to.udp_port
        assert len(payloads) == len(frames), "two packets at a port"
        return payloads
