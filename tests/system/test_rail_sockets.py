# SPDX-License-Identifier: Apache-2.0
"""The sockets of rails when the kernel refuses a request. These tests need a network interface."""

from __future__ import annotations

import gc
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from system.namespaces import inside, ip, namespace
from system.rdma_hosts import NIC, bridged

from railweave._rigs.rails import Datagrams
from railweave._rigs.roce import Endpoint, Operation, QueuePair, QueuePairOptions
from railweave.topologies.lab.shaping import class_rules, queue_commands

FILES = Path("/proc/self/fd")
HEADERS = 42  # bytes of Ethernet, IPv4 and UDP headers
SIZE, MANY = 500, 62  # bytes of a datagram; datagrams that fit into one super-packet


def packets_on_loopback() -> int:
    """Return the kernel's packet count. The kernel counts a super-packet as one packet."""
    counts = Path("/proc/thread-self/net/dev").read_text().splitlines()
    (line,) = (line for line in counts if line.strip().startswith("lo:"))
    return int(line.split()[10])


def set_mtu(size: int) -> None:
    ip("link", "set", "lo", "mtu", str(size), "up")


def test_segmentation_that_is_refused_once_is_counted_and_tried_again() -> None:
    """In the past, one refusal changed all later calls: datagrams left one by one, or were dropped."""
    with namespace() as alone, inside(alone):
        set_mtu(65536)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
            sink.bind(("127.0.0.1", 0))
            sender = Datagrams("127.0.0.1")
            sender.set_remotes([sink.getsockname()])
            sender.set_super_packets(MANY * (SIZE + HEADERS))
            set_mtu(SIZE)  # with headers a datagram exceeds this MTU, so the kernel refuses to segment
            assert sender.send([bytes(SIZE)] * MANY) == MANY
            assert sender.stats.segmentation_refused == 1
            set_mtu(65536)
            before = packets_on_loopback()
            assert sender.send([bytes(SIZE)] * MANY) == MANY
            assert packets_on_loopback() == before + 1
            assert sender.stats.segmentation_refused == 1


def test_what_cannot_be_opened_leaves_no_descriptor() -> None:
    with namespace() as alone, inside(alone):
        ip("link", "set", "lo", "up")
        gc.collect()  # else descriptors of earlier tests could be closed while this test counts
        before = len(list(FILES.iterdir()))
        for interface, address in (("nic9", 0x7F000001), ("lo", 0x0A090909)):
            with pytest.raises(OSError, match=interface):
                Endpoint(interface, address)
        assert len(list(FILES.iterdir())) == before


def test_short_rdma_packets_pass_data_of_other_queue_pairs() -> None:
    """The interface's queue holds data for half a second. A packet that is sent later arrives earlier."""
    data, note = np.ones(60_000, np.uint8), np.ones(100, np.uint8)
    into = [np.zeros_like(note) for _ in range(2)]
    with bridged(2) as hosts:
        ends = []
        for rank in range(2):
            with inside(hosts.namespaces[rank]):
                for command in queue_commands(NIC, 1_000_000):
                    subprocess.run(["tc", *command.split()], check=True)
                rules = class_rules([NIC], [hosts.address(rank)])
                subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
                ends.append(Endpoint(NIC, 0x0A030001 + rank))

        def connect(rank: int, number: int) -> QueuePair:
            options = QueuePairOptions(number, number, retries=1000, max_timeout=10**10, first_timeout=10**10)
            return ends[rank].connect(options, 0x0A030002 - rank, ends[1 - rank].mac)

        (data_out, data_in), (note_out, note_in) = (
            (connect(0, number), connect(1, number)) for number in (500, 501)
        )
        data_in.post_receive(1, np.zeros_like(data))
        data_in.post_receive(2, into[0])
        note_in.post_receive(3, into[1])
        data_out.post(1, Operation.SEND, data)
        ends[0].step(0)
        data_out.post(2, Operation.SEND, note)  # as short, but must not overtake data of the same queue pair
        note_out.post(3, Operation.SEND, note)
        came, until = [], time.monotonic() + 20
        while len(came) < 3 and time.monotonic() < until:
            for end in ends:
                end.step(1_000_000)
            for queue_pair in (data_in, note_in):
                while (done := queue_pair.poll()) is not None:
                    came.append(done.id)
        assert came == [3, 1, 2]
        assert data_in.stats.out_of_order == 0
        assert all(buffer.all() for buffer in into)
