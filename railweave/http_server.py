# SPDX-License-Identifier: Apache-2.0
"""An HTTP server for programs that strangers can reach. Strangers can neither stop nor delay the server.

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
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

CONNECTIONS = 32  # at a time
DEADLINE_S = 10.0  # for handshake, request and answer together; Prometheus' default timeout
MAX_HEAD_BYTES = 8192  # of a request
POLL_S = 0.1  # between two checks of deadlines, and after a failed accept
RENEW = "railweave.renew"


@dataclass
class _Connection:
    address: str
    ends_at: float
    asked: bool = False  # whether the request is complete


class BoundedServer(ThreadingMixIn, WSGIServer):
    """Serve a WSGI application until it is stopped.

    A connection ends after a deadline. A stream finds a function under RENEW in its environment, and calls
    it before each message to give the connection a new deadline.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        app: WSGIApplication,
        tls: ssl.SSLContext | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Listen, with port 0 on any free port. A connection ends after `deadline_s`.

        Raises OSError, ValueError or OverflowError if the address cannot be used.
        """
        self._tls = tls
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self.connections: dict[socket.socket, _Connection] = {}
        self.address_family, *_, place = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        super().__init__((str(place[0]), port), _Handler)
        self.set_app(app)
        serve = self.serve_forever
        self._thread = threading.Thread(target=serve, args=(POLL_S,), name="http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close all connections at once, and stop."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def server_bind(self) -> None:
        """Bind without HTTPServer's DNS lookup."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
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
        """Note that a request is complete."""
        with self._lock:
            if connection in self.connections:
                self.connections[connection].asked = True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self.connections.pop(request, None)
        super().shutdown_request(request)

    def renew(self, connection: socket.socket) -> None:
        """Give a connection a new deadline."""
        with self._lock:
            if connection in self.connections:
                self.connections[connection].ends_at = time.monotonic() + self._deadline_s

    def server_close(self) -> None:
        """Close all sockets."""
        super().server_close()
        with self._lock:
            for connection in list(self.connections):
                self._drop(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about clients that disconnect."""


class _Handler(WSGIRequestHandler):
    server: BoundedServer

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

    def get_environ(self) -> dict[str, Any]:
        return {**super().get_environ(), RENEW: partial(self.server.renew, self.request)}

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
