# SPDX-License-Identifier: Apache-2.0
"""Integers as P4Runtime bytestrings: big-endian, canonical (no leading zero bytes, at least one byte)."""

from __future__ import annotations

from railweave.switch.p4runtime.errors import invalid, out_of_range


def encode(value: int) -> bytes:
    """The canonical bytestring of a non-negative integer."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode(data: bytes, bitwidth: int, what: str) -> int:
    """The integer in a bytestring; leading zero bytes are accepted, too many bits are not."""
    if not data:
        raise invalid(f"{what}: an empty bytestring is no value")
    value = int.from_bytes(data, "big")
    if value.bit_length() > bitwidth:
        raise out_of_range(f"{what}: {value:#x} does not fit into {bitwidth} bits")
    return value
