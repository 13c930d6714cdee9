# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of ranks and of the controller for Prometheus. Strangers can neither stop nor delay it.

The number and the duration of connections are bounded, so that silent clients cost little. TLS handshakes run
in the threads of their connections.
"""

from __future__ import annotations

import io
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from railweave.access import IN_CLEAR, Access

CONNECTIONS = 32  # at a time
DEADLINE_S = 10.0  # for handshake, request and answer together; Prometheus' default timeout
MAX_HEAD_BYTES = 8192  # of a request
POLL_S = 0.1  # between two checks of deadlines, and after a failed accept


class MetricsServer:
    """Answer scrapes until it is closed."""

    def __init__(
        self,
        listen: str,
        collect: Callable[[], Iterable[Metric]],
        access: Access = IN_CLEAR,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Listen on HOST:PORT, port 0 for a free one; with TLS if `access` has certificates.

        `collect` runs once per scrape, in a separate thread. A connection ends after `deadline_s`.
        Raises OSError, ValueError or OverflowError if the address cannot be used.
        """
        host, _, port = listen.rpartition(":")
        self._server = _Server(host, int(port), collect, access.server_context(), deadline_s)
        self.address = f"{host}:{self._server.server_port}"
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(POLL_S,), name="metrics", daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._server.connections)

    def close(self) -> None:
        """Close all connections at once, and stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class _Connection:
    address: str
    ends_at: float
    asked: bool = False  # whether the request is complete


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        collect: Callable[[], Iterable[Metric]],
        tls: ssl.SSLContext | None,
        deadline_s: float,
    ) -> None:
        self._collect = collect
        self._tls = tls
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self.connections: dict[socket.socket, _Connection] = {}
        self.address_family, *_, place = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        super().__init__((str(place[0]), port), _Handler)
        self.set_app(self._answer)

    def server_bind(self) -> None:
        """Bind without HTTPServer's DNS lookup."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            peer, address = super().get_request()
        except OSError:  # for example because no descriptor is free
            time.sleep(POLL_S)
            raise
        if self._tls:
            peer = self._tls.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
        return peer, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a separate thread."""
        with self._lock:
            if len(self.connections) >= CONNECTIONS:
                self._drop(self._least_worthy())
            ends_at = time.monotonic() + self._deadline_s
            self.connections[request] = _Connection(client_address[0], ends_at)
        super().process_request(request, client_address)

    def _least_worthy(self) -> socket.socket:
        """Return the connection to drop.

        It is one of the address with the most connections: the oldest without a request, if there is one.
        """
        counts = Counter(each.address for each in self.connections.values())
        return max(self.connections.items(), key=lambda item: (counts[item[1].address], not item[1].asked))[0]

    def _drop(self, connection: socket.socket) -> None:
        """End a connection below TLS, and wake its thread."""
        del self.connections[connection]
        with suppress(OSError):  # it is closed already
            socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def service_actions(self) -> None:
        """Drop the connections past their deadline. The server calls this after every wait."""
        now = time.monotonic()
        with self._lock:
            for connection in [one for one, state in self.connections.items() if state.ends_at <= now]:
                self._drop(connection)

    def has_asked(self, connection: socket.socket) -> None:
        with self._lock:
            if connection in self.connections:
                self.connections[connection].asked = True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self.connections.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            for connection in list(self.connections):
                self._drop(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about clients that disconnect."""

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        registry = CollectorRegistry()
        try:
            registry.register(_Collected(list(self._collect())))
        except Exception as error:
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{error}\n".encode()]
        answer: Iterable[bytes] = make_wsgi_app(registry)(environ, start_response)
        return answer


class _Handler(WSGIRequestHandler):
    server: _Server

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.do_handshake()
        super().setup()
        self.rfile = io.BytesIO(self._head())

    def _head(self) -> bytes:
        """Return the request up to the empty line; nothing if it is too long or incomplete."""
        head = b""
        while b"\r\n\r\n" not in head:
            received = self.request.recv(MAX_HEAD_BYTES)
            head += received
            if not received or len(head) > MAX_HEAD_BYTES:
                return b""
        self.server.has_asked(self.request)
        return head

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class _Collected(Collector):
    """Yields metrics that were read before."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._metrics
