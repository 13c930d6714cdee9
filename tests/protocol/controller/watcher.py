# SPDX-License-Identifier: Apache-2.0
"""A rank with an open stream, in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from controller_world import World

from railweave.v1 import controller_pb2 as pb


class Watcher:
    """A rank with an open stream. It sends heartbeats when the test asks for them."""

    def __init__(
        self,
        world: World,
        answer: pb.JoinGroupResponse,
        resume: pb.Resume | None = None,
        acknowledged: int = 0,
    ) -> None:
        self.beats: asyncio.Queue[pb.Heartbeat | None] = asyncio.Queue()
        self.answer, self.lease = answer, answer.lease
        self.beats.put_nowait(pb.Heartbeat(lease=self.lease, resume=resume, acknowledged=acknowledged))
        self.call = world.stub.Watch(self._requests())
        self._stub = world.stub

    async def _requests(self) -> AsyncIterator[pb.Heartbeat]:
        while beat := await self.beats.get():
            yield beat

    def beat(self) -> None:
        self.beats.put_nowait(pb.Heartbeat(lease=self.lease))

    async def reports(self, group: int, position: int) -> None:
        await self._stub.ReportPosition(
            pb.ReportPositionRequest(lease=self.lease, group=group, position=position)
        )

    async def paused(self, position: int) -> pb.GroupPaused:
        """Return the next event, which must be GroupPaused, and answer with a position."""
        paused = await self.told("group_paused")
        await self.reports(paused.group, position)
        return paused

    async def moved(self) -> pb.GroupMoved:
        """Return the next event, which must be GroupMoved."""
        return await self.told("group_moved")

    async def lost(self) -> tuple[int, str]:
        """Return rank and reason of the next event, which must be MemberLost."""
        lost = await self.told("member_lost")
        return lost.rank, lost.reason

    async def told(self, kind: str) -> Any:
        """Return the contents of the next event, which must be of this kind."""
        event = await self.event()
        assert event.WhichOneof("event") == kind, event
        return getattr(event, kind)

    async def event(self) -> pb.Event:
        async with asyncio.timeout(10):
            event = await self.call.read()
        assert event is not grpc.aio.EOF
        return event

    async def ended(self) -> None:
        async with asyncio.timeout(10):
            assert await self.call.read() is grpc.aio.EOF


async def refused(watcher: Watcher, status: grpc.StatusCode) -> str:
    """Check that the stream is refused with this status. Return the details."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watcher.event()
    assert caught.value.code() == status
    return caught.value.details() or ""


async def watched(world: World, size: int, job: str = "job") -> list[Watcher]:
    """Start a job, and wait until every rank has a stream."""
    watchers = [Watcher(world, answer) for answer in await world.join(size, job)]
    await world.watched(job, *range(size))
    return watchers
