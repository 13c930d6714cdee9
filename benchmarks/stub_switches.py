# SPDX-License-Identifier: Apache-2.0
"""Stub switches: they answer over P4Runtime and keep a controller's writes, but move no packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status

from railweave.access import IN_CLEAR, Access

Key = tuple[int, bytes]
_Context = grpc.aio.ServicerContext[Any, Any]


class StubSwitch(p4r_grpc.P4RuntimeServicer):
    """The tables and multicast groups of one device, with a gRPC server."""

    def __init__(self, device_id: int = 1, access: Access = IN_CLEAR) -> None:
        """Start without a program. `start` serves."""
        self.device_id = device_id
        self.port = 0
        self.config: p4r.ForwardingPipelineConfig | None = None
        self.entities: dict[Key, p4r.Entity] = {}
        self.counts: Counter[str] = Counter()  # of reads, writes, and updates in these
        self._access = access
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serve at a free port of loopback, at the same one again after a stop."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        p4r_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        self._serve_gnmi(self._server)
        self.port = self._access.add_port(self._server, f"127.0.0.1:{self.port}")
        await self._server.start()

    def _serve_gnmi(self, server: grpc.aio.Server) -> None:
        get: Any = grpc.unary_unary_rpc_method_handler(self._gnmi_get)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("gnmi.gNMI", {"Get": get})])

    async def stop(self) -> None:
        """End all connections at once, as a crash would."""
        if self._server:
            await self._server.stop(grace=None)
            self._server = None

    async def StreamChannel(
        self, request_iterator: AsyncIterator[Any], context: _Context
    ) -> AsyncIterator[Any]:
        """Make every client the primary."""
        async for request in request_iterator:
            answer = p4r.MasterArbitrationUpdate()
            answer.CopyFrom(request.arbitration)
            answer.status.CopyFrom(rpc_status.Status(code=rpc_code.OK))
            yield p4r.StreamMessageResponse(arbitration=answer)

    async def Capabilities(self, request: Any, context: _Context) -> Any:
        """Answer with version 1.3.0, as BMv2 does."""
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.3.0")

    async def _gnmi_get(self, request: bytes, context: _Context) -> bytes:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no gNMI here")
        return b""

    async def SetForwardingPipelineConfig(self, request: Any, context: _Context) -> Any:
        """Take any program, and delete all entries."""
        await self._check_device(request, context)
        self.config = request.config
        self.entities.clear()
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(self, request: Any, context: _Context) -> Any:
        """Answer with the program's cookie."""
        await self._check_device(request, context)
        if self.config is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set")
            return None
        config = p4r.ForwardingPipelineConfig(cookie=self.config.cookie)
        return p4r.GetForwardingPipelineConfigResponse(config=config)

    async def Write(self, request: Any, context: _Context) -> Any:
        """Carry out updates in order, up to the first that cannot be."""
        await self._check_device(request, context)
        self.counts["writes"] += 1
        self.counts["updates"] += len(request.updates)
        for update in request.updates:
            await self._update(update, key_of(update.entity), context)
        return p4r.WriteResponse()

    async def _update(self, update: Any, key: Key, context: _Context) -> None:
        there = key in self.entities
        if update.type == p4r.Update.DELETE:
            if not there:
                await context.abort(grpc.StatusCode.NOT_FOUND, f"no such entity: {update.entity}")
            del self.entities[key]
            return
        if there != (update.type == p4r.Update.MODIFY):
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"there: {there}: {update.entity}")
        self.entities[key] = update.entity

    async def Read(self, request: Any, context: _Context) -> AsyncIterator[Any]:
        """Answer with the entities of a table, of all tables, or with the multicast groups."""
        await self._check_device(request, context)
        self.counts["reads"] += 1
        for wildcard in request.entities:
            yield p4r.ReadResponse(entities=list(self._answers(wildcard)))

    def _answers(self, wildcard: Any) -> Iterator[Any]:
        kind = wildcard.WhichOneof("entity")
        for entity in self.entities.values():
            if entity.WhichOneof("entity") == kind and (
                kind != "table_entry" or wildcard.table_entry.table_id in (0, entity.table_entry.table_id)
            ):
                yield entity

    async def _check_device(self, request: Any, context: _Context) -> None:
        if request.device_id != self.device_id:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no device {request.device_id}")


def key_of(entity: Any) -> Key:
    """Return what makes two entities the same one: table and match, or the multicast group's number."""
    if entity.HasField("table_entry"):
        match = p4r.TableEntry(match=sorted(entity.table_entry.match, key=lambda m: m.field_id))
        return entity.table_entry.table_id, match.SerializeToString(deterministic=True)
    group = entity.packet_replication_engine_entry.multicast_group_entry.multicast_group_id
    return 0, group.to_bytes(4, "big")
