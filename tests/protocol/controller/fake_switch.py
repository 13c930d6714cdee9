# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime server that holds a switch's tables and moves no packets: a fake with the real interface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
from finsy.proto import p4i, p4r

from railweave.access import IN_CLEAR, Access
from railweave.benchmarks.stub_switches import Key, StubSwitch, key_of


class FakeSwitch(StubSwitch):
    """A stub switch with direct and indirect counters, a list of all updates, and faults."""

    def __init__(self, device_id: int = 1, access: Access = IN_CLEAR) -> None:
        super().__init__(device_id, access)
        self.packets: dict[Key, int] = {}
        self.cells: dict[tuple[str, int], int] = {}  # cells of indirect counters, by name and index
        self.updates: list[p4r.Update] = []  # all updates so far
        self.pushes = 0
        self.room: int | None = None  # the number of INSERTs before the switch refuses the next
        self.refused = 0
        self.refusal = ""  # the error for every pipeline
        self.before_counting: Callable[[], Awaitable[None]] | None = None  # awaited once
        self.gnmi = [
            grpc.StatusCode.UNIMPLEMENTED
        ]  # statuses of the answers to gNMI requests; the last status repeats

    async def restart(self, *, lose_state: bool) -> None:
        """Stop, and start again at the same address."""
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

    def serial_starts(self) -> list[int]:
        """Return the parameter `start` of the entries of `members` that accept packets."""
        (table,) = (t for t in self.p4info.tables if t.preamble.alias == "members")
        action = next(a for a in self.p4info.actions if a.preamble.alias == "contributor")
        start = next(p.id for p in action.params if p.name == "start")
        group = next(f.id for f in table.match_fields if f.name == "group")
        return [
            int.from_bytes(p.value, "big")
            for e in self.table("members")
            if all(m.exact.value != b"\0" for m in e.match if m.field_id == group)
            for p in e.action.action.params
            if p.param_id == start
        ]

    def snapshot(self) -> set[bytes]:
        return {entity.SerializeToString(deterministic=True) for entity in self.entities.values()}

    def count(self, table: str, packets: int) -> None:
        """Set the packet count of every entry of a table."""
        for entry in self.table(table):
            self.packets[key_of(p4r.Entity(table_entry=entry))] = packets

    def _table_id(self, name: str) -> int:
        assert self.config
        return next(t.preamble.id for t in self.config.p4info.tables if t.preamble.alias == name)

    @property
    def p4info(self) -> p4i.P4Info:
        assert self.config
        return self.config.p4info

    async def _gnmi_get(self, request: bytes, context) -> bytes:
        await context.abort(self.gnmi.pop(0) if self.gnmi[1:] else self.gnmi[0], "no gNMI here")
        return b""

    async def SetForwardingPipelineConfig(self, request, context) -> p4r.SetForwardingPipelineConfigResponse:
        if self.refusal:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusal)
        answer = await super().SetForwardingPipelineConfig(request, context)
        self.packets.clear()
        self.cells.clear()
        self.pushes += 1
        return answer

    async def _update(self, update, key: Key, context) -> None:
        self.updates.append(update)
        if self.room is not None and update.type == p4r.Update.INSERT:
            if not self.room:
                self.refused += 1
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "table full")
            self.room -= 1
        await super()._update(update, key, context)
        if update.type == p4r.Update.DELETE:
            self.packets.pop(key, None)

    async def Read(self, request, context) -> AsyncIterator[p4r.ReadResponse]:
        counts = any(wildcard.table_entry.HasField("counter_data") for wildcard in request.entities)
        if counts and self.before_counting:
            event, self.before_counting = self.before_counting, None
            await event()
        async for answer in super().Read(request, context):
            yield answer

    def _answers(self, wildcard: p4r.Entity):
        kind = wildcard.WhichOneof("entity")
        if kind == "counter_entry":
            asked = wildcard.counter_entry
            name = next(c.preamble.alias for c in self.p4info.counters if c.preamble.id == asked.counter_id)
            data = p4r.CounterData(packet_count=self.cells.get((name, asked.index.index), 0))
            entry = p4r.CounterEntry(counter_id=asked.counter_id, index=asked.index, data=data)
            yield p4r.Entity(counter_entry=entry)
            return
        for entity in super()._answers(wildcard):
            answer = p4r.Entity()
            answer.CopyFrom(entity)
            if kind == "table_entry" and wildcard.table_entry.HasField("counter_data"):
                answer.table_entry.counter_data.packet_count = self.packets.get(key_of(entity), 0)
            yield answer
