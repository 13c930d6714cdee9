# SPDX-License-Identifier: Apache-2.0
"""The controller's gRPC service: messages in, messages out, errors as status codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from railweave.controller import telemetry
from railweave.controller.errors import (
    AlreadyJoined,
    Denied,
    Exhausted,
    InvalidRequest,
    Overdue,
    Refused,
    RequestError,
    UnknownLease,
)
from railweave.controller.groups import Groups
from railweave.controller.jobs import Lease
from railweave.controller.report import report
from railweave.controller.requests import SAME_RELEASE, join_request
from railweave.errors import explain
from railweave.v1 import controller_pb2 as pb
from railweave.v1 import controller_pb2_grpc as pb_grpc

STATUS = {
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    AlreadyJoined: grpc.StatusCode.ALREADY_EXISTS,
    Denied: grpc.StatusCode.PERMISSION_DENIED,
    Overdue: grpc.StatusCode.DEADLINE_EXCEEDED,
    UnknownLease: grpc.StatusCode.NOT_FOUND,
    Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
MAX_DECISIONS = 1024  # of a rank, which has one per rail and class of calls
STANDSTILL_S = 1.0  # if a lease's timer fires this late, this process did not run in between
MAX_MESSAGE_BYTES = 256 * 1024  # a request of MAX_RAILS rails with MAX_SIZE queue pairs each fits

Context = grpc.aio.ServicerContext[Any, Any]


class ControllerService(pb_grpc.ControllerServicer):
    """Answers agents and tools."""

    def __init__(self, groups: Groups, *, lossy: bool) -> None:
        """Serve the jobs of `groups` and their switches. A `lossy` service lets callers set losses."""
        self._groups = groups
        self._lossy = lossy
        self._fabric = groups.fabric

    async def JoinGroup(self, request: pb.JoinGroupRequest, context: Context) -> pb.JoinGroupResponse:
        """Wait until all ranks of the job have joined."""
        async with _errors(context):
            return await self._groups.join(join_request(request, self._fabric.topology))

    async def LeaveGroup(self, request: pb.LeaveGroupRequest, context: Context) -> pb.LeaveGroupResponse:
        """End a rank's membership."""
        async with _errors(context):
            self._groups.leave(request.lease)
        return pb.LeaveGroupResponse()

    async def Watch(
        self, request_iterator: AsyncIterator[pb.Heartbeat | None], context: Context
    ) -> AsyncIterator[pb.Event]:
        """Renew a lease with every heartbeat, and stream the events of its group."""
        stream = object()
        first = await anext(request_iterator, None)
        if first is None:  # abort: a normal end of the stream would mean that the group has ended
            text = explain(
                "the stream ended before its first heartbeat, or the heartbeat is malformed",
                "a heartbeat",
                SAME_RELEASE,
            )
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        async with _errors(context):
            lease = self._attach(first, stream)
        events = lease.events
        renewal = asyncio.create_task(self._renew(lease, stream, request_iterator), name="renew lease")
        try:
            while event := await events.get():
                yield event
        finally:
            renewal.cancel()
            self._groups.stream_ended(lease, stream, "its connection to the controller broke")

    def _attach(self, first: pb.Heartbeat, stream: object) -> Lease:
        try:
            return self._groups.attach(first.lease, stream, first.acknowledged)
        except UnknownLease:
            if not first.HasField("resume"):
                raise
            return self._groups.resume(first.lease, first.resume, stream, first.acknowledged)

    async def _renew(
        self, lease: Lease, stream: object, heartbeats: AsyncIterator[pb.Heartbeat | None]
    ) -> None:
        """Read heartbeats until they stop. Then the rank is lost."""
        reason = "its connection to the controller broke"
        try:
            while (heartbeat := await self._next(heartbeats)) is not None:
                lease.acknowledge(heartbeat.acknowledged)
                if heartbeat.decisions:
                    lease.decisions = heartbeat.decisions[:MAX_DECISIONS]
            reason = "its heartbeat was malformed"
        except TimeoutError:
            reason = f"no heartbeat for {self._groups.lease_s:g} s"
        except (StopAsyncIteration, grpc.RpcError):
            pass
        if lease.stream is stream:
            self._groups.lost(lease, reason)

    async def _next(self, heartbeats: AsyncIterator[pb.Heartbeat | None]) -> pb.Heartbeat | None:
        """Return the next heartbeat, None if it is malformed.

        TimeoutError if the lease ends first, StopAsyncIteration at the end of the stream.

        A process that did not run, for example on a suspended machine, has received no heartbeats. So the
        lease starts again.
        """
        loop = asyncio.get_running_loop()
        reading = asyncio.ensure_future(anext(heartbeats))
        try:
            while True:
                ends_at = loop.time() + self._groups.lease_s
                await asyncio.wait([reading], timeout=self._groups.lease_s)
                if reading.done():
                    return reading.result()
                if loop.time() < ends_at + STANDSTILL_S:
                    raise TimeoutError
        finally:
            reading.cancel()

    async def ReportPosition(
        self, request: pb.ReportPositionRequest, context: Context
    ) -> pb.ReportPositionResponse:
        """Record a rank's answer to GroupPaused."""
        async with _errors(context):
            lease = self._groups.lease(request.lease)
            self._groups.moves.position(lease, request.group, request.position)
        return pb.ReportPositionResponse()

    async def ReportStall(self, request: pb.ReportStallRequest, context: Context) -> pb.ReportStallResponse:
        """Handle a rank's report that its path is dead."""
        async with _errors(context):
            lease = self._groups.lease(request.lease)
            self._groups.moves.stall(lease, request)
        return pb.ReportStallResponse()

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        """Report the trees of jobs, and why rails have none."""
        return report(self._groups.running(), request.job)

    async def GetSwitchCounters(
        self, request: pb.SwitchCountersRequest, context: Context
    ) -> pb.SwitchCountersResponse:
        """Read the switches' own counters."""
        async with _errors(context):
            return await telemetry.switch_counters(self._fabric, self._groups.running(), request.plane)

    async def SetLoss(self, request: pb.SetLossRequest, context: Context) -> pb.SetLossResponse:
        """Let switches drop frames."""
        direction = request.direction or "both"
        async with _errors(context):
            if not self._lossy:
                raise Denied("SetLoss", "a controller with --loss", "start it with --loss PLANE=0")
            await self._fabric.set_loss(
                request.plane, request.switch_name, request.port, direction, request.probability
            )
        return pb.SetLossResponse()


@asynccontextmanager
async def _errors(context: Context) -> AsyncIterator[None]:
    """End the RPC with the status of a raised error."""
    try:
        yield
    except RequestError as error:
        await context.abort(STATUS[type(error)], str(error))
    except Refused as refused:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(refused))
