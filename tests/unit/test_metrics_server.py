# SPDX-License-Identifier: Apache-2.0
"""Clients that send nothing, too little or too much block neither a scrape nor the end of the server."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from certificates import authority, certificate
from prometheus_client.core import GaugeMetricFamily, Metric

from railweave.access import IN_CLEAR, Access
from railweave.http_server import CONNECTIONS, MAX_HEAD_BYTES
from railweave.metrics_server import MetricsServer

DEADLINE_S = 20.0
SOON_S = 3.0  # on an idle machine, milliseconds are enough
SHORT_S = 0.3  # a server's deadline, in tests that wait for this deadline
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
LARGE = [GaugeMetricFamily("large", "x" * (16 << 20), 1.0)]  # more than the kernel's buffers take
SMALL = [GaugeMetricFamily("small", "A metric.", 2.0)]
ENOUGH = CONNECTIONS + 10


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Access:
    return Access(certificate(authority(tmp_path_factory.mktemp("tls")), "host", "IP:127.0.0.1"))


@pytest.fixture(params=["in clear", "with TLS"])
def access(request: pytest.FixtureRequest) -> Access:
    return IN_CLEAR if request.param == "in clear" else request.getfixturevalue("member")


@contextmanager
def serving(
    access: Access, metrics: Iterable[Metric] = SMALL, deadline_s: float = DEADLINE_S
) -> Iterator[MetricsServer]:
    def collect() -> Iterable[Metric]:
        return metrics

    server = MetricsServer("127.0.0.1:0", collect, access, deadline_s)
    try:
        yield server
    finally:
        server.close()


def context_of(access: Access) -> ssl.SSLContext | None:
    if access.tls is None:
        return None
    context = ssl.create_default_context(cafile=access.tls.ca)
    context.load_cert_chain(access.tls.certificate, access.tls.key)
    return context


def opened(server: MetricsServer, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), DEADLINE_S, (source, 0))


def ready(server: MetricsServer, access: Access, source: str = "127.0.0.1") -> socket.socket:
    """Return a connection after its handshake."""
    connection, context = opened(server, source), context_of(access)
    return context.wrap_socket(connection, server_hostname="127.0.0.1") if context else connection


def all_of(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def scrape(server: MetricsServer, access: Access, **fields: str) -> bytes:
    with ready(server, access) as connection:
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
        connection.sendall(REQUEST.replace(b"\r\n\r\n", b"\r\n" + lines + b"\r\n"))
        return all_of(connection)


# The bytes of a stranger that sends too little or reads nothing, after its handshake. None: not even that.
STRANGERS = {
    "silent": None,
    "in handshake": None,
    "no request": b"",
    "part of a request": REQUEST[:-1],
    "unread answer": REQUEST,
}
strangers = pytest.mark.parametrize("stranger", STRANGERS)


def connected(server: MetricsServer, access: Access, stranger: str) -> socket.socket:
    if (sent := STRANGERS[stranger]) is not None:
        connection = ready(server, access)
        connection.sendall(sent)
        return connection
    connection = opened(server)
    if stranger == "in handshake" and (context := context_of(access)):
        hello = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1").do_handshake()
        connection.sendall(hello.read(100))
    return connection


def ended(connection: socket.socket) -> bool:
    """Read all received data, and return whether the other end has closed the connection."""
    try:
        while select.select([connection], [], [], 0)[0]:
            if not socket.socket.recv(connection, 1 << 20):
                return True
    except ConnectionError:
        return True
    return False


def wait_until(reached: Callable[[], bool]) -> None:
    latest = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < latest, "the time is up"
        select.select([], [], [], 0.01)


@strangers
def test_a_scrape_is_answered_whoever_else_is_connected(access: Access, stranger: str) -> None:
    with serving(access, LARGE) as server, ExitStack() as stack:
        for _ in range(ENOUGH):
            stack.enter_context(connected(server, access, stranger))
        assert scrape(server, access).endswith(b"large 1.0\n")


@strangers
def test_close_or_a_deadline_ends_every_connection(access: Access, stranger: str) -> None:
    with serving(access, LARGE) as server, connected(server, access, stranger) as connection:
        start = time.monotonic()
        server.close()
        assert time.monotonic() - start < SOON_S
        wait_until(lambda: ended(connection))
        with pytest.raises(ConnectionRefusedError):
            opened(server)
    with serving(access, LARGE, SHORT_S) as server, connected(server, access, stranger) as connection:
        wait_until(lambda: server.connections == 0)
        wait_until(lambda: ended(connection))


def test_bytes_that_come_one_by_one_do_not_move_the_deadline(access: Access) -> None:
    with serving(access, deadline_s=SHORT_S) as server, ready(server, access) as connection:
        connection.sendall(b"GET /")

        def drip() -> bool:
            try:
                connection.sendall(b"x")
            except OSError:
                return True
            return False

        start = time.monotonic()
        wait_until(drip)
        assert time.monotonic() - start < SHORT_S + SOON_S


def test_connections_and_threads_are_bounded(access: Access) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(serving(access))
        threads, descriptors = threading.active_count(), Path("/proc/self/fd")
        before = len([*descriptors.iterdir()])
        made = [stack.enter_context(opened(server)) for _ in range(10 * CONNECTIONS)]
        wait_until(lambda: sum(map(ended, made)) == len(made) - CONNECTIONS)
        assert not any(map(ended, made[-CONNECTIONS:])), "the oldest are closed first"
        wait_until(lambda: len([*descriptors.iterdir()]) - before <= len(made) + CONNECTIONS)
        wait_until(lambda: threading.active_count() <= threads + CONNECTIONS)


def test_many_connections_of_one_address_do_not_displace_those_of_others(access: Access) -> None:
    with serving(access) as server, ExitStack() as stack:
        scraper = stack.enter_context(opened(server, "127.0.0.2"))
        for _ in range(ENOUGH):
            stack.enter_context(opened(server))
        if context := context_of(access):
            scraper = stack.enter_context(context.wrap_socket(scraper, server_hostname="127.0.0.1"))
        scraper.sendall(REQUEST)
        assert all_of(scraper).endswith(b"small 2.0\n")


def test_whoever_has_sent_a_request_is_not_displaced_by_silent_connections(access: Access) -> None:
    with serving(access, LARGE) as server, ExitStack() as stack:
        scraper = stack.enter_context(connected(server, access, "unread answer"))
        wait_until(lambda: bool(select.select([scraper], [], [], 0)[0]))
        for _ in range(ENOUGH):
            stack.enter_context(opened(server))
        assert all_of(scraper).endswith(b"large 1.0\n")


def test_a_stranger_without_a_certificate_gets_no_answer(member: Access) -> None:
    nameless = ssl.create_default_context(cafile=member.tls.ca)
    with serving(member) as server, opened(server) as plain:
        plain.sendall(REQUEST)
        assert b"small" not in all_of(plain)
        with (
            nameless.wrap_socket(opened(server), server_hostname="127.0.0.1") as connection,
            pytest.raises(ssl.SSLError, match=r"(?i)certificate required"),
        ):
            connection.recv(1)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\n\r\n", b""),  # no answer
    ],
    ids=["POST", "nonsense", "too long"],
)
def test_other_requests_are_refused(request_: bytes, status: bytes) -> None:
    with serving(IN_CLEAR) as server, opened(server) as connection:
        connection.sendall(request_)
        try:
            answer = all_of(connection)
        except ConnectionError:
            answer = b""
        assert status in answer
        assert bool(status) == bool(answer)


def unreadable() -> Iterator[Metric]:
    raise TimeoutError("the switches are too slow")
    yield SMALL[0]


def test_metrics_that_cannot_be_read_are_an_error_of_the_server() -> None:
    with serving(IN_CLEAR, unreadable()) as server:
        assert b" 503 " in scrape(server, IN_CLEAR)


def test_prometheus_chooses_the_format() -> None:
    with serving(IN_CLEAR) as server:
        assert b"text/plain" in scrape(server, IN_CLEAR)
        assert b"openmetrics" in scrape(
            server, IN_CLEAR, Accept="application/openmetrics-text; version=1.0.0"
        )
        assert b"gzip" in scrape(server, IN_CLEAR, **{"Accept-Encoding": "gzip"})
