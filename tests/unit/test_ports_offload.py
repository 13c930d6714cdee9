# SPDX-License-Identifier: Apache-2.0
"""Segmentation of received super-packets and coalescing of sent packets, without a network."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet

from railweave._rigs import ports

NEEDS_CHECKSUM = 1
TCP4, TCP6, UDP_L4, UFO, ECN = 1, 4, 5, 3, 0x80
NO_OFFLOAD = bytes(10)


def offload(flags: int, kind: int, size: int, start: int, field: int) -> bytes:
    return struct.pack("<BBHHHH", flags, kind, 0, size, start, field)


def ether() -> Packet:
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def datagrams(
    count: int, size: int, *, last: int | None = None, first_id: int = 7, **udp: int
) -> list[bytes]:
    """Return a run of similar datagrams, with right checksums unless `chksum` is given."""
    sizes = [size] * (count - 1) + [last if last is not None else size]
    return [
        bytes(
            ether()
            / IP(src="10.0.0.1", dst="10.0.0.2", id=(first_id + i) & 0xFFFF)
            / UDP(sport=5257, dport=5257, **udp)
            / (bytes([i % 256]) * length)
        )
        for i, length in enumerate(sizes)
    ]


def super_packet(packets: list[bytes]) -> tuple[bytes, bytes]:
    frames = ports.coalesce(packets)
    assert len(frames) == 1, "the packets are alike"
    (header, frame), *_ = frames
    return header, frame


@given(count=st.integers(1, 40), size=st.integers(1, 1400), last=st.integers(1, 1400))
def test_what_is_coalesced_is_cut_into_the_same_packets(count: int, size: int, last: int) -> None:
    packets = datagrams(count, size, last=min(size, last))
    frames = ports.coalesce(packets)
    assert [packet for header, frame in frames for packet in ports.cut(frame, header)] == packets


def test_a_run_leaves_as_one_frame_with_the_kernels_offload_header() -> None:
    packets = datagrams(5, 100)
    header, frame = super_packet(packets)
    assert struct.unpack("<BBHHHH", header) == (NEEDS_CHECKSUM, UDP_L4, 42, 100, 34, 6)
    parsed = Ether(frame)
    assert parsed[IP].len == 20 + 8 + 500
    assert parsed[UDP].len == 8 + 500
    assert IP(bytes(parsed[IP])[:20]).chksum == IP(frame[14:34]).chksum


def test_a_run_ends_with_a_shorter_packet_or_at_its_limit() -> None:
    shorter = [*datagrams(3, 100, last=40), *datagrams(2, 100, first_id=10)]
    assert [len(frame) - 14 for _, frame in ports.coalesce(shorter)] == [28 + 240, 28 + 200]
    frames = ports.coalesce(datagrams(20, 1000), 5_100)
    assert [len(frame) - 14 for _, frame in frames] == [28 + 5_000] * 4
    packets = datagrams(4, 100)
    assert ports.coalesce(packets, 0) == [(NO_OFFLOAD, packet) for packet in packets]


def changed(**fields: object) -> bytes:
    """Return the second packet of a run with other header fields and matching checksums."""
    packet = Ether(datagrams(2, 100)[1])
    for name, value in fields.items():
        setattr(
            next(layer for layer in (packet, packet[IP], packet[UDP]) if name in layer.fields), name, value
        )
    for layer in (packet[IP], packet[UDP]):
        del layer.chksum
        del layer.len
    return bytes(packet)


SECOND = datagrams(2, 100)[1]
UNLIKE = {
    "source address": changed(src="02:00:00:00:00:09"),
    "destination port": changed(dport=1),
    "ttl": changed(ttl=1),
    "tos": changed(tos=3),
    "id": changed(id=99),
    "fragment": changed(flags="MF"),
    "options": changed(options=[IPOption_NOP()] * 4),
    "longer": datagrams(1, 101, first_id=8)[0],
    "trailer": SECOND + b"\0\0",
    "wrong ip checksum": SECOND[:24] + b"\x12\x34" + SECOND[26:],
    "wrong udp checksum": SECOND[:40] + b"\x12\x34" + SECOND[42:],
    "no udp checksum": SECOND[:40] + b"\0\0" + SECOND[42:],
    "vlan": SECOND[:12] + b"\x81\0\0\x05" + SECOND[12:],
    "tcp": bytes(ether() / IP(src="10.0.0.1", dst="10.0.0.2", id=8) / TCP() / bytes(80)),
    "arp": bytes(ether() / ARP()),
    "runt": SECOND[:14],
}


@pytest.mark.parametrize("unlike", UNLIKE.values(), ids=UNLIKE.keys())
def test_unlike_packets_leave_alone_and_unchanged(unlike: bytes) -> None:
    packets = [datagrams(1, 100)[0], unlike]
    assert ports.coalesce(packets) == [(NO_OFFLOAD, packet) for packet in packets]


def any_datagram(ident: int, flags: str, checksum: bool, port: int, size: int = 64) -> bytes:
    udp = UDP(sport=1, dport=port) if checksum else UDP(sport=1, dport=port, chksum=0)
    return bytes(ether() / IP(src="10.0.0.1", dst="10.0.0.2", id=ident, flags=flags) / udp / bytes(size))


@pytest.mark.parametrize(
    ("packets", "exact", "frames"),
    [
        ([any_datagram(ident, "DF", checksum=True, port=5257) for ident in (5, 900)], False, 1),
        ([any_datagram(ident, "DF", checksum=True, port=4791) for ident in (5, 900)], False, 2),
        (datagrams(4, 64, chksum=0), False, 1),
        (datagrams(4, 64), True, 1),
    ],
    ids=["atomic", "atomic of RoCE", "without checksum", "exact, with ids that follow"],
)
def test_like_packets_run_together(packets: list[bytes], exact: bool, frames: int) -> None:
    assert len(ports.coalesce(packets, exact_bytes=exact)) == frames


FLAGS, PORTS, SIZES = (st.sampled_from(each) for each in (("", "DF"), (4791, 5257), (64, 64, 16)))
DATAGRAMS = st.lists(
    st.builds(any_datagram, st.integers(0, 3), FLAGS, st.booleans(), PORTS, SIZES), max_size=30
)


def cut_again(frames: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [packet for header, frame in frames for packet in ports.cut(frame, header)]


@given(DATAGRAMS)
def test_exact_bytes_leave_whatever_is_coalesced(packets: list[bytes]) -> None:
    assert cut_again(ports.coalesce(packets, exact_bytes=True)) == packets


@given(DATAGRAMS)
def test_only_ids_and_missing_checksums_differ_otherwise(packets: list[bytes]) -> None:
    for before, after in zip(packets, cut_again(ports.coalesce(packets)), strict=True):
        was, now = Ether(before), Ether(after)
        if was[UDP].chksum == 0:
            now[UDP].chksum = 0
        if was[IP].flags.DF and was[UDP].dport != 4791:
            now[IP].id, now[IP].chksum = was[IP].id, was[IP].chksum
        assert bytes(now) == before


def test_an_ip_checksum_of_all_ones_stays_as_it_is() -> None:
    """A receiver reads all ones and zero as the same number. The kernel writes zero."""
    header = datagrams(1, 64, first_id=0)[0][14:34]
    without_id = (0xFFFF - struct.unpack_from(">H", header, 10)[0]) % 0xFFFF
    first, second = datagrams(2, 64, first_id=0xFFFF - without_id)
    assert first[24:26] == b"\0\0"
    packets = [first[:24] + b"\xff\xff" + first[26:], second]
    assert cut_again(ports.coalesce(packets)) == packets


def segment(layers: Packet, flags: str, payload: bytes) -> Packet:
    return (
        layers
        / TCP(sport=1, dport=2, seq=0xFFFFFF00, ack=5, flags=flags, options=[("NOP", None)] * 4)
        / payload
    )


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("tagged", [False, True])
def test_tcp_is_cut_as_the_kernel_would(version: int, tagged: bool) -> None:
    network = IP(src="10.0.0.1", dst="10.0.0.2", id=0xFFFF) if version == 4 else IPv6(src="::1", dst="::2")
    link = ether() / Dot1Q(vlan=5) if tagged else ether()
    payload = bytes(range(256)) * 10
    frame = bytes(segment(link / network, "FPAC", payload))
    start = len(link) + len(network)
    header = offload(NEEDS_CHECKSUM, (TCP4 if version == 4 else TCP6) | ECN, 1000, start, 16)
    pieces = [payload[i : i + 1000] for i in range(0, len(payload), 1000)]
    cut = ports.cut(frame, header)
    assert len(cut) == 3
    for i, (packet, piece) in enumerate(zip(cut, pieces, strict=True)):
        flags = "A" + ("C" if i == 0 else "") + ("FP" if i == 2 else "")
        expected = segment(link / network, flags, piece)
        expected[TCP].seq = (0xFFFFFF00 + 1000 * i) & 0xFFFFFFFF
        if version == 4:
            expected[IP].id = (0xFFFF + i) & 0xFFFF
        assert packet == bytes(expected)


def tunnelled(name: str, ident: int, **udp: int) -> Packet:
    """Return the headers of a tunnel, in front of the inner Ethernet header."""
    headers = {
        "vxlan": VXLAN(vni=7, flags=0x08),
        "geneve": GENEVE(vni=7, proto=0x6558),
        "geneve with an option": GENEVE(
            vni=7, proto=0x6558, options=[GeneveOptions(classid=1, type=2, length=2, data=bytes(8))]
        ),
    }
    outer = ether() / IP(src="10.1.0.1", dst="10.1.0.2", id=ident & 0xFFFF) / UDP(sport=50_000, **udp)
    return outer / headers[name]


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("name", ["vxlan", "geneve", "geneve with an option"])
def test_a_super_packet_in_a_tunnel_is_cut_as_the_kernel_would(
    name: str, transport: str, checksum: bool
) -> None:
    """The kernel gives the position of the inner checksum. The tunnel's UDP header may also have one."""
    payload = bytes(range(256)) * 10
    udp = {"dport": 4789 if name == "vxlan" else 6081} | ({} if checksum else {"chksum": 0})

    def packet(index: int, piece: bytes, *, last: bool) -> bytes:
        inner = ether() / IP(src="10.8.0.1", dst="10.8.0.2", id=30 + index)
        if transport == "udp":
            return bytes(tunnelled(name, 0xFFFF + index, **udp) / inner / UDP(sport=1, dport=2) / piece)
        inner = segment(inner, "PA" if last else "A", piece)
        inner[TCP].seq = (0xFFFFFF00 + 1000 * index) & 0xFFFFFFFF
        return bytes(tunnelled(name, 0xFFFF + index, **udp) / inner)

    pieces = [payload[i : i + 1000] for i in range(0, len(payload), 1000)]
    expected = [packet(i, piece, last=i == 2) for i, piece in enumerate(pieces)]
    whole = packet(0, payload, last=True)
    start = len(tunnelled(name, 0)) + 34
    kind, field = (TCP4, 16) if transport == "tcp" else (UDP_L4, 6)
    assert ports.cut(whole, offload(NEEDS_CHECKSUM, kind, 1000, start, field)) == expected


def test_a_super_packet_in_an_unknown_tunnel_is_refused() -> None:
    inner = ether() / IP(src="10.8.0.1", dst="10.8.0.2") / TCP() / bytes(3000)
    outer = ether() / IP(src="10.1.0.1", dst="10.1.0.2") / UDP(sport=1, dport=2) / bytes(11)
    header = offload(NEEDS_CHECKSUM, TCP4, 1000, len(outer) + 34, 16)
    assert ports.cut(bytes(outer / inner), header) is None


def test_a_udp_super_packet_over_ipv6_is_cut() -> None:
    network = IPv6(src="fd00::1", dst="fd00::2")
    packets = [bytes(ether() / network / UDP(sport=1, dport=2) / (bytes([i]) * 50)) for i in range(3)]
    whole = bytes(ether() / network / UDP(sport=1, dport=2) / b"".join(bytes([i]) * 50 for i in range(3)))
    assert ports.cut(whole, offload(NEEDS_CHECKSUM, UDP_L4, 50, 54, 6)) == packets


@pytest.mark.parametrize("transport", [UDP, TCP])
def test_a_checksum_left_to_hardware_is_completed(transport: type[Packet]) -> None:
    right = bytes(ether() / IP(src="10.0.0.1", dst="10.0.0.2") / transport() / b"odd payload")
    field = 6 if transport is UDP else 16
    pseudo = sum(struct.unpack(">4H", right[26:34])) + right[23] + len(right) - 34
    partial = (pseudo & 0xFFFF) + (pseudo >> 16)
    frame = right[: 34 + field] + struct.pack(">H", partial) + right[34 + field + 2 :]
    assert ports.cut(frame, offload(NEEDS_CHECKSUM, 0, 0, 34, field)) == [right]


def test_a_super_packet_without_checksum_stays_without() -> None:
    header, frame = super_packet(datagrams(3, 64))
    frame = frame[:40] + b"\0\0" + frame[42:]
    without = b"\0" + header[1:6] + bytes(4)
    assert [packet[40:42] for packet in ports.cut(frame, without)] == [b"\0\0"] * 3


def test_a_frame_without_offload_passes_unchanged() -> None:
    for frame in (bytes(14), bytes(ether() / IP() / ICMP()), b"\xff" * 9000):
        assert ports.cut(frame, NO_OFFLOAD) == [frame]


@given(frame=st.binary(min_size=14, max_size=200), header=st.binary(min_size=10, max_size=10))
def test_hostile_offload_headers_are_refused_or_harmless(frame: bytes, header: bytes) -> None:
    cut = ports.cut(frame, header)
    assert cut is None or sum(map(len, cut)) >= len(frame)


@given(
    kind=st.sampled_from([TCP4, TCP6, UDP_L4, UFO, UDP_L4 | ECN]),
    flips=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6),
    size=st.integers(0, 65535),
    start=st.integers(0, 65535),
)
def test_damaged_super_packets_do_no_harm(
    kind: int, flips: list[tuple[int, int]], size: int, start: int
) -> None:
    frame = bytearray(bytes(ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / bytes(300)))
    for at, value in flips:
        frame[at] = value
    ports.cut(bytes(frame), offload(NEEDS_CHECKSUM, kind, size, start, 6))


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_any_bytes_may_be_sent(packets: list[bytes]) -> None:
    assert [frame for _, frame in ports.coalesce(packets)] == packets
