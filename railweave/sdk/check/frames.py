# SPDX-License-Identifier: Apache-2.0
"""UDP datagrams in Ethernet frames, as the hosts' kernels send them without a UDP checksum."""

from __future__ import annotations

import struct
from typing import NamedTuple

from railweave.controller.tables import ip_number, mac_number
from railweave.topologies.model import Nic

OUTER = struct.Struct(">6s6sHBBHHHBBHIIHHHH")  # Ethernet, IPv4 and UDP
_IP = struct.Struct(">10H")


class Frame(NamedTuple):
    """The destination of a frame and its datagram."""

    mac: int
    address: int
    port: int
    datagram: bytes


def pack(source: Nic, source_port: int, to: Nic, port: int, datagram: bytes) -> bytes:
    """Return the frame of a datagram."""
    macs = (mac_number(nic.mac).to_bytes(6) for nic in (to, source))
    size = len(datagram)
    ip = [0x45, 0, 28 + size, 0, 0x4000, 64, 17, 0, ip_number(source.address), ip_number(to.address)]
    udp = (source_port, port, 8 + size, 0)
    ip[7] = _checksum(OUTER.pack(*[b""] * 2, 0, *ip, *udp)[14:34])
    return OUTER.pack(*macs, 0x0800, *ip, *udp) + datagram


def unpack(frame: bytes) -> Frame:
    """Return the destination and the datagram of such a frame."""
    values = OUTER.unpack_from(frame)
    return Frame(int.from_bytes(values[0]), values[12], values[14], frame[OUTER.size :])


def is_valid(frame: bytes) -> bool:
    """Return whether Linux takes a frame from a link, by its lengths, IPv4 checksum and source."""
    values = OUTER.unpack_from(frame)
    lengths = values[5] == len(frame) - 14 and values[15] == len(frame) - 34
    return lengths and values[11] != values[12] and _checksum(frame[14:34]) == 0


def _checksum(header: bytes) -> int:
    total: int = sum(_IP.unpack(header))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
