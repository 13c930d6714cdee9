# SPDX-License-Identifier: Apache-2.0
"""The gRPC face: every RPC of p4.v1.P4Runtime, thin over the modules beside this one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import grpc
from finsy.proto import p4r, p4r_grpc
from railweave.switch.p4runtime.arbitration import Arbitration
from railweave.switch.p4runtime.errors import Code, Refused, batch_status, not_found, require, unimplemented
from railweave.switch.p4runtime.pipeline_config import PipelineConfig
from railweave.switch.p4runtime.stream import Stream, Streams
from railweave.switch.pipeline import Pipeline

API_VERSION = "1.4.1"
_READ_BATCH = 256  # entities per ReadResponse: keeps messages far below gRPC's 4 MiB

_log = logging.getLogger(__name__)


class Service(p4r_grpc.P4RuntimeServicer):
    """P4Runtime for one device."""

    def __init__(self, device_id: int, commit: Callable[[Pipeline], None]) -> None:
        """`commit` is told every pipeline that packets shall go through from then on."""
        self._device_id = device_id
        self._arbitration = Arbitration(device_id)
        self._streams = Streams(self._arbitration)
        self._config = PipelineConfig(commit)

    @property
    def config(self) -> PipelineConfig:
        """The pipeline config, for a program given at start."""
        return self._config

    async def Capabilities(  # noqa: N802 - gRPC's name
        self,
        request: p4r.CapabilitiesRequest,
        context: grpc.aio.ServicerContext[p4r.CapabilitiesRequest, p4r.CapabilitiesResponse],
    ) -> p4r.CapabilitiesResponse:
        """Say which version of the specification is served."""
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    async def SetForwardingPipelineConfig(  # noqa: N802 - gRPC's name
        self,
        request: p4r.SetForwardingPipelineConfigRequest,
        context: grpc.aio.ServicerContext[
            p4r.SetForwardingPipelineConfigRequest, p4r.SetForwardingPipelineConfigResponse
        ],
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a program."""
        try:
            self._check_device(request.device_id)
            self._arbitration.check_primary(request.role, request.election_id)
            await self._config.set(request)
        except Refused as refusal:
            await _abort(context, refusal)
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(  # noqa: N802 - gRPC's name
        self,
        request: p4r.GetForwardingPipelineConfigRequest,
        context: grpc.aio.ServicerContext[
            p4r.GetForwardingPipelineConfigRequest, p4r.GetForwardingPipelineConfigResponse
        ],
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Give the committed program back."""
        try:
            self._check_device(request.device_id)
            config = self._config.get(request.response_type)
        except Refused as refusal:
            await _abort(context, refusal)
        return p4r.GetForwardingPipelineConfigResponse(config=config)

    async def Write(  # noqa: N802 - gRPC's name
        self,
        request: p4r.WriteRequest,
        context: grpc.aio.ServicerContext[p4r.WriteRequest, p4r.WriteResponse],
    ) -> p4r.WriteResponse:
        """Carry out updates in order, the rest also when one fails."""
        try:
            self._check_device(request.device_id)
            self._arbitration.check_primary(request.role, request.election_id)
            require(
                request.atomicity == p4r.WriteRequest.CONTINUE_ON_ERROR,
                unimplemented,
                "the only atomicity is CONTINUE_ON_ERROR",
            )
            device = self._config.device
        except Refused as refusal:
            await _abort(context, refusal)
        results = [_attempt(device.write, update) for update in request.updates]
        if any(result is not None for result in results):
            status = batch_status(results)
            details = (("grpc-status-details-bin", status.SerializeToString()),)
            await context.abort(grpc.StatusCode.UNKNOWN, status.message, details)
        return p4r.WriteResponse()

    async def Read(  # noqa: N802 - gRPC's name
        self, request: p4r.ReadRequest, context: grpc.aio.ServicerContext[p4r.ReadRequest, p4r.ReadResponse]
    ) -> AsyncIterator[p4r.ReadResponse]:
        """Stream everything that fits any of the request's patterns."""
        try:
            self._check_device(request.device_id)
            device = self._config.device
            batch = p4r.ReadResponse()
            for pattern in request.entities:
                for entity in device.read(pattern):
                    batch.entities.append(entity)
                    if len(batch.entities) == _READ_BATCH:
                        yield batch
                        batch = p4r.ReadResponse()
            if batch.entities:
                yield batch
        except Refused as refusal:
            await _abort(context, refusal)

    async def StreamChannel(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[p4r.StreamMessageRequest],
        context: grpc.aio.ServicerContext[p4r.StreamMessageRequest, p4r.StreamMessageResponse],
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        """Serve one controller until it leaves."""
        stream = Stream()
        incoming = asyncio.ensure_future(self._streams.serve(request_iterator, stream))
        outgoing = asyncio.ensure_future(stream.next())
        try:
            while True:
                await asyncio.wait((incoming, outgoing), return_when=asyncio.FIRST_COMPLETED)
                if outgoing.done():
                    yield outgoing.result()
                    outgoing = asyncio.ensure_future(stream.next())
                elif incoming.done():
                    incoming.result()
                    return
        except Refused as refusal:
            await _abort(context, refusal)
        finally:
            outgoing.cancel()
            incoming.cancel()
            await asyncio.gather(incoming, outgoing, return_exceptions=True)

    def _check_device(self, device_id: int) -> None:
        require(device_id == self._device_id, not_found, f"this is device {self._device_id}, not {device_id}")


async def _abort(context: grpc.aio.ServicerContext[Any, Any], refusal: Refused) -> NoReturn:
    """End the RPC with the refusal's status."""
    await context.abort(refusal.code.grpc, refusal.message)


def _attempt(write: Callable[[p4r.Update], None], update: p4r.Update) -> Refused | None:
    try:
        write(update)
    except Refused as refusal:
        return refusal
    except Exception as error:
        _log.exception("update failed: %s", update)
        return Refused(Code.INTERNAL, f"{type(error).__name__}: {error}")
    return None
