# SPDX-License-Identifier: Apache-2.0
"""Impairments and captures of a running switch's ports, on real links."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dataplane import wire
from dataplane.harness import links
from dataplane.programs import PATCH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgReader, PcapReader

from railweave._rigs import ports as native
from railweave.switch.impairment import Impairment
from railweave.switch.pipeline import Pipeline
from railweave.switch.ports import PortCounters, PortError, Ports

DEADLINE_S = 5.0
SOL_PACKET, PACKET_VNET_HDR = 263, 15
NEEDS_CHECKSUM, UDP_L4 = 1, 5


class Patched:
    """Ports of this process with a program that joins ports 1 and 2, and the far ends of their links."""

    def __init__(
        self,
        namespace: str,
        interfaces: dict[int, str],
        hosts: dict[int, socket.socket],
        *,
        exact_bytes: bool = False,
    ) -> None:
        self.namespace, self.hosts = namespace, hosts
        self.pipeline = Pipeline.load(PATCH.json.read_bytes())

        def opened() -> Ports:
            ports = Ports(interfaces, exact_bytes=exact_bytes)
            ports.use(self.pipeline)
            return ports

        self.ports = wire.in_namespace(namespace, opened)

    def through(self, packets: list[bytes], expected: list[bytes]) -> None:
        """Send packets into port 1. Exactly the expected packets must leave by port 2, in order."""
        assert self.sent(packets, len(expected)) == expected

    def sent(self, packets: list[bytes], count: int) -> list[bytes]:
        """Send packets into port 1. Return the output of port 2 after `count` packets or a deadline.

        The ports receive all packets that were sent before their start as one batch.
        """
        for packet in packets:
            self.hosts[1].send(packet)
        wire.in_namespace(self.namespace, self.ports.start)
        end = time.monotonic() + DEADLINE_S
        got: list[bytes] = []
        while len(got) < count and (left := end - time.monotonic()) > 0:
            select.select([self.hosts[2]], [], [], left)
            while (data := wire.receive(self.hosts[2])) is not None:
                got.append(data)
        return got


@pytest.fixture
def patched(request: pytest.FixtureRequest) -> Iterator[Patched]:
    """Return joined ports. They leave all bytes as they are if a test passes True."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces and raw sockets need root")
    with links("bad") as linked:
        switch = Patched(*linked, exact_bytes=getattr(request, "param", False))
        yield switch
        switch.ports.stop()


def numbered(count: int) -> list[bytes]:
    return [bytes(Ether() / IP() / UDP(dport=5257) / struct.pack(">I", n) / bytes(60)) for n in range(count)]


def captured(path: Path) -> list[bytes]:
    with PcapReader(str(path)) as reader:
        assert not isinstance(reader, PcapNgReader)
        assert reader.nano
        return [bytes(packet) for packet in reader]


def survivors(impairment: Impairment, packets: list[bytes]) -> list[bytes]:
    """Return the packets that the same link delivers in virtual time."""
    link = native.ImpairedLink(impairment.as_dict())
    out = []
    for packet in packets:
        link.push(packet, 0)
        while (left := link.pop(0)) is not None:
            out.append(left)
    return out


@pytest.mark.parametrize(("port", "direction"), [(1, "in"), (2, "out")])
def test_losses_are_those_of_the_seed(patched: Patched, port: int, direction: str) -> None:
    impairment = Impairment(loss=0.4, duplicate=0.2, corrupt=0.1, seed=11)
    packets = numbered(60)
    patched.ports.set_impairment(port, direction, impairment)  # type: ignore[arg-type]
    expected = survivors(impairment.of(port, direction), packets)  # type: ignore[arg-type]
    patched.through(packets, expected)
    counts = patched.ports.impairment_counts(port, direction)  # type: ignore[arg-type]
    assert counts is not None
    assert counts.packets - counts.lost + counts.duplicated == len(expected)
    patched.ports.set_impairment(port, direction, None)  # type: ignore[arg-type]
    patched.through(packets, packets)
    assert patched.ports.impairment_counts(port, direction) is None  # type: ignore[arg-type]


def test_delayed_and_reordered_packets_come_without_others_behind_them(patched: Patched) -> None:
    patched.ports.set_impairment(1, "in", Impairment(delay_ns=3_000_000))
    patched.ports.set_impairment(2, "out", Impairment(reorder=1.0))
    patched.through(numbered(1), numbered(1))


def test_captures_hold_what_the_program_is_given_and_what_the_far_end_gets(
    patched: Patched, tmp_path: Path
) -> None:
    packets = numbered(60)
    coming, leaving = Impairment(loss=0.5, seed=4), Impairment(loss=0.5, duplicate=0.3, seed=4)
    patched.ports.set_impairment(1, "in", coming)
    patched.ports.set_impairment(2, "out", leaving)
    patched.ports.capture(1, tmp_path)
    patched.ports.capture(2, tmp_path / "deeper" / "two")
    given = survivors(coming.of(1, "in"), packets)
    expected = survivors(leaving.of(2, "out"), given)
    patched.through(packets, expected)
    patched.ports.capture(1, None)
    assert captured(tmp_path / "s1_in.pcap") == given
    assert captured(tmp_path / "s1_out.pcap") == []
    patched.ports.stop()  # ends the capture of port 2
    assert captured(tmp_path / "deeper" / "two" / "s2_out.pcap") == expected


def test_super_packets_are_captured_as_they_would_be_on_the_wire(patched: Patched, tmp_path: Path) -> None:
    payload = os.urandom(2500)
    long = bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(dport=5257) / payload)
    offload = struct.pack("<BBHHHH", NEEDS_CHECKSUM, UDP_L4, 42, 1000, 34, 6)
    patched.ports.capture(1, tmp_path)

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
            raw.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
            raw.bind(("h1", wire.ETH_P_ALL))
            raw.send(offload + long)

    wire.in_namespace(patched.namespace, send)
    expected = native.cut(long, offload)
    patched.through([], expected)
    patched.ports.capture(1, None)
    assert captured(tmp_path / "s1_in.pcap") == expected
    assert [len(packet) - 42 for packet in expected] == [1000, 1000, 500]


def without_checksum(count: int) -> list[bytes]:
    return [bytes(Ether() / IP(id=n) / UDP(dport=5257, chksum=0) / bytes(60)) for n in range(count)]


def atomic(count: int) -> list[bytes]:
    return [bytes(Ether() / IP(id=7 * n, flags="DF") / UDP(dport=5257) / bytes(60)) for n in range(count)]


def following(count: int) -> list[bytes]:
    return [bytes(Ether() / IP(id=n) / UDP(dport=5257) / bytes(60)) for n in range(count)]


def tx(ports: Ports, number: int) -> PortCounters:
    return next(counters for counters in ports.counters() if counters.port == number)


@pytest.mark.parametrize("patched", [True], ids=["exact"], indirect=True)
@pytest.mark.parametrize(("like", "frames"), [(without_checksum, 16), (atomic, 16), (following, 1)])
def test_exact_bytes_leave_as_the_program_wrote_them(
    patched: Patched, like: Callable[[int], list[bytes]], frames: int
) -> None:
    packets = like(16)
    patched.through(packets, packets)
    patched.ports.stop()
    counters = tx(patched.ports, 2)
    assert (counters.tx_rewritten, counters.tx_frames) == (0, frames)


@pytest.mark.parametrize(("like", "rewritten"), [(without_checksum, 16), (atomic, 15)])
def test_captures_hold_what_left_and_what_the_kernel_rewrote_is_counted(
    patched: Patched, tmp_path: Path, like: Callable[[int], list[bytes]], rewritten: int
) -> None:
    """One batch of packets leaves as one super-packet. The kernel of this link cuts it."""
    patched.ports.capture(2, tmp_path)
    packets = like(16)
    arrived = patched.sent(packets, 16)
    patched.ports.stop()
    assert captured(tmp_path / "s2_out.pcap") == arrived
    counters = tx(patched.ports, 2)
    assert (counters.tx_packets, counters.tx_frames, counters.tx_rewritten) == (16, 1, rewritten)
    assert sum(a != b for a, b in zip(arrived, packets, strict=True)) == rewritten


def test_what_is_not_there_is_named(patched: Patched, tmp_path: Path) -> None:
    with pytest.raises(PortError, match="no port 9"):
        patched.ports.set_impairment(9, "in", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(PortError, match="--pcap "):
        patched.ports.capture(1, tmp_path / "file")
