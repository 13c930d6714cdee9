# SPDX-License-Identifier: Apache-2.0
"""Our RoCEv2 endpoint and Linux rdma_rxe in a virtual machine: both directions, checked on both sides."""

from __future__ import annotations

import ipaddress
import itertools
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scapy.contrib.roce import BTH
from scapy.layers.l2 import Ether
from system.namespaces import dropping, inside
from system.rxe import guest as rxe
from system.rxe.guest import Guest
from system.rxe.kernel import KernelMissing, find_kernel

from railweave._native import roce
from railweave._native.roce import Completion, CompletionKind, Operation, QueuePair, QueuePairOptions, Status

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "railweave"
SIZES = [0, 1, 5, 1024, 1025, 100_000, 1 << 20]
COMPLETION_DEADLINE_NS = 60 * 10**9
STEP_NS = 2_000_000
ETHERTYPE_IPV4 = 0x0800

Buffer = NDArray[np.uint8]
seeds = itertools.count(1)


def pattern(seed: int, size: int) -> Buffer:
    """Return the same bytes that the peer's `fill` makes."""
    at = np.arange(seed, seed + size, dtype=np.uint64)
    return ((at * 2654435761 & 0xFFFFFFFF) >> 16).astype(np.uint8)


@dataclass
class Bench:
    """Our endpoint and the guest. It connects new pairs of queue pairs."""

    endpoint: roce.Endpoint
    guest: Guest
    namespace: int
    _keep: list[QueuePair] = field(default_factory=list)

    def connect(self, *, path_mtu: int = 1024, psn: int = 0xFFFFF8, **options: int) -> QueuePair:
        _, peer_qpn, peer_psn = self.guest.order("open").split()
        own = self.endpoint.reserve()
        joined = self.endpoint.connect(
            QueuePairOptions(own, int(peer_qpn), psn, int(peer_psn), path_mtu=path_mtu, **options),
            int(ipaddress.ip_address(rxe.GUEST)),
            bytes.fromhex(rxe.GUEST_MAC.replace(":", "")),
        )
        assert self.guest.order("connect", own, psn, path_mtu, rxe.HOST) == "ok"
        self._keep.append(joined)
        return joined

    def completion(self, queue_pair: QueuePair) -> Completion:
        for _ in range(COMPLETION_DEADLINE_NS // STEP_NS):
            done = queue_pair.poll()
            if done is not None:
                return done
            self.endpoint.step(STEP_NS)
        raise AssertionError("no completion")

    def carry_out(self, queue_pair: QueuePair, operation: Operation, local: Buffer, **where: int) -> Status:
        queue_pair.post(next(seeds), operation, local, **where)
        return self.completion(queue_pair).status

    def register(self, buffer: Buffer, access: int) -> tuple[int, int]:
        """Register a buffer, and return its address and rkey."""
        return int(buffer.ctypes.data), self.endpoint.register(buffer, access)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    reason = rxe.missing()
    if reason is not None:
        pytest.skip(reason)
    try:
        kernel = find_kernel(CACHE)
    except KernelMissing as error:
        pytest.skip(f"rxe test has no kernel: {error}")
    folder = tmp_path_factory.mktemp("rxe")
    initramfs = rxe.build_initramfs(kernel, folder)
    with rxe.network() as network, rxe.boot(kernel, initramfs, network, folder / "console") as guest:
        with inside(network):
            endpoint = roce.Endpoint(rxe.NIC, int(ipaddress.ip_address(rxe.HOST)))
        yield Bench(endpoint, guest, network)


@pytest.mark.parametrize("size", SIZES)
def test_we_write_to_rxe(bench: Bench, size: int) -> None:
    seed, guest = next(seeds), bench.guest
    queue_pair = bench.connect()
    where = {"remote_address": guest.address + 4096, "rkey": guest.rkey}
    assert guest.order("fill", seed + 1, 0, size + 8192) == "ok"
    assert bench.carry_out(queue_pair, Operation.WRITE, pattern(seed, size), **where) is Status.SUCCESS
    assert guest.order("check", seed, 4096, size) == "ok"
    assert guest.order("check", seed + 1, 0, 4096) == "ok", "written in front of the place"
    assert guest.order("check", seed + 1 + 4096 + size, 4096 + size, 4096) == "ok", "written behind the place"
    assert queue_pair.stats.naks_received == 0


@pytest.mark.parametrize("size", SIZES)
def test_we_read_from_rxe(bench: Bench, size: int) -> None:
    seed, guest, into = next(seeds), bench.guest, np.zeros(size, np.uint8)
    queue_pair = bench.connect()
    assert guest.order("fill", seed, 512, size) == "ok"
    where = {"remote_address": guest.address + 512, "rkey": guest.rkey}
    assert bench.carry_out(queue_pair, Operation.READ, into, **where) is Status.SUCCESS
    assert (into == pattern(seed, size)).all()
    assert guest.order("check", seed, 512, size) == "ok"


@pytest.mark.parametrize("size", SIZES)
def test_rxe_writes_to_us(bench: Bench, size: int) -> None:
    seed, guest, memory = next(seeds), bench.guest, np.full(size + 200, 0xEE, np.uint8)
    bench.connect()
    address, rkey = bench.register(memory[100 : 100 + size], roce.REMOTE_WRITE)
    assert guest.order("fill", seed, 64, size) == "ok"
    assert bench.guest.order_while_serving(bench.endpoint, "write", address, rkey, 64, size) == "success"
    assert (memory[100 : 100 + size] == pattern(seed, size)).all()
    assert (memory[:100] == 0xEE).all()
    assert (memory[100 + size :] == 0xEE).all()


@pytest.mark.parametrize("size", SIZES)
def test_rxe_reads_from_us(bench: Bench, size: int) -> None:
    seed, guest = next(seeds), bench.guest
    memory = pattern(seed, size)
    bench.connect()
    address, rkey = bench.register(memory, roce.REMOTE_READ)
    assert guest.order("fill", seed + 1, 0, size + 64) == "ok"
    assert bench.guest.order_while_serving(bench.endpoint, "read", address, rkey, 32, size) == "success"
    assert guest.order("check", seed, 32, size) == "ok"
    assert guest.order("check", seed + 1, 0, 32) == "ok"
    assert (memory == pattern(seed, size)).all()


def test_sends_with_and_without_immediate_data_both_ways(bench: Bench) -> None:
    seed, guest, queue_pair = next(seeds), bench.guest, bench.connect()
    assert guest.order("receive", 0, 4096) == "ok"
    assert guest.order("receive", 4096, 4096) == "ok"
    assert bench.carry_out(queue_pair, Operation.SEND, pattern(seed, 3000)) is Status.SUCCESS
    assert bench.carry_out(queue_pair, Operation.SEND, pattern(seed, 7), immediate=0xBEEF) is Status.SUCCESS
    assert guest.order("wait") == "success 3000 0"
    assert guest.order("wait") == f"success 7 {0xBEEF}"
    assert guest.order("check", seed, 0, 3000) == "ok"

    into = np.zeros(4096, np.uint8)
    queue_pair.post_receive(77, into)
    assert guest.order("fill", seed, 0, 4096) == "ok"
    assert bench.guest.order_while_serving(bench.endpoint, "send", 0, 0, 0, 2500, 99) == "success"
    got = bench.completion(queue_pair)
    assert (got.id, got.kind, got.byte_count, got.immediate) == (77, CompletionKind.RECEIVE, 2500, 99)
    assert (into[:2500] == pattern(seed, 2500)).all()


def test_write_with_immediate_both_ways(bench: Bench) -> None:
    """The RDMA rail sends every message with this operation."""
    seed, guest, queue_pair = next(seeds), bench.guest, bench.connect()
    assert guest.order("receive", 0, 0) == "ok"
    where = {"remote_address": guest.address, "rkey": guest.rkey, "immediate": 0x12345678}
    assert bench.carry_out(queue_pair, Operation.WRITE, pattern(seed, 65_536), **where) is Status.SUCCESS
    assert guest.order("wait") == f"success 65536 {0x12345678}"
    assert guest.order("check", seed, 0, 65_536) == "ok"

    memory = np.zeros(65_536, np.uint8)
    address, rkey = bench.register(memory, roce.REMOTE_WRITE)
    queue_pair.post_receive(5, np.zeros(1, np.uint8))
    assert bench.guest.order_while_serving(bench.endpoint, "write", address, rkey, 0, 65_536, 42) == "success"
    got = bench.completion(queue_pair)
    assert (got.id, got.kind, got.byte_count, got.immediate) == (5, CompletionKind.RECEIVE_WRITE, 65_536, 42)
    assert (memory == pattern(seed, 65_536)).all()


def test_another_path_mtu(bench: Bench) -> None:
    with inside(bench.namespace):
        small = roce.Endpoint(rxe.NIC, int(ipaddress.ip_address(rxe.HOST)), path_mtu=256)
    other = Bench(small, bench.guest, bench.namespace)
    seed, queue_pair, into = next(seeds), other.connect(path_mtu=256), np.zeros(10_000, np.uint8)
    where = {"remote_address": bench.guest.address, "rkey": bench.guest.rkey}
    assert other.carry_out(queue_pair, Operation.WRITE, pattern(seed, 10_000), **where) is Status.SUCCESS
    assert other.carry_out(queue_pair, Operation.READ, into, **where) is Status.SUCCESS
    assert (into == pattern(seed, 10_000)).all()


def test_rxe_waits_for_a_receive_that_we_post_late(bench: Bench) -> None:
    queue_pair, into = bench.connect(), np.zeros(64, np.uint8)
    bench.guest.start("send", 0, 0, 0, 64)
    while queue_pair.stats.naks_sent == 0:
        bench.endpoint.step(STEP_NS)
    queue_pair.post_receive(1, into)
    assert bench.completion(queue_pair).status is Status.SUCCESS
    assert bench.guest.answer_while_serving(bench.endpoint) == "success"


def test_rxe_refuses_what_it_should_and_so_do_we(bench: Bench) -> None:
    guest, queue_pair = bench.guest, bench.connect()
    where = {"remote_address": guest.address, "rkey": guest.rkey ^ 0x5555}
    assert bench.carry_out(queue_pair, Operation.WRITE, pattern(1, 10), **where) is Status.REMOTE_ACCESS_ERROR

    bench.connect()
    memory = np.zeros(64, np.uint8)
    address, rkey = bench.register(memory, roce.REMOTE_READ)
    assert guest.order_while_serving(bench.endpoint, "write", address, rkey, 0, 64) == "remote access error"
    assert not memory.any()
    bench.connect()
    assert (
        guest.order_while_serving(bench.endpoint, "read", address + 1, rkey, 0, 64) == "remote access error"
    )


def test_rxes_packets_bear_the_icrc_that_we_and_scapy_compute(bench: Bench) -> None:
    with inside(bench.namespace):
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_IPV4))
    with tap:
        tap.bind((rxe.NIC, ETHERTYPE_IPV4))
        tap.settimeout(10)
        bench.connect()
        address, rkey = bench.register(np.zeros(5000, np.uint8), roce.REMOTE_WRITE)
        assert bench.guest.order_while_serving(bench.endpoint, "write", address, rkey, 0, 5000) == "success"
        opcodes = []
        while len(opcodes) < 5:
            frame = tap.recv(65_536)
            decoded = Ether(frame)
            if BTH not in decoded:
                continue
            assert roce.open_frames(frame)[0][0] is roce.FrameFault.NONE
            received, decoded[BTH].icrc = decoded[BTH].icrc, None
            assert Ether(bytes(decoded))[BTH].icrc == received
            opcodes.append(decoded[BTH].opcode)
    first, middle, last = roce.Opcode.WRITE_FIRST, roce.Opcode.WRITE_MIDDLE, roce.Opcode.WRITE_LAST
    assert opcodes == [first, middle, middle, middle, last]


@pytest.mark.usefixtures("lossy")
def test_losses_on_the_way_to_and_from_rxe_are_repaired(bench: Bench) -> None:
    """Each side writes a megabyte to the other."""
    seed, guest, queue_pair = next(seeds), bench.guest, bench.connect(retries=50)
    size = 1 << 20
    where = {"remote_address": guest.address, "rkey": guest.rkey}
    assert bench.carry_out(queue_pair, Operation.WRITE, pattern(seed, size), **where) is Status.SUCCESS
    assert guest.order("check", seed, 0, size) == "ok"
    assert queue_pair.stats.retransmissions > 0

    memory = np.zeros(size, np.uint8)
    address, rkey = bench.register(memory, roce.REMOTE_WRITE)
    assert guest.order_while_serving(bench.endpoint, "write", address, rkey, 0, size) == "success"
    assert (memory == pattern(seed, size)).all()
    assert queue_pair.stats.naks_sent > 0


@pytest.fixture
def lossy(bench: Bench) -> Iterator[None]:
    """Drop every tenth of our super-packets (about 40 packets each), and a random 2 % of rxe's packets.

    After a loss, rxe repeats all outstanding packets, up to 130. With a fixed period, the filter could drop
    the same packet in every repetition.
    """
    lost = {rxe.PORT: "numgen inc mod 10 == 3", rxe.NIC: "numgen random mod 100 < 2"}
    with dropping(bench.namespace, lost):
        yield
