# SPDX-License-Identifier: Apache-2.0
"""Frames that a stranger on a plane forges in the name of another station.

A blind attacker guesses groups, children, slots, rounds and queue pairs; `Guess` draws them. All frames
carry valid checksums, so that only the forged fields can betray them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dataplane.packets import FETCH, MISMATCH, PORT, RESULT, SPREAD, Chunk, Station, datagram

from railweave._native import roce
from railweave._rigs import recovery
from railweave.controller.tables import Endpoint

ICMP, TCP = 1, 6
ROCE_PORT: Final = 4791
NAK: Final = 3
BROADCAST: Final = 0xFFFFFFFFFFFF


@dataclass(frozen=True)
class Guess:
    """Guesses of a blind attacker. The attributes give the ranges of the guessed numbers."""

    rng: random.Random = field(default_factory=lambda: random.Random(1))
    groups: int = 4
    children: int = 4
    slots: int = 64
    rounds: int = 16
    lanes: int = 256

    def chunk(self, kind: int, flags: int = 0) -> Chunk:
        """Return an aggregation packet with lanes that nobody has contributed."""
        draw = self.rng.randrange
        return Chunk(
            kind=kind,
            group=1 + draw(self.groups),
            child=draw(self.children),
            flags=flags,
            slot=draw(self.slots),
            round=draw(self.rounds),
            mark=draw(1 << 32),
            lanes=(12345,) * self.lanes,
        )


@dataclass(frozen=True)
class Target:
    """A member's NIC, and the UDP port of its rail. Data and control use the same port number."""

    station: Station
    port: int = PORT


Forge: TypeAlias = Callable[[Guess, Station, Target], bytes]
"""Makes a frame in the name of a station."""


def ethernet(source: Station, to: Station, ether_type: int, payload: bytes) -> bytes:
    """Return a frame without FCS, padded to the least length."""
    addresses = to.mac.to_bytes(6, "big") + source.mac.to_bytes(6, "big")
    return (addresses + ether_type.to_bytes(2, "big") + payload).ljust(60, b"\0")


def ipv4(source: Station, to: Station, protocol: int, payload: bytes) -> bytes:
    """Return an IPv4 packet in its frame."""
    addresses = (source.ip, to.ip)
    header = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0, *addresses)
    header = header[:10] + _checksum(header) + header[12:]
    return ethernet(source, to, 0x0800, header + payload)


def udp(source: Station, to: Station, source_port: int, port: int, payload: bytes) -> bytes:
    """Return a datagram without a checksum, as switches send them."""
    ends = Endpoint(source.mac, source.ip, source_port), Endpoint(to.mac, to.ip, port)
    return datagram(*ends, payload).ljust(60, b"\0")


def tcp(source: Station, to: Station, source_port: int, port: int, flags: int) -> bytes:
    """Return a segment without payload."""
    segment = struct.pack(">HHIIBBHHH", source_port, port, 1, 0, 5 << 4, flags, 1 << 15, 0, 0)
    pseudo = struct.pack(">IIHH", source.ip, to.ip, TCP, len(segment))
    return ipv4(source, to, TCP, segment[:16] + _checksum(pseudo + segment) + segment[18:])


def arp(source: Station, asked: int, *, says: Station | None = None, reply: bool = False) -> bytes:
    """Return an ARP broadcast. `source` claims to be `says` (by default itself) and asks for an address."""
    says = says or source
    body = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2 if reply else 1)
    body += says.mac.to_bytes(6, "big") + struct.pack(">I", says.ip) + bytes(6) + struct.pack(">I", asked)
    return ethernet(source, Station(0, BROADCAST), 0x0806, body)


def tagged(frame: bytes, ether_type: int = 0x8100, vlan: int = 0) -> bytes:
    """Return the frame with a VLAN tag. Receivers treat a tag of VLAN 0 as no tag."""
    return frame[:12] + struct.pack(">HH", ether_type, vlan) + frame[12:]


def result(guess: Guess, claimed: Station, to: Target) -> bytes:
    """Return a sum that no switch has made."""
    return udp(claimed, to.station, PORT, to.port, guess.chunk(RESULT).pack())


def mismatch(guess: Guess, claimed: Station, to: Target) -> bytes:
    """Return a RESULT with the flag that the ranks' calls differ."""
    return udp(claimed, to.station, PORT, to.port, guess.chunk(RESULT, MISMATCH).pack())


def spread(guess: Guess, claimed: Station, to: Target) -> bytes:
    """Return a chunk of a broadcast. Its mark is the number of a task, and tasks count from 0."""
    chunk = guess.chunk(SPREAD)
    return udp(claimed, to.station, PORT, to.port, Chunk(**{**vars(chunk), "mark": chunk.round}).pack())


def fetch(guess: Guess, claimed: Station, to: Target) -> bytes:
    """Return a request that asks the target to send chunks of a broadcast to `claimed`."""
    chunk = guess.chunk(FETCH)
    asked = Chunk(**{**vars(chunk), "mark": chunk.round, "lanes": (guess.rng.randrange(1 << 16),)})
    return udp(claimed, to.station, PORT, to.port, asked.pack())


def heartbeat(guess: Guess, claimed: Station, to: Target) -> bytes:
    """Return a heartbeat of recovery with a guessed key."""
    body = recovery.Heartbeat()
    body.standings = [recovery.Standing(0, 1, 1) for _ in range(guess.children)]
    return _control(guess, claimed, to, body)


def goodbye(guess: Guess, claimed: Station, to: Target) -> bytes:
    """Return a goodbye of recovery with a guessed key. It says that a rank is dead."""
    body = recovery.Goodbye()
    body.rank, body.dead, body.reason = guess.rng.randrange(guess.children), True, "forged"
    return _control(guess, claimed, to, body)


def nak(guess: Guess, claimed: Station, to: Target) -> bytes:
    """Return a negative acknowledgement to a guessed queue pair, of code 1 to 3."""
    draw = guess.rng.randrange
    transport = roce.build(roce.Opcode.ACKNOWLEDGE, draw(1 << 24), draw(1 << 24), aeth=(NAK, 1 + draw(3), 0))
    path = roce.Path(
        claimed.mac.to_bytes(6, "big"), to.station.mac.to_bytes(6, "big"), claimed.ip, to.station.ip
    )
    return roce.seal(path, 0, transport)


def unreachable(guess: Guess, claimed: Station, to: Target) -> bytes:
    """Return an ICMP port-unreachable that quotes a datagram from the target to `claimed`."""
    quoted = udp(to.station, claimed, to.port, to.port, bytes(8))[14 : 14 + 28]
    message = struct.pack(">BBHI", 3, 3, 0, 0) + quoted
    return ipv4(claimed, to.station, ICMP, message[:2] + _checksum(message) + message[4:])


def syn(guess: Guess, claimed: Station, to: Target) -> bytes:
    """Return the first segment of a TCP connection."""
    return tcp(claimed, to.station, guess.rng.randrange(1024, 1 << 16), to.port, flags=2)


KINDS: Final[Mapping[str, Forge]] = {
    "result": result,
    "mismatch": mismatch,
    "spread": spread,
    "fetch": fetch,
    "heartbeat": heartbeat,
    "goodbye": goodbye,
    "nak": nak,
    "unreachable": unreachable,
    "syn": syn,
}
"""Everything that a stranger can forge, by name."""


def _control(
    guess: Guess, claimed: Station, to: Target, body: recovery.Heartbeat | recovery.Goodbye
) -> bytes:
    datagram = recovery.Datagram()
    datagram.sender, datagram.rail, datagram.body = guess.rng.randrange(guess.children), 0, body
    key = guess.rng.randbytes(16)
    return udp(claimed, to.station, to.port, to.port, recovery.encode(datagram, key, guess.children, 1))


def _checksum(data: bytes) -> bytes:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (0xFFFF ^ total).to_bytes(2, "big")
