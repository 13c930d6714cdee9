# SPDX-License-Identifier: Apache-2.0
"""An endpoint on a socket of the loopback device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from socket import socket

import numpy as np
import pytest

from railweave import sdk
from railweave.sdk.sockets import AT_ONCE, Driver, places_of, udp_socket

LOOPBACK = ("127.0.0.1", 0)
LANES, CHUNKS = 256, AT_ONCE + 6  # more chunks than fit a send, a window and a look at the socket
GIVEN = np.arange(LANES * CHUNKS, dtype=np.int32)
DATAGRAMS = [
    (row + 1).to_bytes(4) + numbers.astype(">i4").tobytes()
    for row, numbers in enumerate(GIVEN.reshape(CHUNKS, LANES))
]


@pytest.fixture
def peer() -> Iterator[socket]:
    with udp_socket(LOOPBACK) as made:
        made.settimeout(10)
        yield made


@pytest.fixture
def driver(peer: socket) -> Iterator[Driver]:
    found = sdk.find("sum")
    endpoint = found.endpoint(found.job(0, 2, {"slots": 2 * AT_ONCE}), 0)
    with closing(Driver(endpoint, LOOPBACK, peer.getsockname())) as made:
        yield made


def test_chunks_arrive_as_datagrams_in_order_and_again_until_the_call_ends(
    driver: Driver, peer: socket
) -> None:
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match=r"0\.5 s"):
        driver.call(GIVEN, "sum", 0.5)
    assert 0.5 <= time.monotonic() - begin < 10
    for _ in range(3):
        assert [peer.recv(1 << 13) for _ in range(AT_ONCE)] == DATAGRAMS[:AT_ONCE]


def test_a_call_takes_all_that_arrives(driver: Driver, peer: socket) -> None:
    for datagram in DATAGRAMS:
        peer.sendto(datagram, driver._socket.getsockname())
    np.testing.assert_array_equal(driver.call(GIVEN, "sum", 10), GIVEN)


def test_a_result_goes_once_to_each_place() -> None:
    a, b, c = (("10.0.0.1", port) for port in (1, 2, 3))
    found = [places_of(ranks, [a, b, a, c]) for ranks in (0, 0b1101, 0b0010, 0b10000)]
    assert found == [[], [a, c], [b], []]


def test_a_socket_whose_port_is_taken_is_closed(recwarn: pytest.WarningsRecorder) -> None:
    with udp_socket(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="Address already in use"):
        udp_socket(taken.getsockname())
    assert [str(each.message) for each in recwarn] == []
