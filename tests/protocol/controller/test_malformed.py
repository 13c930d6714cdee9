# SPDX-License-Identifier: Apache-2.0
"""Requests that are no protobufs. The controller refuses each, and logs one line for many requests."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from controller_world import World, new_world
from watcher import watched

from railweave.controller import malformed
from railweave.v1 import controller_pb2 as pb

SERVICE = "/railweave.v1.Controller/"
GARBAGE = b"\xff\xff\xff\xff"
UNARY = [
    method.name
    for method in pb.DESCRIPTOR.services_by_name["Controller"].methods
    if not method.client_streaming
]


async def send(world: World, method: str) -> tuple[grpc.StatusCode, str]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{world.running.port}") as channel:
        try:
            call: Any = channel.stream_stream if method == "Watch" else channel.unary_unary
            answer = call(SERVICE + method)(once(GARBAGE) if method == "Watch" else GARBAGE)
            await (answer.read() if method == "Watch" else answer)
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
    raise AssertionError(f"{method} has taken it")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return all log messages about malformed requests."""
    records = [record for record in caplog.records if not record.name.startswith("finsy")]
    assert not any(record.exc_info for record in records)
    return [record.getMessage() for record in records]


async def once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def test_malformed_requests_are_refused_with_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    now = 1000.0
    monkeypatch.setattr(malformed, "monotonic", lambda: now)
    async with new_world(hosts=2) as world:
        for method in [*UNARY, "Watch"]:
            code, why = await send(world, method)
            assert "malformed" in why if method == "Watch" else code is grpc.StatusCode.INVALID_ARGUMENT
        assert len(lines(caplog)) == 1
        now += malformed.PAUSE_S
        await send(world, "Explain")
        first, second = lines(caplog)
        assert f"malformed request to {SERVICE}{UNARY[0]}" in first
        assert second.endswith(f"; {len(UNARY)} more since the last such line")
        assert len(await world.join(2)) == 2


async def test_a_rank_whose_heartbeat_is_malformed_is_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    alive, other = await watched(world, 2)

    async def heartbeats() -> AsyncIterator[bytes]:
        yield pb.Heartbeat(lease=other.lease).SerializeToString()
        yield GARBAGE

    async with grpc.aio.insecure_channel(f"127.0.0.1:{world.running.port}") as channel:
        method: Any = channel.stream_stream(f"{SERVICE}Watch")
        stream = method(heartbeats())
        assert await alive.lost() == (1, "its heartbeat was malformed")
        stream.cancel()
    assert sum("malformed request" in line for line in lines(caplog)) == 1
