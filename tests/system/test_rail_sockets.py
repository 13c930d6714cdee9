# SPDX-License-Identifier: Apache-2.0
"""What the sockets of rails do when the kernel refuses, where the refusal takes an interface."""

from __future__ import annotations

import gc
import socket
import subprocess
from pathlib import Path

import pytest
from system.namespaces import inside, namespace

from railweave._native.rails import Datagrams
from railweave._native.roce import Endpoint

FILES = Path("/proc/self/fd")
SIZE, MANY = 500, 62  # bytes of a datagram; so many fit one super-packet


def packets_on_loopback() -> int:
    """As the kernel counts them: a super-packet is one."""
    counts = Path("/proc/thread-self/net/dev").read_text().splitlines()
    (line,) = (line for line in counts if line.strip().startswith("lo:"))
    return int(line.split()[10])


def set_mtu(size: int) -> None:
    subprocess.run(["ip", "link", "set", "lo", "mtu", str(size), "up"], check=True)


def test_segmentation_that_is_refused_once_is_counted_and_tried_again() -> None:
    """Before, all later datagrams left one by one, or were dropped, as the kernel named the refusal."""
    with namespace() as alone, inside(alone):
        set_mtu(65536)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
            sink.bind(("127.0.0.1", 0))
            sender = Datagrams("127.0.0.1")
            sender.set_remotes([sink.getsockname()])
            sender.set_super_packets(MANY * SIZE)
            set_mtu(SIZE)  # with headers a datagram is larger than that: the kernel does not cut it so
            assert sender.send([bytes(SIZE)] * MANY) == MANY
            assert sender.counts.segmentation_refused == 1
            set_mtu(65536)
            before = packets_on_loopback()
            assert sender.send([bytes(SIZE)] * MANY) == MANY
            assert packets_on_loopback() == before + 1
            assert sender.counts.segmentation_refused == 1


def test_what_cannot_be_opened_leaves_no_descriptor() -> None:
    with namespace() as alone, inside(alone):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        gc.collect()  # what earlier tests have left is not to go now
        before = len(list(FILES.iterdir()))
        for interface, address in (("nic9", 0x7F000001), ("lo", 0x0A090909)):
            with pytest.raises(OSError, match=interface):
                Endpoint(interface, address)
        assert len(list(FILES.iterdir())) == before
