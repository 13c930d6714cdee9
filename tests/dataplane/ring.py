# SPDX-License-Identifier: Apache-2.0
"""Table entries and packets of a ring of RoCEv2 connections. The switch sums the WRITEs of the ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from dataplane.harness import Frames, Switch
from dataplane.packets import Station
from scapy.layers.l2 import Ether

from railweave._native import roce
from railweave._native.roce import Opcode

PSN_MASK = 2**24 - 1
HIDDEN_QP = 0x800000  # senders use the receiver's QP number with this bit flipped
WRITES = [
    Opcode.WRITE_FIRST,
    Opcode.WRITE_MIDDLE,
    Opcode.WRITE_LAST,
    Opcode.WRITE_LAST_IMMEDIATE,
    Opcode.WRITE_ONLY,
    Opcode.WRITE_ONLY_IMMEDIATE,
]
RETH = frozenset({Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMMEDIATE})
IMMEDIATE = frozenset({Opcode.WRITE_LAST_IMMEDIATE, Opcode.WRITE_ONLY_IMMEDIATE})


@dataclass(frozen=True)
class RingMember(Station):
    """A host on a port of the switch. It owns the connection to the next member."""

    port: int
    number: int
    qp: int  # of the receiver's end
    first_psn: int
    udp_port: int

    @property
    def sent_qp(self) -> int:
        """The QP number in the sender's packets."""
        return self.qp ^ HIDDEN_QP


def ring_members(count: int, first_psns: Sequence[int] = ()) -> tuple[RingMember, ...]:
    """Return members on ports 1 to `count`. Their first PSNs differ, and some PSNs soon wrap."""
    psns = first_psns or (2**24 - 3, 5, 0x123456, 2**23 - 1)
    return tuple(
        RingMember(
            ip=0x0A020000 + n,
            mac=0x020000020000 + n,
            port=n,
            number=n - 1,
            qp=0x100 + n,
            first_psn=psns[(n - 1) % len(psns)],
            udp_port=0xC000 + n,
        )
        for n in range(1, count + 1)
    )


class Arrival(NamedTuple):
    """The fields that a receiver reads from a frame."""

    opcode: Opcode
    psn: int
    ack_request: bool
    payload: bytes
    reth: tuple[int, int, int] | None
    immediate: int | None


@dataclass(frozen=True)
class Ring:
    """A group as a controller sets it up, on a range of `slots` slot numbers."""

    switch: Switch
    members: tuple[RingMember, ...]
    number: int = 1
    slot_base: int = 32
    slots: int = 8
    header_base: int = 64
    epoch: int = 1

    def next(self, m: RingMember) -> RingMember:
        """Return the receiver of a member's connection."""
        return self.members[(m.number + 1) % len(self.members)]

    def frame(self, m: RingMember, index: int, payload: bytes, opcode: Opcode, **fields: Any) -> bytes:
        """Return packet `index` of a member's connection, counted from 0. `fields` go to `roce.build`."""
        fields = {"qpn": m.sent_qp, "psn": (m.first_psn + index) & PSN_MASK} | fields
        ip_id, source_port = fields.pop("ip_id", index & 0xFFFF), fields.pop("udp_port", m.udp_port)
        to, mac = self.next(m), 6
        path = roce.Path(m.mac.to_bytes(mac), to.mac.to_bytes(mac), m.ip, to.ip, source_port)
        return roce.seal(path, ip_id, roce.build(opcode, payload=payload, **fields))

    def send(self, m: RingMember, frame: bytes) -> dict[int, Arrival]:
        """Send a frame from a member. Return the arrivals by the number of the connection's member."""
        return self.received(self.switch.exchange(m.port, frame))

    def received(self, frames: Frames) -> dict[int, Arrival]:
        """Check that all frames have the headers of their connections. Return the arrivals by member."""
        arrivals: dict[int, Arrival] = {}
        for port, data in frames:
            [m] = [m for m in self.members if self.next(m).port == port]
            to, ether = self.next(m), Ether(data)
            assert (ether.src, ether.dst) == (m.mac_text, to.mac_text)
            fault, source, destination, transport = roce.open_frames(data)[0]
            assert fault is roce.FrameFault.NONE
            assert (source, destination, ether.sport, ether.chksum) == (m.ip, to.ip, m.udp_port, ether.chksum)
            assert ether["UDP"].chksum == 0
            packet = roce.parse(transport)
            assert packet
            assert packet["qpn"] == m.qp
            assert m.number not in arrivals, f"two packets on connection {m.number}"
            arrivals[m.number] = Arrival(
                packet["opcode"],
                packet["psn"],
                packet["ack_request"],
                packet["payload"],
                packet.get("reth"),
                packet.get("immediate"),
            )
        return arrivals


def lanes(values: Sequence[int] | np.ndarray[Any, Any]) -> bytes:
    """Return integers in network byte order."""
    return np.asarray(values).astype(">u4").tobytes()
