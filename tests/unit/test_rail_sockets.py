# SPDX-License-Identifier: Apache-2.0
"""Rails when the kernel refuses a request: no free descriptor, or a closed port."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from protocol.rail_world import SECRET

from railweave._rigs.rails import Datagrams, Rails

DEADLINE_S = 30.0
FILES = Path("/proc/self/fd")
HEADERS = 42  # bytes of Ethernet, IPv4 and UDP headers
SIZE, MANY = 500, 62  # bytes of a datagram; datagrams that fit into one super-packet


def open_files() -> int:
    return len(list(FILES.iterdir()))


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Use up the descriptors: the process can open no file, but can use its open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(each.name) for each in FILES.iterdir()) + 2, hard))
    held: list[int] = []
    try:
        while True:
            try:
                held.append(os.dup(0))
            except OSError:
                break
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)


# UBSan checks an object's memory through a pipe. Without a descriptor, it reports the object as invalid.
@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="UBSan needs descriptors of its own")
def test_a_listener_without_descriptors_waits_and_then_goes_on() -> None:
    """In the past, the listening socket stayed readable, and the loop never slept."""
    rails = Rails(2)
    port = rails.open_tcp(0, "127.0.0.1")
    rails.introduce(0, SECRET, [("127.0.0.1", port)] * 2)
    with socket.socket() as peer:
        peer.setblocking(False)
        with no_descriptor_left():
            peer.connect_ex(("127.0.0.1", port))
            turns, end = 0, time.monotonic() + 1.0
            while (left := end - time.monotonic()) > 0:
                rails.turn(left)
                turns += 1
            assert turns < 200
        taken = open_files()
        latest = time.monotonic() + DEADLINE_S
        while open_files() == taken:
            assert time.monotonic() < latest
            rails.turn(0.1)


def received(sink: socket.socket, count: int) -> int:
    """Return how many datagrams arrive, at most `count`."""
    sink.settimeout(1.0)
    got = 0
    while got < count:
        try:
            sink.recv(2 * SIZE)
        except TimeoutError:
            break
        got += 1
    return got


def test_an_error_about_an_earlier_datagram_costs_no_later_one() -> None:
    """In the past, the ICMP error about an earlier datagram cost a whole later super-packet."""
    sender = Datagrams("127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        port = sink.getsockname()[1]
    sender.set_remotes([("127.0.0.1", port)])
    sender.set_super_packets(MANY * (SIZE + HEADERS))
    sender.send([bytes(SIZE)])  # the port is closed: over loopback the error comes at once
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", port))
        assert sender.send([bytes(SIZE)] * MANY) == MANY
        assert received(sink, MANY) == MANY
    assert sender.stats.send_drops == 0
