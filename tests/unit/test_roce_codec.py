# SPDX-License-Identifier: Apache-2.0
"""The RoCEv2 codec: round trips, refusals, CRC-32 and ICRC, compared with zlib and scapy."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import AETH, BTH, _bth_opcodes
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from railweave._native.roce import FrameFault, Opcode
from railweave._rigs import roce

PATH = roce.Path(
    bytes.fromhex("020000000101"), bytes.fromhex("020000000102"), 0x0A010001, 0x0A010002, source_port=0xC123
)
WITH_RETH = {Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMMEDIATE, Opcode.READ_REQUEST}
WITH_AETH = {
    Opcode.READ_RESPONSE_FIRST,
    Opcode.READ_RESPONSE_LAST,
    Opcode.READ_RESPONSE_ONLY,
    Opcode.ACKNOWLEDGE,
}
WITH_IMMEDIATE = {opcode for opcode in Opcode if opcode.name.endswith("_IMMEDIATE")}
# Captured: an RDMA WRITE of 29 bytes by Linux rdma_rxe, kernel 6.1.
RXE_FRAME = bytes.fromhex(
    "42cbbe2a916652540009000208004500005c24ae4000401101cf0a0900020a090001ca2012b7004800000a30ffff001f3188"
    "80fffff000005594872168a0000000010000001d376ea6dd154c84bbf32a6299d1084077afe61e558cc4fb336aa2d9114800"
    "0000f0ff5b21"
)


@given(st.binary(max_size=5000))
def test_crc32_is_zlibs(data: bytes) -> None:
    assert roce.crc32(data) == roce.crc32_by_table(data) == zlib.crc32(data)


@given(st.binary(min_size=48, max_size=48), st.binary(max_size=5000))
def test_crc32_behind_a_head_is_zlibs(head: bytes, data: bytes) -> None:
    crc = zlib.crc32(head + data)
    assert roce.crc32_behind(head, data) == (crc, crc, data)


@given(st.integers(0, 2**40), st.integers(-(2**23), 2**23 - 1))
def test_sequence_is_recovered_from_24_bits(reference: int, distance: int) -> None:
    sequence = reference + 2**24 + distance
    assert roce.sequence_near(reference + 2**24, sequence % 2**24) == sequence


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
@given(
    st.fixed_dictionaries(
        {
            "qpn": st.integers(0, 2**24 - 1),
            "psn": st.integers(0, 2**24 - 1),
            "payload": st.binary(max_size=1030),
            "ack_request": st.booleans(),
            "solicited": st.booleans(),
            "partition": st.integers(0, 2**16 - 1),
            "reth": st.tuples(
                st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)
            ),
            "aeth": st.tuples(st.integers(0, 3), st.integers(0, 31), st.integers(0, 2**24 - 1)),
            "immediate": st.integers(0, 2**32 - 1),
        }
    )
)
def test_round_trip(opcode: Opcode, fields: dict[str, Any]) -> None:
    transport = roce.build(opcode, **fields)
    expected = {"opcode": opcode, **fields}
    for name, carriers in (("reth", WITH_RETH), ("aeth", WITH_AETH), ("immediate", WITH_IMMEDIATE)):
        if opcode not in carriers:
            del expected[name]
    assert roce.parse(transport) == expected
    assert len(transport) % 4 == 0


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
@pytest.mark.parametrize("size", [0, 1, 3, 4, 1024])
def test_scapy_decodes_and_agrees_on_the_icrc(opcode: Opcode, size: int) -> None:
    payload = random.Random(size).randbytes(size)
    transport = roce.build(
        opcode, 0x123456, 0xABCDEF, payload, ack_request=True, reth=(2**63 + 5, 77, size), aeth=(0, 31, 9)
    )
    frame = roce.seal(PATH, 0x4711, transport)
    decoded = Ether(frame)
    bth = decoded[BTH]
    assert _bth_opcodes[bth.opcode].startswith("RC_")
    assert (bth.dqpn, bth.psn, bth.ackreq, bth.version, bth.padcount) == (0x123456, 0xABCDEF, 1, 0, -size % 4)
    assert (decoded[IP].id, decoded[UDP].dport, decoded[UDP].sport) == (0x4711, 4791, 0xC123)
    if opcode is Opcode.ACKNOWLEDGE:
        assert (decoded[AETH].syndrome, decoded[AETH].msn) == (31, 9)
    received, bth.icrc = bth.icrc, None
    del decoded[IP].chksum
    rebuilt = bytes(decoded)
    assert rebuilt == frame, "scapy computes another IPv4 checksum or ICRC"
    assert received.to_bytes(4, "big") == frame[-4:]
    assert roce.open_frames(frame) == [(FrameFault.NONE, 0x0A010001, 0x0A010002, transport)]


def test_a_frame_of_the_linux_kernel() -> None:
    fault, source, destination, transport = roce.open_frames(RXE_FRAME)[0]
    assert (fault, source, destination) == (FrameFault.NONE, 0x0A090002, 0x0A090001)
    fields = roce.parse(transport)
    assert fields is not None
    assert (fields["opcode"], fields["qpn"], fields["psn"]) == (Opcode.WRITE_ONLY, 0x1F3188, 0xFFFFF0)
    assert fields["reth"] == (0x5594872168A0, 1, 29)
    at = np.arange(1, 30, dtype=np.uint64)  # the pattern of the peer in the rxe test, seed 1
    assert fields["payload"] == ((at * 2654435761 & 0xFFFFFFFF) >> 16).astype(np.uint8).tobytes()


@given(position=st.integers(14, 200), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_unless_it_may_change(position: int, bit: int) -> None:
    transport = roce.build(Opcode.WRITE_ONLY, 0x11, 5, bytes(range(150)), reth=(1, 2, 150))
    frame = bytearray(roce.seal(PATH, 1, transport))
    position = min(position, len(frame) - 1)
    frame[position] ^= 1 << bit
    may_change = position in (40, 41, 46)  # UDP checksum, BTH's FECN, BECN and reserved bits
    fault = roce.open_frames(bytes(frame))[0][0]
    assert (fault is FrameFault.NONE) == may_change


def super_packet(transports: list[bytes], first_id: int) -> bytes:
    """Return several frames of one flow as the kernel delivers them: first headers, lengths of the whole."""
    frames = [roce.seal(PATH, (first_id + i) % 2**16, transport) for i, transport in enumerate(transports)]
    whole = Ether(frames[0][:42] + b"".join(frame[42:] for frame in frames))
    whole[UDP].len = len(whole) - 34
    whole[IP].len = len(whole) - 14
    del whole[IP].chksum
    return bytes(whole)


@pytest.mark.parametrize("sizes", [[1024] * 5, [1024, 1024, 12], [300] * 61, [1024], [256, 0]], ids=len)
@pytest.mark.parametrize("first_id", [0, 0xFFFE])
def test_a_super_packet_is_opened_packet_by_packet(sizes: list[int], first_id: int) -> None:
    transports = [
        roce.build(Opcode.WRITE_MIDDLE, 7, psn, random.Random(psn).randbytes(size))
        for psn, size in enumerate(sizes)
    ]
    frame = super_packet(transports, first_id)
    segment = len(transports[0]) + 4
    expected = [(FrameFault.NONE, 0x0A010001, 0x0A010002, transport) for transport in transports]
    assert roce.open_frames(frame, segment) == expected
    damaged = bytearray(frame)
    damaged[-5] ^= 1
    faults = [fault for fault, *_ in roce.open_frames(bytes(damaged), segment)]
    assert faults == [FrameFault.NONE] * (len(sizes) - 1) + [FrameFault.BAD_ICRC]


@pytest.mark.parametrize(("segment", "last"), [(8, FrameFault.MALFORMED), (1030, FrameFault.MALFORMED)])
def test_a_super_packet_cut_where_no_packet_ends_is_refused(segment: int, last: FrameFault) -> None:
    frame = super_packet([roce.build(Opcode.WRITE_ONLY, 7, 1, bytes(1000), reth=(1, 2, 1000))], 5)
    assert len(frame) == 42 + 1032
    assert roce.open_frames(frame, segment)[-1][0] is last


@given(st.binary(max_size=200), st.integers(0, 200))
def test_parsers_refuse_or_read_any_bytes(data: bytes, gso_size: int) -> None:
    roce.parse(data)
    assert all(fault is not FrameFault.NONE for fault, *_ in roce.open_frames(data, gso_size))


@pytest.mark.parametrize("opcode", list(Opcode), ids=lambda opcode: opcode.name)
def test_short_packets_are_refused(opcode: Opcode) -> None:
    transport = roce.build(opcode, 1, 1)
    for size in range(len(transport)):
        assert roce.parse(transport[:size]) is None


def test_other_versions_opcodes_and_padding_are_refused() -> None:
    transport = roce.build(Opcode.SEND_ONLY, 1, 1)
    assert roce.parse(bytes([0x13]) + transport[1:]) is None, "atomics are not spoken"
    assert roce.parse(bytes([0x64]) + transport[1:]) is None, "unreliable datagrams are not spoken"
    assert roce.parse(transport[:1] + b"\x01" + transport[2:]) is None, "header version 1"
    assert roce.parse(transport[:1] + b"\x30" + transport[2:]) is None, "three bytes of padding to no payload"
