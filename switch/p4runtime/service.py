# SPDX-License-Identifier: Apache-2.0
"""Every RPC of p4.v1.P4Runtime, thin over the modules beside this one; Refused is the RPC's status."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc

from railweave.switch.p4runtime.arbitration import Arbitration
from railweave.switch.p4runtime.batches import Writer
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import batch_status, denied, exhausted, not_found, refuse
from railweave.switch.p4runtime.notifier import Notifier
from railweave.switch.p4runtime.pipeline_config import PipelineConfig
from railweave.switch.p4runtime.roles import Scope, p4_id
from railweave.switch.p4runtime.stream import Stream, Streams
from railweave.switch.p4runtime.turns import Turns
from railweave.switch.pipeline import Pipeline

_Context = grpc.aio.ServicerContext[Any, Any]

API_VERSION = "1.5.0"
MAX_STREAMS = 256  # open at once, with or without a role
MAX_READS = 64  # in progress at once
_READ_ENTITIES, _READ_BYTES = 256, 1 << 20  # per ReadResponse, far below gRPC's 4 MiB


class Service(p4r_grpc.P4RuntimeServicer):
    """P4Runtime for one device."""

    def __init__(
        self, device_id: int, commit: Callable[[Pipeline], None], cpu_port: int | None = None
    ) -> None:
        """`commit` is told every pipeline that packets shall go through from then on.

        Packets that a program sends to `cpu_port` go to controllers, and theirs come in on it.
        """
        self._device_id = device_id
        self._commit = commit
        self._cpu_port = cpu_port
        self._arbitration = Arbitration(device_id)
        self._streams = Streams(self._arbitration, lambda: self._config.committed)
        self._notifier = Notifier(self._streams)
        self._turns = Turns()
        self._config = PipelineConfig(self._activate, self._turns)
        self._open_streams = self._open_reads = 0

    @property
    def config(self) -> PipelineConfig:
        """The pipeline config, for a program given at start."""
        return self._config

    def close(self) -> None:
        """Tell controllers nothing any more."""
        self._notifier.watch(None)

    def _activate(self, device: Device, handover: Callable[[], None] | None) -> None:
        device.pipeline.set_cpu_port(self._cpu_port)
        if handover is None:
            self._commit(device.pipeline)
        else:
            # Packets are led to the new pipeline, and wait there until it has what they left in the old one.
            with device.pipeline.frozen():
                self._commit(device.pipeline)
                handover()
        self._notifier.watch(device)

    async def Capabilities(  # noqa: N802 - gRPC's name
        self, request: p4r.CapabilitiesRequest, context: _Context
    ) -> p4r.CapabilitiesResponse:
        """Say which version of the specification is served."""
        if request.device_id:
            self._check_device(request.device_id)
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    async def SetForwardingPipelineConfig(  # noqa: N802 - gRPC's name
        self, request: p4r.SetForwardingPipelineConfigRequest, context: _Context
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a program."""
        self._check_device(request.device_id)
        self._check_may_push(request)
        await self._config.set(request, lambda: self._check_may_push(request))
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(  # noqa: N802 - gRPC's name
        self, request: p4r.GetForwardingPipelineConfigRequest, context: _Context
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Give the committed program back."""
        self._check_device(request.device_id)
        return self._config.get(request.response_type)

    async def Write(  # noqa: N802 - gRPC's name
        self, request: p4r.WriteRequest, context: _Context
    ) -> p4r.WriteResponse:
        """Carry out a batch of updates; what failed stands in the status of the RPC."""
        self._check_device(request.device_id)
        self._primary(request)
        writer = Writer(lambda: self._config.device, lambda: self._primary(request), self._turns)
        results = await writer.write(request)
        if any(result is not None for result in results):
            status = batch_status(results)
            details = (("grpc-status-details-bin", status.SerializeToString()),)
            refuse(context, grpc.StatusCode.UNKNOWN, status.message, details)
        return p4r.WriteResponse()

    async def Read(  # noqa: N802 - gRPC's name
        self, request: p4r.ReadRequest, context: _Context
    ) -> AsyncGenerator[p4r.ReadResponse, None]:
        """Stream everything that fits any of the request's patterns, in messages of bounded size."""
        self._check_device(request.device_id)
        with self._reading():
            device, scope = self._config.device.snapshot(), self._arbitration.scope(request.role)
            batch, size = p4r.ReadResponse(), 0
            async for chunk in self._turns.chunks(_found(device, request, scope)):
                for entity in filter(None, chunk):
                    batch.entities.append(entity)
                    size += entity.ByteSize()
                    if len(batch.entities) == _READ_ENTITIES or size >= _READ_BYTES:
                        yield batch
                        batch, size = p4r.ReadResponse(), 0
            if batch.entities:
                yield batch

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """One more Read, each of which keeps a snapshot until its client has read everything."""
        if self._open_reads >= MAX_READS:
            raise exhausted(f"{MAX_READS} reads are in progress, which is the limit")
        self._open_reads += 1
        try:
            yield
        finally:
            self._open_reads -= 1

    async def StreamChannel(  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[p4r.StreamMessageRequest], context: _Context
    ) -> AsyncGenerator[p4r.StreamMessageResponse, None]:
        """Serve one controller until it leaves, or has something refused that a stream does not survive."""
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
        """The rights of the primary that makes a request; Refused if another makes it."""
        election_id = request.election_id if request.HasField("election_id") else None
        return self._arbitration.check_primary(request.role, election_id)

    def _check_may_push(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        if not self._primary(request).can_push_pipeline:
            raise denied(
                f"the config of role {request.role!r} allows no pipeline push", "push as another role"
            )

    def _check_device(self, device_id: int) -> None:
        if device_id != self._device_id:
            raise not_found(f"this is device {self._device_id}, not {device_id}", "correct the device id")


def _found(device: Device, request: p4r.ReadRequest, scope: Scope) -> Iterator[p4r.Entity | None]:
    """All that is asked for and belongs to the role; None for what does not, a step each.

    `device` is a snapshot: no Write comes between parts of an answer, but for cells, which packets change.
    """
    for pattern in request.entities:
        yield None
        for entity in device.search(pattern):
            yield entity if entity and (scope.everything or scope.covers(p4_id(entity))) else None
