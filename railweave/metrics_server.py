# SPDX-License-Identifier: Apache-2.0
"""An HTTP server for Prometheus, of ranks and of the controller, that strangers can neither stop nor hold up.

One thread serves all connections. Their number and their time are bounded, whatever they do or omit.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from typing import TypeVar

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from railweave.access import IN_CLEAR, Access

CONNECTIONS = 32  # at a time
DEADLINE_S = 10.0  # for handshake, request and answer together; Prometheus gives up then, too
MAX_HEAD_BYTES = 8192
RETRY_S = 0.1  # after an accept that failed, for example because no descriptor was free

Result = TypeVar("Result")


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    address: str
    asked: bool = False  # its request is complete


class MetricsServer:
    """Answers scrapes until it is closed."""

    def __init__(
        self,
        listen: str,
        collect: Callable[[], Awaitable[Iterable[Metric]]],
        access: Access = IN_CLEAR,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Listen on HOST:PORT, 0 for any port; with TLS if `access` has it.

        `collect` runs in the server's event loop for each scrape; a connection ends after `deadline_s`.
        Raises OSError, ValueError or OverflowError if the address cannot be had.
        """
        host, _, port = listen.rpartition(":")
        self._collect = collect
        self._tls = access.server_context()
        self._deadline_s = deadline_s
        self._connections: dict[_Connection, asyncio.Task[None]] = {}
        family, *_, place = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        self._listener = socket.create_server((str(place[0]), int(port)), family=family)
        self._listener.setblocking(False)
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        """Return how many there are."""
        return len(self._connections)

    def close(self) -> None:
        """Close the connections, whatever they wait for, and stop."""
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._closed.set)
        if threading.current_thread() is not self._thread:  # a scrape may hold the last reference to a rank
            self._thread.join()

    def _run(self) -> None:
        with self._listener, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop.add_reader(self._listener, self._accept)
        await self._closed.wait()
        self._loop.remove_reader(self._listener)

    def _accept(self) -> None:
        try:
            peer, (address, *_) = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            self._loop.remove_reader(self._listener)
            self._loop.call_later(RETRY_S, self._loop.add_reader, self._listener, self._accept)
            return
        if len(self._connections) >= CONNECTIONS:
            self._displace()
        connection = _Connection(peer, address)
        task = self._connections[connection] = self._loop.create_task(self._serve_one(connection))
        task.add_done_callback(lambda _: self._forget(connection))

    def _displace(self) -> None:
        """Drop a connection of the address that has most: one without a request, of these the oldest."""
        counts = Counter(each.address for each in self._connections)
        self._connections.pop(max(self._connections, key=lambda c: (counts[c.address], not c.asked))).cancel()

    def _forget(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)
        connection.socket.close()  # a task that is cancelled before it begins has not closed it

    async def _serve_one(self, connection: _Connection) -> None:
        reader = asyncio.StreamReader(MAX_HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, connection.socket)
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            # OSError includes errors of TLS and the end of the time, EOFError the end of the connection.
            with contextlib.suppress(OSError, EOFError):
                async with asyncio.timeout(self._deadline_s):
                    try:
                        await self._talk(connection, _Stream(reader, writer, self._tls))
                    finally:
                        writer.close()
                    await writer.wait_closed()
        finally:
            transport.abort()

    async def _talk(self, connection: _Connection, stream: _Stream) -> None:
        await stream.handshake()
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive()
            if len(head) > MAX_HEAD_BYTES:
                await stream.send(_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
                return
        connection.asked = True
        await stream.send(await self._answer(head))

    async def _answer(self, head: bytes) -> bytes:
        """Return what prometheus_client's application makes of a request."""
        first, _, fields = head.partition(b"\r\n")
        try:
            method, target, _ = first.decode("latin-1").split(" ")
            headers = parse_headers(io.BytesIO(fields))
        except (ValueError, HTTPException):
            return _refusal(HTTPStatus.BAD_REQUEST)
        try:
            registry = CollectorRegistry()
            registry.register(_Collected(await self._collect()))
        except Exception as error:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        path, _, query = target.partition("?")
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "HTTP_ACCEPT": headers.get("accept", ""),
            "HTTP_ACCEPT_ENCODING": headers.get("accept-encoding", ""),
        }
        begun: list[tuple[str, list[tuple[str, str]]]] = []
        body = b"".join(make_wsgi_app(registry)(environ, lambda *status: begun.append(status)))
        return _response(*begun[0], body)


class _Stream:
    """Both directions of a connection; with TLS, a failed handshake tells the client why."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext | None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if context:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def handshake(self) -> None:
        if self._tls:
            await self._step(self._tls.do_handshake)

    async def receive(self) -> bytes:
        """Return what comes next; EOFError at the end."""
        data = await (self._step(self._tls.read) if self._tls else self._reader.read(MAX_HEAD_BYTES))
        if not data:
            raise EOFError
        return data

    async def send(self, data: bytes) -> None:
        """Send data, and nothing after that."""
        if self._tls is None:
            self._writer.write(data)
            return
        view = memoryview(data)
        while view:
            view = view[await self._step(partial(self._tls.write, view)) :]
        with contextlib.suppress(ssl.SSLError):  # the client's farewell need not come
            self._tls.unwrap()
        self._writer.write(self._outgoing.read())

    async def _step(self, work: Callable[[], Result]) -> Result:
        while True:
            try:
                return work()
            except ssl.SSLWantReadError:
                pass
            finally:
                self._writer.write(self._outgoing.read())
            data = await self._reader.read(MAX_HEAD_BYTES)
            if not data:
                raise EOFError
            self._incoming.write(data)


class _Collected(Collector):
    """Metrics that have been read."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _response(status: str, fields: Iterable[tuple[str, str]], body: bytes) -> bytes:
    fields = [*fields, ("Content-Length", str(len(body))), ("Connection", "close")]
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + body


def _refusal(status: HTTPStatus, text: str = "") -> bytes:
    body = f"{text or status.phrase}\n".encode()
    return _response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")], body)
