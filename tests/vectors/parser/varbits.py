# SPDX-License-Identifier: Apache-2.0
"""Headers with variable fields of all lengths, also impossible ones, and truncated packets."""

import random
from collections.abc import Iterator

from vectors.packets import edges, numbered
from vectors.steps import Packet


def steps(rng: random.Random) -> Iterator[Packet]:
    return numbered(1, (packet(rng) for _ in range(150)))


def packet(rng: random.Random) -> bytes:
    magic = 0x5A if rng.random() < 0.95 else rng.randrange(256)
    what = rng.randrange(4) | rng.choice((0, 0x80, 0x40, 0x20, 0xC0, 0x60)) | rng.randrange(8) << 2
    data = bytes([magic, what])
    if what & 3 == 0:
        data += options(rng)
    elif what & 3 == 1:
        size = rng.choice((0, 8, 16, 32, 40, 48, 7, 0xFFFFFFF8, 0x80000000, 0x7FFFFFF8))
        data += size.to_bytes(4, "big") + edges(rng, 2 + size // 8 % 8)
    elif what & 3 == 2:
        data += pieces(rng)
    data += edges(rng, rng.randrange(12))
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data


def options(rng: random.Random) -> bytes:
    words = rng.choice((0, 1, 2, 3, 3, 4, 15))
    data = bytearray([rng.randrange(16) << 4 | words]) + rng.randbytes(6 + 4 * words)
    if rng.random() < 0.5:
        data[1:3] = checksum(data[:1] + data[3:])
    return bytes(data)


def checksum(data: bytes) -> bytes:
    """Return the Internet checksum. BMv2 pads with a zero byte."""
    padded = data + bytes(len(data) % 2)
    total = sum(int.from_bytes(padded[i : i + 2], "big") for i in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (total ^ 0xFFFF).to_bytes(2, "big")


def pieces(rng: random.Random) -> bytes:
    data = b""
    for number in range(rng.randrange(1, 5)):
        size = rng.choice((0, 1, 3, 8, 8, 9))
        more = number < 3 and rng.random() < 0.7
        data += bytes([size << 1 | more]) + edges(rng, size)
        if not more:
            break
    return data
