# SPDX-License-Identifier: Apache-2.0
"""A rank with an open stream, in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
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
        event = await self.event()
        assert event.WhichOneof("event") == "group_paused", event
        await self.reports(event.group_paused.group, position)
        return event.group_paused

    async def moved(self) -> pb.GroupMoved:
        """Return the next event, which must be GroupMoved."""
        event = await self.event()
        assert event.WhichOneof("event") == "group_moved", event
        return event.group_moved

    async def event(self) -> pb.Event:
        async with asyncio.timeout(10):
            event = await self.call.read()
        assert event is not grpc.aio.EOF
        return event

    async def ended(self) -> None:
        async with asyncio.timeout(10):
            assert await self.call.read() is grpc.aio.EOF


async def watched(world: World, size: int, job: str = "job") -> list[Watcher]:
    """Start a job, and wait until every rank has a stream."""
    watchers = [Watcher(world, answer) for answer in await world.join(size, job)]
    await world.watched(job, *range(size))
    return watchers
