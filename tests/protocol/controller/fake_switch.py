# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime server that holds a switch's tables and moves no packets: a fake behind the real interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
from finsy.proto import p4i, p4r, p4r_grpc, rpc_code, rpc_status

from railweave.access import IN_CLEAR, Access

Key = tuple[int, bytes]


class FakeSwitch(p4r_grpc.P4RuntimeServicer):
    """Tables, multicast groups, direct counters and counters of one device, behind a real gRPC server."""

    def __init__(self, device_id: int = 1, access: Access = IN_CLEAR) -> None:
        self.device_id = device_id
        self._access = access
        self.port = 0
        self.config: p4r.ForwardingPipelineConfig | None = None
        self.entities: dict[Key, p4r.Entity] = {}
        self.packets: dict[Key, int] = {}
        self.cells: dict[tuple[str, int], int] = {}  # of indirect counters, by name and index
        self.updates: list[p4r.Update] = []  # everything ever written
        self.pushes = 0
        self.room: int | None = None  # how many INSERTs more are not refused
        self.refused = 0
        self.refusal = ""  # of every pipeline
        self.before_counting: Callable[[], Awaitable[None]] | None = None  # awaited once
        self.gnmi = [
            grpc.StatusCode.UNIMPLEMENTED
        ]  # what gNMI requests are answered with; the last one stays
        self._server: grpc.aio.Server | None = None
        self._streams: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        p4r_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        self._serve_gnmi(self._server)
        self.port = self._access.add_port(self._server, f"127.0.0.1:{self.port}")
        await self._server.start()

    def _serve_gnmi(self, server: grpc.aio.Server) -> None:
        get = grpc.unary_unary_rpc_method_handler(self._gnmi_get)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("gnmi.gNMI", {"Get": get})])

    async def stop(self) -> None:
        if self._server:
            await self._server.stop(grace=None)
            self._server = None

    async def restart(self, *, lose_state: bool) -> None:
        """Go away and come back at the same address."""
        await self.stop()
        if lose_state:
            self.config = None
            self.entities.clear()
            self.packets.clear()
            self.cells.clear()
        await self.start()

    def table(self, name: str) -> list[p4r.TableEntry]:
        number = self._table_id(name)
        return [e.table_entry for e in self.entities.values() if e.table_entry.table_id == number]

    def multicasts(self) -> dict[int, set[tuple[int, int]]]:
        return {
            e.packet_replication_engine_entry.multicast_group_entry.multicast_group_id: {
                (r.egress_port or int.from_bytes(r.port, "big"), r.instance)
                for r in e.packet_replication_engine_entry.multicast_group_entry.replicas
            }
            for e in self.entities.values()
            if e.HasField("packet_replication_engine_entry")
        }

    def snapshot(self) -> set[bytes]:
        return {entity.SerializeToString(deterministic=True) for entity in self.entities.values()}

    def count(self, table: str, packets: int) -> None:
        """Let every entry of a table have seen that many packets."""
        for entry in self.table(table):
            self.packets[_key(p4r.Entity(table_entry=entry))] = packets

    def _table_id(self, name: str) -> int:
        assert self.config
        return next(t.preamble.id for t in self.config.p4info.tables if t.preamble.alias == name)

    @property
    def p4info(self) -> p4i.P4Info:
        assert self.config
        return self.config.p4info

    async def StreamChannel(self, request_iterator, context) -> AsyncIterator[p4r.StreamMessageResponse]:
        async for request in request_iterator:
            answer = p4r.MasterArbitrationUpdate()
            answer.CopyFrom(request.arbitration)
            answer.status.CopyFrom(rpc_status.Status(code=rpc_code.OK))
            yield p4r.StreamMessageResponse(arbitration=answer)

    async def Capabilities(self, request, context) -> p4r.CapabilitiesResponse:
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.3.0")

    async def _gnmi_get(self, request: bytes, context) -> bytes:
        await context.abort(self.gnmi.pop(0) if self.gnmi[1:] else self.gnmi[0], "no gNMI here")
        return b""

    async def SetForwardingPipelineConfig(self, request, context) -> p4r.SetForwardingPipelineConfigResponse:
        await self._check_device(request, context)
        if self.refusal:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusal)
        self.config = request.config
        self.entities.clear()
        self.packets.clear()
        self.cells.clear()
        self.pushes += 1
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(self, request, context) -> p4r.GetForwardingPipelineConfigResponse:
        await self._check_device(request, context)
        if self.config is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set")
        config = p4r.ForwardingPipelineConfig(cookie=self.config.cookie)
        return p4r.GetForwardingPipelineConfigResponse(config=config)

    async def Write(self, request, context) -> p4r.WriteResponse:
        await self._check_device(request, context)
        for update in request.updates:
            self.updates.append(update)
            key = _key(update.entity)
            there = key in self.entities
            if update.type == p4r.Update.DELETE:
                if not there:
                    await context.abort(grpc.StatusCode.NOT_FOUND, f"no such entity: {update.entity}")
                del self.entities[key]
                self.packets.pop(key, None)
                continue
            if there != (update.type == p4r.Update.MODIFY):
                await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"there: {there}: {update.entity}")
            if self.room is not None and update.type == p4r.Update.INSERT:
                if not self.room:
                    self.refused += 1
                    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "table full")
                self.room -= 1
            self.entities[key] = update.entity
        return p4r.WriteResponse()

    async def Read(self, request, context) -> AsyncIterator[p4r.ReadResponse]:
        await self._check_device(request, context)
        for wildcard in request.entities:
            if wildcard.table_entry.HasField("counter_data") and self.before_counting:
                event, self.before_counting = self.before_counting, None
                await event()
            yield p4r.ReadResponse(entities=list(self._answers(wildcard)))

    def _answers(self, wildcard: p4r.Entity):
        kind = wildcard.WhichOneof("entity")
        if kind == "counter_entry":
            asked = wildcard.counter_entry
            name = next(c.preamble.alias for c in self.p4info.counters if c.preamble.id == asked.counter_id)
            data = p4r.CounterData(packet_count=self.cells.get((name, asked.index.index), 0))
            entry = p4r.CounterEntry(counter_id=asked.counter_id, index=asked.index, data=data)
            yield p4r.Entity(counter_entry=entry)
            return
        for key, entity in self.entities.items():
            if entity.WhichOneof("entity") != kind:
                continue
            answer = p4r.Entity()
            answer.CopyFrom(entity)
            if kind == "table_entry":
                if wildcard.table_entry.table_id not in (0, entity.table_entry.table_id):
                    continue
                if wildcard.table_entry.HasField("counter_data"):
                    answer.table_entry.counter_data.packet_count = self.packets.get(key, 0)
            yield answer

    async def _check_device(self, request, context) -> None:
        if request.device_id != self.device_id:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no device {request.device_id}")


def _key(entity: p4r.Entity) -> Key:
    """What makes two entities the same one: table and match, or the multicast group's number."""
    if entity.HasField("table_entry"):
        match = p4r.TableEntry(match=sorted(entity.table_entry.match, key=lambda m: m.field_id))
        return entity.table_entry.table_id, match.SerializeToString(deterministic=True)
    group = entity.packet_replication_engine_entry.multicast_group_entry.multicast_group_id
    return 0, group.to_bytes(4, "big")
