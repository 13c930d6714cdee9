# SPDX-License-Identifier: Apache-2.0
"""What rails do when the kernel refuses: no descriptor left, nobody listening."""

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

from railweave._native.rails import Datagrams, Rails

DEADLINE_S = 30.0
FILES = Path("/proc/self/fd")
HEADERS = 42  # of Ethernet, IPv4 and UDP
SIZE, MANY = 500, 62  # bytes of a datagram; so many fit one super-packet


def open_files() -> int:
    return len(list(FILES.iterdir()))


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The process may open nothing more, though it may use what it has."""
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


# It looks at an object's memory through a pipe, and reports an object that it cannot look at.
@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="UBSan needs descriptors of its own")
def test_a_listener_without_descriptors_waits_and_then_goes_on() -> None:
    """Before, the listening socket stayed readable and the loop turned without a pause."""
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
    """How many datagrams come, up to so many."""
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
    """Before, a whole super-packet went for the ICMP error that the datagram before it had caused."""
    sender = Datagrams("127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        port = sink.getsockname()[1]
    sender.set_remotes([("127.0.0.1", port)])
    sender.set_super_packets(MANY * (SIZE + HEADERS))
    sender.send([bytes(SIZE)])  # nobody listens: over loopback the error is there at once
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", port))
        assert sender.send([bytes(SIZE)] * MANY) == MANY
        assert received(sink, MANY) == MANY
    assert sender.counts.dropped == 0
