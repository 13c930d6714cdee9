# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server on 127.0.0.1: fixed files, one stream of server-sent events, and orders.

Other programs on this machine can reach the server. So can any web site, through a browser. Therefore a
request has a bounded head and no body. It must name this machine as its host, which prevents DNS rebinding.
Orders need a token that only the page has. The server drops a client that does not read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from railweave.errors import UserError
from railweave.experiments.errors import OptionError
from railweave.experiments.live.feed import Feed

HOST = "127.0.0.1"
MAX_HEAD_BYTES = 8192
MAX_CONNECTIONS = 64
MAX_STREAMS = 16
HEAD_S = 5.0  # a client's time to send a request
WRITE_S = 5.0  # a client's time to read an answer
END_S = 1.0  # a client's time to read the end of a stream
TOKEN_PLACE = b"{{token}}"
OPEN = "open the address that --live has printed"  # the remedy in error messages
CLOSE = "close other pages of this run, and load the page again"

TEXT = "text/plain; charset=utf-8"
File = tuple[str, bytes]  # media type and content

_REQUEST = re.compile(r"([A-Z]{1,10}) (/[!-~]{0,255}) HTTP/1\.[01]")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t]*)")
_OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
_ALWAYS = {
    "Connection": "close",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class RequestRefused(UserError):
    """A request that the server refuses."""

    def __init__(self, status: int, given: str, expected: str, do: str) -> None:
        """Answer the request with this HTTP status and text."""
        super().__init__(given, expected, do)
        self.code = status


class Server:
    """A server that listens within its `async with` block, and closes all connections at its end."""

    def __init__(
        self, port: int, files: Mapping[str, File], feed: Feed, order: Callable[[str], Awaitable[str | None]]
    ) -> None:
        """Serve `files` by path and the feed at /events. POST to any other path is an order.

        Port 0 is any free port. In files, the token replaces TOKEN_PLACE. `order` carries out the order of a
        path, and returns a description of its effect. It returns None for an unknown path. It may raise
        RequestRefused.
        """
        self._port = port
        self._files = files
        self._feed = feed
        self._order = order
        self._token = secrets.token_urlsafe(24)
        self._connections: set[asyncio.Task[None]] = set()
        self._streams = 0
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The address of the page."""
        assert self._listener is not None  # noqa: S101 - within `async with`
        return f"http://{HOST}:{self._listener.sockets[0].getsockname()[1]}/"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    async def __aenter__(self) -> Server:
        """Listen. Raise OptionError if the port cannot be used."""
        try:
            self._listener = await asyncio.start_server(
                self._connected, HOST, self._port, limit=MAX_HEAD_BYTES
            )
        except (OSError, OverflowError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            raise OptionError(
                f"--live {self._port}: {text}", f"a free port on {HOST}", "name another port, or none"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the streams, wait END_S seconds for their readers, and close all connections."""
        assert self._listener is not None  # noqa: S101
        self._listener.close()
        self._feed.end()
        if self._connections:
            await asyncio.wait(self._connections, timeout=END_S)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self._connections.add(task)
        writer.transport.set_write_buffer_limits(0)  # drain() returns when all bytes are sent
        try:
            with contextlib.suppress(ConnectionError, TimeoutError):
                await self._serve(reader, writer)
        except asyncio.CancelledError:  # by __aexit__; asyncio would report it if it were raised again
            pass
        finally:
            self._connections.discard(task)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                raise RequestRefused(503, "too many connections", f"{MAX_CONNECTIONS} at most", CLOSE)
            method, path, fields = await _request(reader)
            _check_origin(fields, path)
            if (method, path) == ("GET", "/events"):
                await self._stream(writer)
                return
            media_type, content = await self._answer(method, path, fields)
        except RequestRefused as refusal:
            await _write(writer, _head(refusal.code, TEXT) + f"{refusal}\n".encode())
            return
        await _write(writer, _head(200, media_type) + content)

    async def _answer(self, method: str, path: str, fields: Mapping[str, str]) -> tuple[str, bytes]:
        if method == "GET" and path in self._files:
            media_type, content = self._files[path]
            return media_type, content.replace(TOKEN_PLACE, self._token.encode())
        if path in self._files or path == "/events":
            raise RequestRefused(405, f"{method} {path}", "GET", OPEN)
        if method != "POST":
            raise RequestRefused(404, f"no file {path}", f"one of {', '.join(self._files)}", OPEN)
        if "origin" not in fields or not hmac.compare_digest(fields.get("x-token", ""), self._token):
            raise RequestRefused(403, "an order without the page's token", "an order of the page", OPEN)
        done = await self._order(path)
        if done is None:
            raise RequestRefused(404, f"no order {path}", "an order of the page", OPEN)
        return TEXT, f"{done}\n".encode()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        if self._streams >= MAX_STREAMS:
            raise RequestRefused(503, "too many streams", f"{MAX_STREAMS} at most", CLOSE)
        self._streams += 1
        try:
            await _write(writer, _head(200, "text/event-stream"))
            async with contextlib.aclosing(self._feed.texts()) as texts:
                async for text in texts:
                    await _write(writer, text.encode())
        finally:
            self._streams -= 1


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
    """Return the method, path and fields of a request without a body. Raise RequestRefused for others."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
    except asyncio.LimitOverrunError:
        raise RequestRefused(431, "the head is too long", f"up to {MAX_HEAD_BYTES} bytes", OPEN) from None
    except asyncio.IncompleteReadError:
        raise ConnectionResetError from None
    except TimeoutError:
        raise RequestRefused(408, "no request", f"one within {HEAD_S:g} s", OPEN) from None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    request = _REQUEST.fullmatch(first)
    matches = [_FIELD.fullmatch(line) for line in lines]
    fields = {match[1].lower(): match[2].strip() for match in matches if match is not None}
    if request is None or len(fields) != len(lines):  # malformed, or a field twice
        raise RequestRefused(400, "a malformed request", "HTTP/1.1 with each field once", OPEN)
    if "transfer-encoding" in fields or fields.get("content-length", "0") != "0":
        raise RequestRefused(413, "a body", "a request without a body", OPEN)
    return request[1], request[2], fields


def _check_origin(fields: Mapping[str, str], path: str) -> None:
    """Refuse requests that a browser sends for another web site: with another host name or origin."""
    host = fields.get("host", "")
    if _OWN_HOST.fullmatch(host) is None:
        raise RequestRefused(403, f"host {host!r}", "127.0.0.1 or localhost", OPEN)
    if fields.get("origin", f"http://{host}") != f"http://{host}":
        raise RequestRefused(403, f"origin {fields['origin']!r}", f"http://{host}", OPEN)
    if path != "/" and fields.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise RequestRefused(403, f"a request of a {fields['sec-fetch-site']} page", "the page itself", OPEN)


def _head(status: int, media_type: str) -> bytes:
    fields = {"Content-Type": media_type, **_ALWAYS}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{head}\r\n".encode()


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await asyncio.wait_for(writer.drain(), WRITE_S)
