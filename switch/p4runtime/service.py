# SPDX-License-Identifier: Apache-2.0
"""The RPCs of p4.v1.P4Runtime, thin over the modules beside this one. Refused becomes the RPC's status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc

from railweave.switch.p4runtime.arbitration import Arbitration
from railweave.switch.p4runtime.batches import Batch
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Refused, batch_status, denied, exhausted, not_found, refuse
from railweave.switch.p4runtime.notifier import Notifier
from railweave.switch.p4runtime.pipeline_config import PipelineConfig
from railweave.switch.p4runtime.reads import Reads
from railweave.switch.p4runtime.roles import OPERATOR, Scope
from railweave.switch.p4runtime.stream import Stream, Streams
from railweave.switch.p4runtime.turns import Turns
from railweave.switch.pipeline import Pipeline

_Context = grpc.aio.ServicerContext[Any, Any]

API_VERSION = "1.5.0"
MAX_STREAMS = 256  # open at once, with or without a role


class Service(p4r_grpc.P4RuntimeServicer):
    """P4Runtime for one device."""

    def __init__(
        self, device_id: int, commit: Callable[[Pipeline], None], cpu_port: int | None = None
    ) -> None:
        """Call `commit` with every pipeline that packets go through from then on.

        Packets that a program sends to `cpu_port` go to controllers. Packets of controllers arrive on it.
        """
        self.device_id = device_id
        self._commit = commit
        self._cpu_port = cpu_port
        self._arbitration = Arbitration(device_id)
        self.turns = Turns()
        self._streams = Streams(self._arbitration, lambda: self.config.committed, self.turns)
        self._notifier = Notifier(self._streams)
        self.config = PipelineConfig(self._activate, self.turns)
        self._reads = Reads(lambda: self.config.device, self.turns)
        self._open_streams = 0

    def check_operator(self, role: str, election_id: p4r.Uint128 | None) -> None:
        """Refuse unless the sender is the primary of the default role or of the operator's."""
        self._arbitration.check_primary(role, election_id)
        if role not in ("", OPERATOR):
            raise denied(f"role {role!r} is neither the default role nor {OPERATOR!r}", "take that role")

    def close(self) -> None:
        """Send controllers no more notifications."""
        self._notifier.watch(None)

    def _activate(self, device: Device) -> None:
        device.pipeline.set_cpu_port(self._cpu_port)
        self._commit(device.pipeline)
        self._notifier.watch(device)

    async def Capabilities(  # noqa: N802 - gRPC's name
        self, request: p4r.CapabilitiesRequest, context: _Context
    ) -> p4r.CapabilitiesResponse:
        """Return the version of the specification."""
        if request.device_id:
            self._check_device(request.device_id)
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    async def SetForwardingPipelineConfig(  # noqa: N802 - gRPC's name
        self, request: p4r.SetForwardingPipelineConfigRequest, context: _Context
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a program."""
        self._check_device(request.device_id)
        self._check_may_push(request)
        await self.config.set(request, lambda: self._check_may_push(request))
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(  # noqa: N802 - gRPC's name
        self, request: p4r.GetForwardingPipelineConfigRequest, context: _Context
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the committed program."""
        self._check_device(request.device_id)
        return self.config.get(request.response_type)

    async def Write(  # noqa: N802 - gRPC's name
        self, request: p4r.WriteRequest, context: _Context
    ) -> p4r.WriteResponse:
        """Carry out a batch of updates. The status names the updates that failed."""
        self._check_device(request.device_id)
        self._primary(request)
        _report(context, await self.turns.to_the_end(lambda: self._write(request)), "updates")
        return p4r.WriteResponse()

    async def _write(self, request: p4r.WriteRequest) -> list[Refused | None]:
        scope = self._primary(request)  # there may be another primary since the request came
        return await Batch(self.config.device, scope).write(request)

    async def Read(  # noqa: N802 - gRPC's name
        self, request: p4r.ReadRequest, context: _Context
    ) -> AsyncGenerator[p4r.ReadResponse, None]:
        """Stream all entities that fit one of the patterns. The status names invalid patterns."""
        self._check_device(request.device_id)
        results: list[Refused | None] = []
        scope = self._arbitration.scope(request.role)
        async for response in self._reads.answer(request, scope, results):
            yield response
        _report(context, results, "requests")

    async def StreamChannel(  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[p4r.StreamMessageRequest], context: _Context
    ) -> AsyncGenerator[p4r.StreamMessageResponse, None]:
        """Serve one controller until it leaves, or until an arbitration message is refused."""
        if self._open_streams >= MAX_STREAMS:
            raise exhausted(f"{MAX_STREAMS} streams are open, which is the limit")
        self._open_streams += 1
        stream = Stream()
        incoming = asyncio.ensure_future(self._streams.serve(request_iterator, stream))
        try:
            while (message := await stream.next()) is not None:
                yield message
            await incoming
        finally:
            self._open_streams -= 1
            incoming.cancel()
            await asyncio.gather(incoming, return_exceptions=True)

    def _primary(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> Scope:
        """Return the rights of the primary that sends a request. Refused if another client sends it."""
        election_id = request.election_id if request.HasField("election_id") else None
        return self._arbitration.check_primary(request.role, election_id)

    def _check_may_push(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        if not self._primary(request).can_push_pipeline:
            raise denied(
                f"the config of role {request.role!r} allows no pipeline push", "push as another role"
            )

    def _check_device(self, device_id: int) -> None:
        if device_id != self.device_id:
            raise not_found(f"this is device {self.device_id}, not {device_id}", "correct the device id")


def _report(context: _Context, results: Sequence[Refused | None], what: str) -> None:
    """End the RPC with one error for each part of the batch, if a part has failed."""
    if any(result is not None for result in results):
        status = batch_status(results, what)
        details = (("grpc-status-details-bin", status.SerializeToString()),) if status.details else ()
        refuse(context, grpc.StatusCode.UNKNOWN, status.message, details)
