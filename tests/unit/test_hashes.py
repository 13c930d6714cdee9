# SPDX-License-Identifier: Apache-2.0
"""Hash algorithms of BMv2 that p4c cannot name, compared with definitions. The vectors test the others."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from vectors.case import case

from railweave.switch.pipeline import Pipeline

WIDE = slice(34 + 31, 34 + 39)  # where the program puts the hash of its 64-bit field, and 3


def crc(data: bytes, width: int, polynomial: int, *, reflected: bool) -> int:
    """Compute a CRC without initial value and final complement, bit by bit."""
    top, value = 1 << (width - 1), 0
    for byte in data:
        for bit in range(8):
            given = byte >> (bit if reflected else 7 - bit) & 1
            carry = (value >> (width - 1)) ^ given
            value = ((value & (top - 1)) << 1) ^ (polynomial if carry else 0)
    return int(f"{value:0{width}b}"[::-1], 2) if reflected else value


def fnv(data: bytes) -> int:
    """Compute BMv2's hash_ex."""
    mask, value = 0xFFFFFFFF, 2166136261
    for byte in data:
        value = (value ^ ((byte ^ 0x80) - 0x80)) * 16777619 & mask
    for shift in (13, -7, 3, -17, 5):
        value = (value + (value << shift)) & mask if shift > 0 else value ^ value >> -shift
    return value


def test_the_definitions_are_right() -> None:
    """Compare with the check values of CRC-8/SMBUS and of CRC-64/GO-ISO's polynomial with initial value 0."""
    assert crc(b"123456789", 8, 0x07, reflected=False) == 0xF4
    assert crc(b"123456789", 64, 0x1B, reflected=True) == 0x46A5A9388A5BEFFE


@pytest.mark.parametrize(
    ("algorithm", "definition"),
    [
        ("crc8_custom", lambda data: crc(data, 8, 0x07, reflected=False)),
        ("crc64_custom", lambda data: crc(data, 64, 0x1B, reflected=True)),
        ("hash_ex", fnv),
    ],
)
def test_as_defined(algorithm: str, definition: Callable[[bytes], int]) -> None:
    root = json.loads(case("hashes").json.read_bytes())
    for calculation in root["calculations"]:
        if calculation["algo"] == "identity":
            calculation["algo"] = algorithm
    pipeline = Pipeline.load(json.dumps(root).encode())
    rng = random.Random(1)
    for _ in range(20):
        field = rng.randbytes(8)
        packet = bytes(9) + field + bytes(17) + bytes(46 + 10)
        [(_, out)] = pipeline.inject(1, packet)
        assert int.from_bytes(out[WIDE], "big") == (definition(field) % (2**64 - 2) + 3) % 2**64
