# SPDX-License-Identifier: Apache-2.0
"""Super-packets through the embedded switch. They must not change the data that a receiver sees."""

from __future__ import annotations

import hashlib
import random
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from dataplane import wire
from dataplane.harness import Frames, WireSwitch
from dataplane.hosts import Host, connect, network
from dataplane.packets import SPREAD, VIRTUAL, Group, Member, children, frame, open_frame
from dataplane.programs import PATCH, ROUTER, aggregation
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

A, B = 0x020000000001, 0x020000000002
SOL_PACKET, PACKET_VNET_HDR = 263, 15
SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
NEEDS_CHECKSUM, TCP4, UDP_L4 = 1, 1, 5
DEADLINE_S = 10.0


@pytest.fixture
def embedded(_processes: dict[str, WireSwitch]) -> WireSwitch:
    """The embedded switch, on links whose kernel cuts all super-packets of the switch."""
    return _processes["embedded"]


@pytest.fixture
def router(embedded: WireSwitch) -> WireSwitch:
    """The embedded switch with the router program, which sends frames for B to port 2."""
    embedded.load(ROUTER)
    embedded.insert("bridge", {"destination": B}, "to_port", {"port": 2})
    return embedded


def link() -> Packet:
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def datagram(payload: bytes, ident: int, **ip: object) -> bytes:
    packet = link() / IP(src="10.0.0.1", dst="10.0.0.2", id=ident, **ip)
    return bytes(packet / UDP(sport=1, dport=5257) / payload)


def send_with_offload(switch: WireSwitch, port: int, offload: bytes, frame: bytes) -> Frames:
    """Let the host's kernel send a frame with pending offload work, as a socket with offloads does."""

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
            raw.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
            raw.bind((f"h{port}", wire.ETH_P_ALL))
            raw.send(offload + frame)

    wire.in_namespace(switch.namespace, send)
    return switch.collect(port)


def with_partial_checksum(frame: bytes, transport: int, field: int, protocol: int) -> bytes:
    length = len(frame) - transport
    total = sum(struct.unpack(">4H", frame[transport - 8 : transport])) + protocol + length
    total = (total & 0xFFFF) + (total >> 16)
    at = transport + field
    return frame[:at] + struct.pack(">H", (total & 0xFFFF) + (total >> 16)) + frame[at + 2 :]


@pytest.mark.parametrize("tag", [b"", b"\x81\x00\x00\x05"], ids=["plain", "tagged"])
def test_a_udp_super_packet_leaves_as_its_datagrams(router: WireSwitch, tag: bytes) -> None:
    payloads = [bytes([i]) * 1000 for i in range(29)] + [b"z" * 999]
    whole = datagram(b"".join(payloads), 100)
    whole = with_partial_checksum(whole, 34, 6, 17)
    start = 34 + len(tag)
    offload = struct.pack("<BBHHHH", NEEDS_CHECKSUM, UDP_L4, start + 8, 1000, start, 6)
    out = send_with_offload(router, 1, offload, whole[:12] + tag + whole[12:])
    expected = [datagram(payload, 100 + i) for i, payload in enumerate(payloads)]
    assert out == [(2, packet[:12] + tag + packet[12:]) for packet in expected]


def arrived(out: Frames, to: Member) -> list[bytes]:
    """Return the payloads for a member. Ignore UDP checksums: the kernel adds them when it cuts a frame."""
    frames = [data[:40] + bytes(2) + data[42:] for port, data in out if port == to.port]
    opened = [open_frame(data, VIRTUAL, to) for data in frames]
    assert {port for port, _ in opened} == {to.udp_port}
    return [payload for _, payload in opened]


def test_a_shard_in_a_super_packet_reaches_all_others_by_chunks(embedded: WireSwitch) -> None:
    group = Group(embedded.load(aggregation(64)), children(3)).install()
    sender, *others = group.members

    def chunks(to: Member) -> list[bytes]:
        sizes = [1000] * 39 + [7]
        headers = (group.chunk(to, (), kind=SPREAD, slot=5, round=n).pack() for n in range(40))
        return [
            header + bytes([n]) * size for n, (header, size) in enumerate(zip(headers, sizes, strict=True))
        ]

    whole = with_partial_checksum(frame(sender, VIRTUAL, b"".join(chunks(sender))), 34, 6, 17)
    offload = struct.pack("<BBHHHH", NEEDS_CHECKSUM, UDP_L4, 42, 1016, 34, 6)
    out = send_with_offload(embedded, sender.port, offload, whole)
    for to in others:
        assert arrived(out, to) == chunks(to)
    assert len(out) == 2 * 40


def test_a_run_of_like_packets_is_cut_into_the_very_same(router: WireSwitch) -> None:
    """The switch coalesces packets of a large burst. The kernel of this link cuts them again."""
    burst = [datagram(random.Random(i).randbytes(700), i) for i in range(200)]
    assert router.exchange_many([(1, packet) for packet in burst]) == [(2, packet) for packet in burst]


OPTIONS = {"coalescing": (), "exact bytes": ("--exact-bytes",), "each alone": ("--super-packet-bytes", "0")}


@pytest.fixture(scope="module", params=OPTIONS.values(), ids=OPTIONS.keys())
def hosts(request: pytest.FixtureRequest) -> Iterator[list[Host]]:
    with network(PATCH, 2, request.param) as (_, hosts):
        yield hosts


def udp(host: Host, *, gro: bool) -> socket.socket:
    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((host.address, 5257))
        made.settimeout(DEADLINE_S)
        made.setsockopt(SOL_UDP, UDP_GRO, int(gro))
        return made

    return host.run(make)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@pytest.mark.parametrize("gro", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
def test_udp_sockets_with_and_without_offloads(hosts: list[Host], gro: bool, checksum: bool) -> None:
    size, count, rounds = 1040, 40, 20
    with udp(hosts[0], gro=False) as sender, udp(hosts[1], gro=gro) as receiver:
        sender.setsockopt(socket.SOL_SOCKET, 11, int(not checksum))  # SO_NO_CHECK
        if checksum:
            sender.setsockopt(SOL_UDP, UDP_SEGMENT, size)
        for seed in range(rounds):
            data = random.Random(seed).randbytes(size * count - 40)
            datagrams = cut(data, size)
            for each in [data] if checksum else datagrams:
                sender.sendto(each, (hosts[1].address, 5257))
            got: list[bytes] = []
            while sum(map(len, got)) < len(data):
                got += cut(receiver.recv(1 << 16), size)
            # The sender's kernel may reorder datagrams while it waits for ARP.
            assert sorted(got) == sorted(datagrams)


@contextmanager
def tunnel(hosts: list[Host]) -> Iterator[str]:
    """Create a VXLAN tunnel between two hosts. Yield the second host's address in the tunnel."""
    for own, peer in (hosts, hosts[::-1]):
        remote = ["id", "7", "remote", peer.address, "dstport", "4789", "dev", "eth0"]
        wire.ip("-n", own.namespace, "link", "add", "tunnel", "type", "vxlan", *remote)
        wire.ip("-n", own.namespace, "address", "add", f"10.78.0.{own.port}/24", "dev", "tunnel")
        wire.ip("-n", own.namespace, "link", "set", "tunnel", "up")
    try:
        yield f"10.78.0.{hosts[1].port}"
    finally:
        for host in hosts:
            wire.ip("-n", host.namespace, "link", "delete", "tunnel")


def test_tcp_connections_carry_their_bytes_and_lose_no_super_packet_in_a_tunnel(hosts: list[Host]) -> None:
    carry(hosts, hosts[1].address)
    with tunnel(hosts) as address:
        assert carry(hosts, address) < 100  # a refused super-packet is sent again in 40 segments


def carry(hosts: list[Host], address: str) -> int:
    """Send 8 MiB to an address of the second host; return how many segments were sent again."""
    data = random.Random(7).randbytes(8 << 20)

    def listen() -> socket.socket:
        listener = socket.create_server((address, 80))
        listener.settimeout(DEADLINE_S)
        return listener

    def connect() -> socket.socket:
        return socket.create_connection((address, 80), DEADLINE_S)

    with hosts[1].run(listen) as listener, hosts[0].run(connect) as client:
        server, _ = listener.accept()
        feeder = threading.Thread(target=lambda: (client.sendall(data), client.shutdown(socket.SHUT_WR)))
        feeder.start()
        digest = hashlib.sha256()
        with server:
            server.settimeout(DEADLINE_S)
            while piece := server.recv(1 << 20):
                digest.update(piece)
        feeder.join(DEADLINE_S)
        (again,) = struct.unpack_from("=I", client.getsockopt(socket.SOL_TCP, socket.TCP_INFO, 104), 100)
    assert digest.digest() == hashlib.sha256(data).digest()
    return int(again)


def _answers(host: Host, peer: Host) -> bool:
    """Return whether a datagram reaches the peer. Try for 5 s, because a link may still come up."""
    with udp(host, gro=False) as sender, udp(peer, gro=False) as receiver:
        for _ in range(100):
            sender.sendto(b"hello", (peer.address, 5257))
            if select.select([receiver], [], [], 0.05)[0]:
                return receiver.recv(100) == b"hello"
    return False


def test_a_switch_outlives_its_links() -> None:
    with network(PATCH, 4) as (switch, hosts):
        assert _answers(hosts[0], hosts[1])
        wire.ip("-n", switch, "link", "set", "s1", "down")
        assert _answers(hosts[2], hosts[3])
        wire.ip("-n", switch, "link", "set", "s1", "up")
        assert _answers(hosts[0], hosts[1])
        wire.ip("-n", switch, "link", "delete", "s1")
        assert _answers(hosts[2], hosts[3])
        connect(switch, hosts[0])
        assert _answers(hosts[0], hosts[1])


@contextmanager
def patched_hosts() -> Iterator[tuple[str, socket.socket, socket.socket, tuple[str, int]]]:
    """Run a switch with short super-packets. Yield its namespace, two hosts' sockets, and a destination."""
    with (
        network(PATCH, 2, ("--super-packet-bytes", "5000")) as (switch, (a, b)),
        udp(a, gro=False) as out,
        udp(b, gro=False) as into,
    ):
        yield switch, out, into, (b.address, 5257)


def slow_down(switch: str, interface: str, limit: str) -> None:
    shaper = ["root", "tbf", "rate", "50mbit", "burst", "10kb", "limit", limit]
    wire.run("tc", "-n", switch, "qdisc", "add", "dev", interface, *shaper)


def test_what_a_slow_links_queue_refuses_waits_in_the_port() -> None:
    with patched_hosts() as (switch, out, into, to):
        slow_down(switch, "s2", "30kb")
        out.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)
        data = [bytes([i]) * 40_000 for i in range(10)]
        for each in data:
            out.sendto(each, to)
        assert b"".join(into.recv(2000) for _ in range(400)) == b"".join(data)


def test_what_a_queue_will_never_take_does_not_hold_up_the_rest() -> None:
    with patched_hosts() as (switch, out, into, to):
        slow_down(switch, "s2", "3kb")
        out.setsockopt(SOL_UDP, UDP_SEGMENT, 1000)
        out.sendto(bytes(4000), to)
        out.sendto(b"after", to)
        assert into.recv(2000) == b"after"
