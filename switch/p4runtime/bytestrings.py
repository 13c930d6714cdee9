# SPDX-License-Identifier: Apache-2.0
"""Integers as P4Runtime bytestrings (specification, section 8.3): big-endian, two's complement if signed."""

from __future__ import annotations

from railweave.switch.p4runtime.errors import out_of_range, require


def encode(value: int, *, signed: bool = False) -> bytes:
    """Return the shortest bytestring of an integer, which is not negative unless `signed`."""
    return value.to_bytes((_bits(value, signed) + 7) // 8, "big", signed=signed)


def decode(data: bytes, bitwidth: int, what: str, *, signed: bool = False) -> int:
    """Return the integer in a bytestring of any length; Refused if it has more than `bitwidth` bits."""
    value = number(data, what, signed=signed)
    if _bits(value, signed) > bitwidth:
        raise out_of_range(f"{what}: {value:#x} does not fit into {bitwidth} {'signed ' * signed}bits")
    return value


def number(data: bytes, what: str, *, signed: bool = False) -> int:
    """Return the integer in a bytestring of any length."""
    require(data, f"{what}: an empty bytestring is no value", out_of_range)
    return int.from_bytes(data, "big", signed=signed)


def _bits(value: int, signed: bool) -> int:
    """Return the fewest bits that hold a value, with its sign if `signed`."""
    return (value ^ -(value < 0)).bit_length() + 1 if signed else max(1, value.bit_length())
