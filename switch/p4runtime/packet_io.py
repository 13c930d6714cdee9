# SPDX-License-Identifier: Apache-2.0
"""Packet-in and packet-out: controller headers as metadata (specification, section 16.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import require

MAX_PACKET_BYTES = 65_535


@dataclass(frozen=True)
class ControllerHeader:
    """The fields of a header that carries metadata between switch and controller, in order."""

    name: str
    fields: tuple[p4i.ControllerPacketMetadata.Metadata, ...] = ()

    @classmethod
    def of(cls, p4info: p4i.P4Info, name: str) -> ControllerHeader:
        """Return the header that the P4Info describes under `name`, or else a header without fields."""
        described = (h for h in p4info.controller_packet_metadata if h.preamble.name == name)
        header = cls(name, tuple(next(described, p4i.ControllerPacketMetadata()).metadata))
        bits = sum(field.bitwidth for field in header.fields)
        least = min((field.bitwidth for field in header.fields), default=1)
        require(least > 0, f"{name}: fields have 1 bit or more")
        require(bits % 8 == 0, f"{name} has {bits} bits, which make no whole bytes; pad it")
        require(bits <= MAX_PACKET_BYTES * 8, f"{name} is longer than a packet")
        require(
            len({field.id for field in header.fields}) == len(header.fields), f"{name}: ids of fields differ"
        )
        return header

    @property
    def size_bytes(self) -> int:
        """Return the length of the header."""
        return sum(field.bitwidth for field in self.fields) // 8

    def encode(self, metadata: Iterable[p4r.PacketMetadata]) -> bytes:
        """Return the header with these values; Refused unless each field is given exactly once."""
        given: dict[int, bytes] = {}
        for one in metadata:
            require(one.metadata_id not in given, f"metadata {one.metadata_id} is given twice")
            given[one.metadata_id] = one.value
        bits = 0
        for field in self.fields:
            what = f"{self.name}.{field.name}"
            require(field.id in given, f"{what} (metadata {field.id}) is missing")
            value = bytestrings.decode(given.pop(field.id), field.bitwidth, what)
            bits = bits << field.bitwidth | value
        known = [field.id for field in self.fields]
        require(not given, f"{self.name} has metadata {known}, not {sorted(given)}")
        return bits.to_bytes(self.size_bytes, "big")

    def decode(self, packet: bytes) -> p4r.PacketIn | None:
        """Take a packet apart that begins with the header; None if it is shorter than the header."""
        size = self.size_bytes
        if len(packet) < size:
            return None
        message = p4r.PacketIn(payload=packet[size:])
        bits, left = int.from_bytes(packet[:size], "big"), size * 8
        for field in self.fields:
            left -= field.bitwidth
            value = (bits >> left) & ((1 << field.bitwidth) - 1)
            message.metadata.add(metadata_id=field.id, value=bytestrings.encode(value))
        return message
