# SPDX-License-Identifier: Apache-2.0
"""Steps for the programs of language features: expressions, headers, parsers, hashes and messages."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from vectors import steps as do
from vectors.packets import edges, numbered
from vectors.steps import Packet, Step


def digests(rng: random.Random) -> Iterator[Step]:
    """All digests differ, because BMv2 holds back equal digests that were not acknowledged."""
    for number in range(48):
        kind = rng.randrange(128)
        head = edges(rng, 6) + struct.pack(">H", rng.randrange(512) << 7 | kind)
        yield Packet(rng.choice((1, 2, 400)), (head + edges(rng, 16) + struct.pack(">H", number)).hex())
        if number % 24 == 23:  # digests of the other list are discarded
            yield do.digests("learn_t" if number < 24 else "other_t")


def arithmetic(rng: random.Random) -> Iterator[Packet]:
    """Packets with operands and space for results."""
    return numbered(1, (arithmetic_packet(rng) for _ in range(120)))


def arithmetic_packet(rng: random.Random) -> bytes:
    operands = b"".join(edges(rng, size) for size in (2, 8, 16, 32, 10))
    if rng.random() < 0.2:
        operands = operands[:10] + operands[10:18] * 2 + operands[26:42] * 2 + operands[58:]
    return operands + bytes(6 + 32 + 48 + 112 + 4 + 16 + 2)


def lanes(rng: random.Random) -> Iterator[Packet]:
    """Every reduction that the lowering fuses, on values near each other and at the edges."""
    for _ in range(150):
        slot = rng.choice((0, 1, 63, 64, 0xFFFF)) if rng.random() < 0.3 else rng.randrange(3)
        yield Packet(1, (struct.pack(">BH", rng.randrange(9), slot) + edges(rng, 4 * 16) + b"end").hex())


def signed(rng: random.Random) -> Iterator[Packet]:
    """Signed operands with edge values."""
    return numbered(1, (signed_packet(rng) for _ in range(150)))


def signed_packet(rng: random.Random) -> bytes:
    numbers = b"".join(edges(rng, size) for size in (2, 2, 4, 4, 8, 8))
    if rng.random() < 0.2:
        numbers = (
            bytes([0x80, 0xFF]) + numbers[2:4] + b"\x80\0\0\0\xff\xff\xff\xff\x80" + bytes(7) + b"\xff" * 8
        )
    kinds = rng.choice((3, 9, 12, rng.randrange(16))) << 4 | rng.randrange(16)
    return numbers + bytes([kinds, rng.choice((0, 1, 7, 8, 31, 32, 63, 64, 255))]) + edges(rng, 1)


def wide(rng: random.Random) -> Iterator[Packet]:
    """Operands with edge values: equal, all ones, signs, and shifts beyond the width."""
    return numbered(1, (wide_packet(rng) for _ in range(30)))


def wide_packet(rng: random.Random) -> bytes:
    first, second = rng.choice((wide_pair(rng, 512), wide_pair(rng, 512), (0, 1), (1 << 511, (1 << 512) - 1)))
    shift = rng.choice((0, 1, 63, 64, 65, 127, 128, 255, rng.randrange(256)))
    narrow = rng.choice((edges(rng, 17), b"\xff" * 17, bytes(17), b"\x80" + bytes(7) + b"\x40" + bytes(8)))
    data = narrow + edges(rng, 1) + first.to_bytes(64, "big") + second.to_bytes(64, "big")
    return data + bytes([shift]) + edges(rng, 256) + edges(rng, 256) + bytes(899)


def wide_pair(rng: random.Random, bits: int) -> tuple[int, int]:
    value = int.from_bytes(edges(rng, bits // 8), "big")
    return value, rng.choice((value, value ^ 1, int.from_bytes(edges(rng, bits // 8), "big")))


HASHES_IN, HASHES_MORE, HASHES_OUT = 34, 6, 46


def hashes(rng: random.Random) -> Iterator[Packet]:
    """Random and extreme inputs with payloads of even and odd length; half of the checksums are right."""
    for _ in range(120):
        yield Packet(1, hashes_packet(rng).hex())


def hashes_packet(rng: random.Random) -> bytes:
    kind = rng.randrange(32)
    given = edges(rng, HASHES_IN - 1) + bytes([kind])
    more = edges(rng, HASHES_MORE) if kind & 1 else b""
    payload = edges(rng, rng.choice((0, 1, 2, 7, 30)))
    words = given[2:8] + given[9:17] + payload
    words += bytes(len(words) % 2)
    total = sum(struct.unpack(f">{len(words) // 2}H", words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    one = 0xFFFF ^ total ^ (rng.random() < 0.5)
    first, second = given[:2], more[:2] if more else bytes(2)
    two = int.from_bytes(first) ^ int.from_bytes(second) ^ (rng.random() < 0.5)
    return given + more + bytes(HASHES_OUT) + struct.pack(">HHIH", one, two, 0, 0) + payload


def stacks(rng: random.Random) -> Iterator[Packet]:
    """One operation per packet, on stacks of one to five labels."""
    return numbered(1, (stacks_packet(rng) for _ in range(160)))


def stacks_packet(rng: random.Random) -> bytes:
    what = rng.choice((*range(1, 7), *range(1, 7), *range(10, 19), 0xFF))
    data = bytes([what, rng.randrange(4), rng.randrange(4), rng.choice((0, 1, 5, 255))])
    count = rng.choice((4, 4, 4, 1, 2, 3, 5))
    repeated = rng.randrange(1 << 15)
    for number in range(count if what != 0xFF else 0):
        tag = rng.choice((repeated, number, rng.randrange(1 << 15)))
        data += (tag << 1 | (number == count - 1)).to_bytes(2, "big")
    data += rng.randbytes(6)
    return data[: rng.randrange(3, len(data) + 1)] if rng.random() < 0.15 else data


def unions(rng: random.Random) -> Iterator[Packet]:
    """Packets that put every header of the unions in every place."""
    return numbered(1, (unions_packet(rng) for _ in range(160)))


def unions_packet(rng: random.Random) -> bytes:
    kinds = rng.randrange(16)
    data = bytes([rng.randrange(10), kinds])
    same = edges(rng, 4)
    first, second = (1, 2, 6, 0)[kinds & 3], (1, 2, 4, 0)[kinds >> 2]
    data += (same + same[:2])[:first] + (same if rng.random() < 0.5 else edges(rng, 4))[:second]
    for _ in range(rng.randrange(5)):
        size = rng.choice((1, 2, 4))
        piece = bytearray(edges(rng, size))
        piece[0] = piece[0] & 0x3F | {1: 0, 2: 0x40, 4: 0x80}[size]
        data += piece
    data += bytes([0xFF])
    return data[: rng.randrange(2, len(data) + 1)] if rng.random() < 0.1 else data


def messages(rng: random.Random) -> Iterator[Packet]:
    """Packets for which all assertions hold, because BMv2 ends at a failed assertion."""
    return numbered(1, (bytes([rng.randrange(100)]) + edges(rng, 11) for _ in range(20)))


def looking(rng: random.Random) -> Iterator[Packet]:
    """Each path through the parser, also with short packets."""
    return numbered(1, (looking_packet(rng) for _ in range(200)))


def looking_packet(rng: random.Random) -> bytes:
    what = rng.choice(
        (0x10, 0x10, 0x11, 0x1F, 0x20, 0x20, 0x30, 0x31, 0x40, 0x40, 0x50, 0xEE, 0xFF, rng.randrange(256))
    )
    a, b = rng.randrange(16), rng.choice((0, 99, 100, 0x101, 0x1FF, 0xFFF, rng.randrange(4096)))
    skip = rng.choice((0, 8, 16, 24, 7, 1 << 31, 0xFFFFFFF8, 1000))
    data = bytes([what]) + (a << 12 | b).to_bytes(2, "big") + skip.to_bytes(4, "big")
    if what == 0x40:
        for _ in range(rng.randrange(8)):
            size = rng.randrange(5)
            data += bytes([rng.choice((1, 1, 1, 2, 13)), size]) + bytes(size)
        data += bytes([0, rng.randrange(3)])
    data += edges(rng, rng.choice((4, 8, 14, 20)))
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.15 else data


def parsing(rng: random.Random) -> Iterator[Packet]:
    """Headers of the kinds that the parser distinguishes, sometimes cut short."""
    return numbered(1, (parsing_packet(rng) for _ in range(120)))


def parsing_packet(rng: random.Random) -> bytes:
    kind = rng.choice((1, 1, 2, 3, 5, 0x10, 0x11, 0x12, 0x14, 0x80, 0x81, 0x82, rng.randrange(256)))
    magic = rng.choice((0xAA, 0xAA, 0xA0, 0xA1, 0, rng.randrange(256)))
    data = bytes([kind, magic, 0, 0, rng.randrange(6), 0, 0, 0])
    for number in range(rng.randrange(7)):
        bottom = rng.random() < 0.3 or number == 5
        data += ((rng.randrange(1 << 23) << 9) | (bottom << 8) | rng.randrange(256)).to_bytes(4, "big")
        if bottom:
            break
    data += bytes([rng.choice((0x70, 0x60, 0x00)) | rng.randrange(16)]) + edges(rng, 1)
    data += bytes(range(1, 13)) if rng.random() < 0.3 else edges(rng, 12)
    data += edges(rng, rng.randrange(12))
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data


def value_sets(rng: random.Random) -> Iterator[Packet]:
    """Empty value sets, because BMv2's P4Runtime cannot fill them. Unit tests fill value sets."""
    return numbered(1, (value_sets_packet(rng) for _ in range(20)))


def value_sets_packet(rng: random.Random) -> bytes:
    return bytes([rng.choice((0, 1, 0x10, 0xFF))]) + rng.randbytes(13)


def varbits(rng: random.Random) -> Iterator[Packet]:
    """Headers with variable fields of all lengths, also impossible ones, and truncated packets."""
    return numbered(1, (varbits_packet(rng) for _ in range(150)))


def varbits_packet(rng: random.Random) -> bytes:
    magic = 0x5A if rng.random() < 0.95 else rng.randrange(256)
    what = rng.randrange(4) | rng.choice((0, 0x80, 0x40, 0x20, 0xC0, 0x60)) | rng.randrange(8) << 2
    data = bytes([magic, what])
    if what & 3 == 0:
        data += varbits_options(rng)
    elif what & 3 == 1:
        size = rng.choice((0, 8, 16, 32, 40, 48, 7, 0xFFFFFFF8, 0x80000000, 0x7FFFFFF8))
        data += size.to_bytes(4, "big") + edges(rng, 2 + size // 8 % 8)
    elif what & 3 == 2:
        data += varbits_pieces(rng)
    data += edges(rng, rng.randrange(12))
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data


def varbits_options(rng: random.Random) -> bytes:
    words = rng.choice((0, 1, 2, 3, 3, 4, 15))
    data = bytearray([rng.randrange(16) << 4 | words]) + rng.randbytes(6 + 4 * words)
    if rng.random() < 0.5:
        data[1:3] = varbits_checksum(data[:1] + data[3:])
    return bytes(data)


def varbits_checksum(data: bytes) -> bytes:
    """Return the Internet varbits_checksum. BMv2 pads with a zero byte."""
    padded = data + bytes(len(data) % 2)
    total = sum(int.from_bytes(padded[i : i + 2], "big") for i in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (total ^ 0xFFFF).to_bytes(2, "big")


def varbits_pieces(rng: random.Random) -> bytes:
    data = b""
    for number in range(rng.randrange(1, 5)):
        size = rng.choice((0, 1, 3, 8, 8, 9))
        more = number < 3 and rng.random() < 0.7
        data += bytes([size << 1 | more]) + edges(rng, size)
        if not more:
            break
    return data
