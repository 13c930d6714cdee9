# SPDX-License-Identifier: Apache-2.0
"""A reference of the slot algorithm in numpy: one switch of a tree, on UDP payloads.

Tests of the hosts use the model as the switch. Tests of the P4 program compare the program with the model.
The model knows nothing of Ethernet and targets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

HEADER = struct.Struct(">BBHBBHII")
CONTRIBUTE, RESULT, PROBE, SPREAD = 0, 1, 2, 3
SUM, MAX = 0, 1
RETRANSMISSION, NONFINITE, OVERFLOW, MISMATCH, TO_ROOT, OWNER, LAST = 1, 2, 4, 8, 16, 32, 64
SLOT_FLAGS = NONFINITE | OVERFLOW | MISMATCH | OWNER | LAST  # the other flags belong to one packet
NOBODY = 255  # the number of no child
PARENT = "parent"

Port = int | str
Output = tuple[Port, bytes]


@dataclass(frozen=True)
class Packet:
    """Header and lanes of one datagram. For SPREAD, `lanes` is the payload."""

    kind: int
    op: int
    group: int
    child: int
    flags: int
    slot: int
    round: int
    mark: int
    lanes: bytes

    @classmethod
    def parse(cls, data: bytes) -> Packet | None:
        """Parse a datagram. Return None if it is too short or has another version."""
        if len(data) < HEADER.size:
            return None
        first, *fields = HEADER.unpack_from(data)
        return cls(first & 0xF, *fields, lanes=data[HEADER.size :]) if first >> 4 == 1 else None

    def encode(self) -> bytes:
        """Return the bytes on the wire."""
        fields = (self.op, self.group, self.child, self.flags, self.slot, self.round, self.mark)
        return HEADER.pack(1 << 4 | self.kind, *fields) + self.lanes


@dataclass(frozen=True)
class Membership:
    """A group at one switch. Its children are at `ports` or at ports 0…children-1, the parent at PARENT."""

    group: int
    children: int
    slots: int
    start: int = 1
    base: int = 0
    child_at_parent: int | None = None  # None: this switch is the root
    ports: tuple[int, ...] = ()

    @property
    def at_ports(self) -> tuple[int, ...]:
        """Return the ports of the children, in order."""
        return self.ports or tuple(range(self.children))


class SwitchModel:
    """Registers of one switch, and the effect of each packet on them."""

    def __init__(self, lanes: int, groups: Iterable[Membership], registers: int = 16384) -> None:
        self.lanes = lanes
        self.groups: dict[int, Membership] = {}
        self.tag = np.zeros(registers, np.uint32)
        self._used = np.zeros(registers, bool)
        self.seen = np.zeros(registers, np.uint32)
        self.mark = np.zeros(registers, np.uint32)
        self.flags = np.zeros(registers, np.uint8)
        self.present = np.zeros(registers, bool)
        self.owner = np.full(registers, NOBODY, np.uint8)
        self.values = np.zeros((registers, lanes), np.int32)
        self.refused = 0
        self.stale = 0
        self.retransmissions = 0
        self.results = 0
        for group in groups:
            self.add(group)

    def add(self, member: Membership) -> None:
        """Add a group. Set the tags of new slots as if earlier groups had used the slots."""
        self.groups[member.group] = member
        for slot in range(member.base, member.base + 2 * member.slots):
            if not self._used[slot]:
                self.tag[slot] = (member.start - 1) & 0xFFFFFFFF
                self._used[slot] = True

    def remove(self, group: int) -> None:
        """Remove a group. The registers keep their contents."""
        del self.groups[group]

    def process(self, port: Port, data: bytes) -> list[Output]:
        """Process one datagram, and return the datagrams that leave with their ports."""
        packet = Packet.parse(data)
        member = packet and self.groups.get(packet.group)
        if packet is None or member is None or not self._from_member(packet, member, port):
            return self._refuse()
        if packet.kind == PROBE:
            return self._probe(packet, member, port)
        if packet.kind == SPREAD:
            return self._spread(packet, member, port) if packet.lanes else self._refuse()
        if not self._well_formed(packet, member, port):
            return self._refuse()
        index = member.base + packet.slot
        age = _serial_difference(member.start + packet.round, int(self.tag[index]))
        if port == PARENT:
            return self._from_parent(packet, member, index, age)
        return self._contribute(packet, member, index, age)

    def _probe(self, packet: Packet, member: Membership, port: Port) -> list[Output]:
        """Answer or forward a probe.

        A probe to the root keeps its path in the slot number, with five bits per level.
        """
        to_root = packet.flags & TO_ROOT
        if port == PARENT:
            child = packet.slot & 31
            back = replace(packet, child=child, slot=packet.slot >> 5)
            known = to_root and child < member.children
            return [(member.at_ports[child], back.encode())] if known else []
        if to_root and member.child_at_parent is not None:
            way = (packet.slot << 5 | packet.child) & 0xFFFF
            return [(PARENT, replace(packet, child=member.child_at_parent, slot=way).encode())]
        return [(port, packet.encode())]

    def _spread(self, packet: Packet, member: Membership, port: Port) -> list[Output]:
        """Return a copy for each port except the sender's."""
        sender = None if port == PARENT else packet.child
        to: list[tuple[Port, int]] = [
            (at, child) for child, at in enumerate(member.at_ports) if child != sender
        ]
        if sender is not None and member.child_at_parent is not None:
            to.append((PARENT, member.child_at_parent))
        return [(at, replace(packet, child=child).encode()) for at, child in to]

    def _from_member(self, packet: Packet, member: Membership, port: Port) -> bool:
        if port == PARENT:
            return packet.child == member.child_at_parent and packet.op in (SUM, MAX)
        ports = member.at_ports
        return packet.child < len(ports) and ports[packet.child] == port and packet.op in (SUM, MAX)

    def _well_formed(self, packet: Packet, member: Membership, port: Port) -> bool:
        bare = packet.flags & OWNER and not packet.lanes
        return (
            (bare or len(packet.lanes) == 4 * self.lanes)
            and packet.slot < 2 * member.slots
            and packet.kind == (RESULT if port == PARENT else CONTRIBUTE)
        )

    def _refuse(self) -> list[Output]:
        self.refused += 1
        return []

    def _contribute(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        if age < 0:
            self.stale += 1
            return []
        bit = np.uint32(1 << packet.child)
        lanes = self._contributed(packet)
        again = age == 0 and bool(self.seen[index] & bit)
        if again:
            self.retransmissions += 1
        elif age > 0:
            self.tag[index] = (member.start + packet.round) & 0xFFFFFFFF
            self.seen[index], self.present[index] = bit, False
            self.mark[index], self.values[index] = packet.mark, lanes
            self.flags[index] = packet.flags & SLOT_FLAGS
            self.owner[index] = packet.child if packet.flags & OWNER else NOBODY
        else:
            self.seen[index] |= bit
            self.flags[index] |= self._flags_of(packet, index)
            if packet.flags & OWNER:
                if self.owner[index] != NOBODY:
                    self.flags[index] |= MISMATCH
                self.owner[index] = packet.child
            merge = np.add if packet.op == SUM else np.maximum
            self.values[index] = merge(self.values[index], lanes)
        return self._answer(packet, member, index, again)

    def _contributed(self, packet: Packet) -> NDArray[np.int32]:
        if packet.lanes:
            return np.frombuffer(packet.lanes, ">i4").astype(np.int32)
        return np.full(self.lanes, 0 if packet.op == SUM else np.iinfo(np.int32).min, np.int32)

    def _flags_of(self, packet: Packet, index: int) -> int:
        differs = self.mark[index] != packet.mark
        return packet.flags & SLOT_FLAGS | (MISMATCH if differs else 0)

    def _answer(self, packet: Packet, member: Membership, index: int, again: bool) -> list[Output]:
        if self.seen[index] != (1 << member.children) - 1:
            return []
        if member.child_at_parent is not None and not (again and self.present[index]):
            if again and packet.child != 0:
                return []  # child 0 lacks the result, too, and its retransmission is enough
            up = replace(packet, child=member.child_at_parent)
            return [(PARENT, self._filled(up, CONTRIBUTE, index))]
        if again:
            return [(member.at_ports[packet.child], self._result(packet, index))]
        return self._multicast(packet, member, index)

    def _from_parent(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        if age != 0 or self.present[index]:
            self.stale += 1
            return []
        self.flags[index] = self._flags_of(packet, index)
        if packet.lanes:
            self.values[index] = np.frombuffer(packet.lanes, ">i4")
        else:
            self.owner[index] = NOBODY
        self.present[index] = True
        return self._multicast(packet, member, index)

    def _multicast(self, packet: Packet, member: Membership, index: int) -> list[Output]:
        self.results += 1
        return [
            (port, self._result(replace(packet, child=child), index))
            for child, port in enumerate(member.at_ports)
        ]

    def _result(self, packet: Packet, index: int) -> bytes:
        """Return the result for the packet's child, without lanes if the result's owner is another child."""
        whole = self._filled(packet, RESULT, index)
        elsewhere = self.flags[index] & (OWNER | MISMATCH) == OWNER and self.owner[index] != packet.child
        missing = packet.kind == RESULT and not packet.lanes  # the parent has sent none
        return whole[: HEADER.size] if elsewhere or missing else whole

    def _filled(self, packet: Packet, kind: int, index: int) -> bytes:
        lanes = self.values[index].astype(">i4").tobytes()
        flags, mark = int(self.flags[index]), int(self.mark[index])
        return replace(packet, kind=kind, flags=flags, mark=mark, lanes=lanes).encode()


def _serial_difference(a: int, b: int) -> int:
    """Compare serial numbers of 32 bits (RFC 1982). The difference is positive if `a` is newer."""
    return (a - b + 2**31) % 2**32 - 2**31
