# SPDX-License-Identifier: Apache-2.0
"""The live page's server: its answers and its refusals. test_metrics_server.py tests its connections."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest

from railweave.experiments.errors import OptionError
from railweave.experiments.live import feed as feed_module
from railweave.experiments.live import server as server_module
from railweave.experiments.live.feed import KEPT_MESSAGES, Feed
from railweave.experiments.live.server import MAX_STREAMS, RequestRefused, Server

PAGE = b"<meta content={{token}}>"


class Live:
    """A server that runs during the test, and the orders that it got."""

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.feed = Feed(lambda: {"title": "t"})
        self.server = Server(0, {"/": ("text/html", PAGE)}, self.feed, self.order)

    async def order(self, path: str) -> str | None:
        if path == "/refused":
            raise RequestRefused(409, "not now", "a later order", "wait")
        if path != "/links/0/cut":
            return None
        self.orders.append(path)
        return "cut"

    async def __aenter__(self) -> Live:
        await self.server.__aenter__()
        self.port = int(self.server.url.rstrip("/").rpartition(":")[2])
        self.host = f"127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.__aexit__()

    async def connect(self, request: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        return reader, writer

    async def exchange(self, request: bytes) -> bytes:
        """Send a request, and return the whole answer."""
        reader, writer = await self.connect(request)
        answer = await reader.read()
        writer.close()
        return answer

    async def status(self, first: str, *fields: str, body: str = "") -> int:
        lines = [f"{first} HTTP/1.1", f"Host: {self.host}", *fields]
        answer = await self.exchange(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
        return int(answer.split()[1])

    async def token(self) -> str:
        page = await self.exchange(f"GET / HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
        match = re.search(rb"content=([\w-]{32})>", page)
        assert match is not None
        return match[1].decode()


async def test_the_page_has_the_token_and_may_load_nothing_from_elsewhere() -> None:
    async with Live() as live:
        answer = await live.exchange(f"GET / HTTP/1.1\r\nHost: localhost:{live.port}\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.0 200 OK\r\n")
        assert b"default-src 'none'; script-src 'self'" in head
        assert b"Access-Control-Allow-Origin" not in head
        assert body == PAGE.replace(b"{{token}}", (await live.token()).encode())


async def test_an_order_needs_the_token_and_the_pages_origin() -> None:
    async with Live() as live:
        origin, token = f"Origin: http://{live.host}", f"X-Token: {await live.token()}"
        order = "POST /links/0/cut"
        assert await live.status(order, origin) == 403
        assert await live.status(order, origin, "X-Token: " + 32 * "A") == 403
        assert await live.status(order, token) == 403
        assert await live.status(order, "Origin: http://evil.example", token) == 403
        assert await live.status(order, "Origin: http://127.0.0.1:1", token) == 403
        assert await live.status(order, "Origin: null", token) == 403
        assert live.orders == []
        assert await live.status(order, origin, token) == 200
        assert live.orders == ["/links/0/cut"]
        assert await live.status("POST /links/0/burn", origin, token) == 404
        assert await live.status("POST /refused", origin, token) == 409


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET / HTTP/1.1\r\n\r\n", 403),  # no host
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),  # a foreign name that resolves to this machine
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", 403),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 403),
        ("GET /events HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403),
        ("GET /events HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n\r\n", 403),
        ("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /../pyproject.toml HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /%2e%2e/pyproject.toml HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET /links/0/cut HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        ("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (
            "POST /links/0/cut HTTP/1.1\r\nHost: localhost\r\nX-Token: \xff\r\nOrigin: http://localhost\r\n\r\n",
            403,
        ),
        ("GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 403),
    ],
)
async def test_other_requests_are_refused(request_text: str, status: int) -> None:
    async with Live() as live:
        answer = await live.exchange(request_text.encode("latin-1"))
        assert int(answer.split()[1]) == status
        assert await live.status("GET /") == 200


async def test_a_stream_begins_with_what_was_and_ends_with_the_run() -> None:
    async with Live() as live:
        for number in range(KEPT_MESSAGES + 5):
            live.feed.publish({"n": number})
        reader, writer = await live.connect(f"GET /events HTTP/1.1\r\nHost: {live.host}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readuntil(b"\n\n") == b'event: hello\ndata: {"title":"t"}\n\n'
        assert await reader.readuntil(b"\n\n") == b'event: state\ndata: {"n":5}\n\n'
        await reader.readuntil(f'"n":{KEPT_MESSAGES + 4}}}\n\n'.encode())
        live.feed.publish({"n": "new"})
        assert await reader.readuntil(b"\n\n") == b'event: state\ndata: {"n":"new"}\n\n'
        live.feed.end()
        assert await reader.read() == b"event: end\ndata: {}\n\n"
        writer.close()


async def test_a_stream_without_messages_gets_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "QUIET_S", 0.01)
    async with Live() as live:
        reader, writer = await live.connect(f"GET /events HTTP/1.1\r\nHost: {live.host}\r\n\r\n".encode())
        assert b": waiting" in await reader.readuntil(b": waiting\n\n")
        writer.close()


async def test_a_reader_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "DEADLINE_S", 0.05)
    async with Live() as live:
        with socket.create_connection(("127.0.0.1", live.port)) as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.sendall(f"GET /events HTTP/1.1\r\nHost: {live.host}\r\n\r\n".encode())
            while not live.server.connections:
                await asyncio.sleep(0)
            while live.server.connections:
                live.feed.publish({"text": 100_000 * "a"})
                await asyncio.sleep(0)


async def test_there_are_no_more_streams_than_allowed() -> None:
    async with Live() as live:
        stream = f"GET /events HTTP/1.1\r\nHost: {live.host}\r\n\r\n".encode()
        writers = []
        for _ in range(MAX_STREAMS):
            reader, writer = await live.connect(stream)
            await reader.readuntil(b"hello")
            writers.append(writer)
        assert await live.status("GET /events") == 503
        assert await live.status("GET /") == 200
        for writer in writers:
            writer.close()
        reader, writer = await live.connect(stream)
        while b" 503 " in await reader.readline():
            live.feed.publish({})  # finds that readers have left
            reader, writer = await live.connect(stream)
        writer.close()


async def test_a_port_in_use_is_named() -> None:
    async with Live() as live:
        other = Server(live.port, {}, live.feed, live.order)
        with pytest.raises(OptionError, match=rf"--live {live.port}: .*already in use"):
            await other.__aenter__()
