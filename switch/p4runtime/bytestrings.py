# SPDX-License-Identifier: Apache-2.0
"""Integers as P4Runtime bytestrings: big-endian, canonical (no leading zero bytes, at least one byte)."""

from __future__ import annotations

from railweave.switch.p4runtime.errors import out_of_range, require


def encode(value: int) -> bytes:
    """The canonical bytestring of a non-negative integer."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode(data: bytes, bitwidth: int, what: str) -> int:
    """The integer in a bytestring; leading zero bytes are accepted, too many bits are not."""
    value = number(data, what)
    if value.bit_length() > bitwidth:
        raise out_of_range(f"{what}: {value:#x} does not fit into {bitwidth} bits")
    return value


def number(data: bytes, what: str) -> int:
    """Return the integer in a bytestring of any length."""
    require(data, f"{what}: an empty bytestring is no value", out_of_range)
    return int.from_bytes(data, "big")
