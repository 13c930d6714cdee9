# SPDX-License-Identifier: Apache-2.0
"""A host on a plane that is no member of a job. It sends any frame and sees all frames at its port."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dataplane.packets import Station
from hostile import forging
from hostile.forging import Guess, Target

from railweave.controller.tables import ip_number, mac_number
from railweave.topologies.model import Nic

ETH_P_ALL = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
SO_RCVBUFFORCE, BUFFER_BYTES = 33, 8 << 20
SCAN_S = 2.0  # wait for the answers of a scan


def station_of(nic: Nic) -> Station:
    """Return a NIC of a topology as a station."""
    return Station(ip_number(nic.address), mac_number(nic.mac))


@dataclass(frozen=True)
class Stranger:
    """An attacker: a packet socket on its interface, and its own station."""

    raw: socket.socket
    own: Station

    def send(self, frames: Iterable[bytes]) -> int:
        """Send frames as they are; return how many."""
        return sum(self.raw.send(frame) > 0 for frame in frames)

    def spray(self, kind: str, claimed: Station, to: Target, count: int, guess: Guess | None = None) -> int:
        """Send forged frames of a kind (`forging.KINDS`) in the name of `claimed`; return how many."""
        guess = guess or Guess()
        forge = forging.KINDS[kind]
        return self.send(forge(guess, claimed, to) for _ in range(count))

    def scan(self, to: Station, ports: Iterable[int]) -> list[int]:
        """Return the TCP ports that answer a SYN. A rail's port for data has the same number."""
        asked = set(ports)
        self.send(forging.tcp(self.own, to, 1 + port % 65_000, port, flags=2) for port in asked)
        answered = set[int]()
        end = time.monotonic() + SCAN_S
        while (left := end - time.monotonic()) > 0 and select.select([self.raw], [], [], left)[0]:
            frame = self.raw.recv(1 << 16)
            if frame[12:14] == b"\x08\x00" and frame[23] == forging.TCP and frame[47] & 0x3F == 0x12:
                answered.add(struct.unpack(">H", frame[34:36])[0])
        return sorted(answered & asked)


@contextmanager
def stranger_on(nic: Nic) -> Iterator[Stranger]:
    """Open a packet socket on a NIC that is in this thread's namespace."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
        raw.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        raw.bind((nic.interface, ETH_P_ALL))
        yield Stranger(raw, station_of(nic))
