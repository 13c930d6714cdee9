# SPDX-License-Identifier: Apache-2.0
"""The live page's web server on 127.0.0.1: fixed files, one stream of server-sent events, and orders.

Other programs on this machine can reach the server. So can any web site, through a browser. Therefore a
request must name this machine as its host, which prevents DNS rebinding. Orders need a token that only the
page has. The number of connections is bounded, and the server drops a client that does not read.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from railweave.errors import UserError
from railweave.experiments.errors import OptionError
from railweave.experiments.live.feed import Feed
from railweave.http_server import RENEW, BoundedServer

HOST = "127.0.0.1"
MAX_STREAMS = 16
DEADLINE_S = 10.0  # of a client: to send a request and read the answer, or to read a message
END_S = 1.0  # a client's time to read the end of a stream
TOKEN_PLACE = b"{{token}}"
OPEN = "open the address that --live has printed"  # the remedy in error messages

TEXT = "text/plain; charset=utf-8"
File = tuple[str, bytes]  # media type and content

_OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")
_ALWAYS = {
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
        self._streams = 0
        self._changed = threading.Condition()  # of the number of streams

    async def __aenter__(self) -> Server:
        """Listen. Raise OptionError if the port cannot be used."""
        self._loop = asyncio.get_running_loop()
        try:
            self._server = BoundedServer(HOST, self._port, self._answer, deadline_s=DEADLINE_S)
        except (OSError, OverflowError) as error:
            text = error.strerror if isinstance(error, OSError) else str(error)
            raise OptionError(
                f"--live {self._port}: {text}", f"a free port on {HOST}", "name another port, or none"
            ) from error
        self.url = f"http://{HOST}:{self._server.server_port}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the streams, wait END_S seconds for their readers, and close all connections."""
        self._feed.end()
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._streams, END_S)
        self._server.stop()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._server.connections)

    def _answer(self, request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request, in the thread of its connection."""
        status, media_type = 200, TEXT
        answer: Iterable[bytes]
        try:
            method, path = request["REQUEST_METHOD"], request["PATH_INFO"]
            _check_origin(request, path)
            if (method, path) == ("GET", "/events"):
                media_type, answer = "text/event-stream", self._stream(request)
            elif method == "GET" and path in self._files:
                media_type, content = self._files[path]
                answer = [content.replace(TOKEN_PLACE, self._token.encode())]
            elif path in self._files or path == "/events":
                raise RequestRefused(405, f"{method} {path}", "GET", OPEN)
            elif method == "POST":
                answer = [f"{self._carried_out(request, path)}\n".encode()]
            else:
                raise RequestRefused(404, f"no file {path}", f"one of {', '.join(self._files)}", OPEN)
        except RequestRefused as refusal:
            status, answer = refusal.code, [f"{refusal}\n".encode()]
        start(f"{status} {HTTPStatus(status).phrase}", [("Content-Type", media_type), *_ALWAYS.items()])
        return answer

    def _carried_out(self, request: Mapping[str, Any], path: str) -> str:
        """Carry out an order in the event loop, and return its effect."""
        if "HTTP_ORIGIN" not in request or not hmac.compare_digest(
            request.get("HTTP_X_TOKEN", "").encode(), self._token.encode()
        ):
            raise RequestRefused(403, "an order without the page's token", "an order of the page", OPEN)

        async def order() -> str | None:
            return await self._order(path)

        done = asyncio.run_coroutine_threadsafe(order(), self._loop).result()
        if done is None:
            raise RequestRefused(404, f"no order {path}", "an order of the page", OPEN)
        return done

    def _stream(self, request: Mapping[str, Any]) -> Iterator[bytes]:
        """Return the stream of the feed for one reader."""
        with self._changed:
            if self._streams >= MAX_STREAMS:
                do = "close other pages of this run, and load the page again"
                raise RequestRefused(503, "too many streams", f"{MAX_STREAMS} at most", do)
            self._streams += 1
        return self._messages(request[RENEW])

    def _messages(self, renew: Callable[[], None]) -> Iterator[bytes]:
        try:
            for text in self._feed.texts():
                renew()
                yield text.encode()
        finally:
            with self._changed:
                self._streams -= 1
                self._changed.notify_all()


def _check_origin(request: Mapping[str, Any], path: str) -> None:
    """Refuse requests that a browser sends for another web site: with another host name or origin."""
    host = request.get("HTTP_HOST", "")
    if _OWN_HOST.fullmatch(host) is None:
        raise RequestRefused(403, f"host {host!r}", "127.0.0.1 or localhost", OPEN)
    origin, site = request.get("HTTP_ORIGIN", f"http://{host}"), request.get("HTTP_SEC_FETCH_SITE", "none")
    if origin != f"http://{host}":
        raise RequestRefused(403, f"origin {origin!r}", f"http://{host}", OPEN)
    if path != "/" and site not in ("none", "same-origin"):
        raise RequestRefused(403, f"a request of a {site} page", "the page itself", OPEN)
