# SPDX-License-Identifier: Apache-2.0
"""Table entries and their direct counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from finsy.proto import p4i, p4r
from railweave.switch.p4runtime import actions, matches
from railweave.switch.p4runtime.errors import Code, Refused, invalid, not_found, require, unimplemented
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.pipeline import CounterValue, Entry, Match, Pipeline

_Update = p4r.Update
_Kind: TypeAlias = "p4r.Update.Type.ValueType"


class Tables:
    """All tables of a pipeline. Entries live there; kept here is only what is opaque to a switch."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Serve the tables, with the entries that the program itself brought."""
        self._schema = schema
        self._pipeline = pipeline
        self._cookies: dict[tuple[int, int | None], p4r.TableEntry] = {}  # by table id and handle

    def write(self, kind: _Kind, message: p4r.TableEntry) -> None:
        """INSERT, MODIFY or DELETE an entry, or MODIFY a default action."""
        table = self._schema.table(message.table_id)
        _require_supported(message)
        if message.is_default_action:
            self._write_default(kind, table, message)
            return
        name = table.preamble.name
        if table.is_const_table:
            raise Refused(Code.PERMISSION_DENIED, f"the entries of table {name} are constant")
        match = self._key(table, message)
        if kind == _Update.INSERT:
            action, params = actions.decode(self._schema, table, message.action, default=False)
            self._require_countable(table, message)
            handle = self._pipeline.insert(name, match, action, params, message.priority)
            self._keep(table, handle, message)
            return
        handle = self._find(table, match, message.priority)
        if kind == _Update.MODIFY:
            action, params = actions.decode(self._schema, table, message.action, default=False)
            self._require_countable(table, message)
            self._pipeline.modify(name, handle, action, params)
            self._keep(table, handle, message)
        else:
            self._pipeline.delete(name, handle)
            self._cookies.pop((table.preamble.id, handle), None)

    def read(self, pattern: p4r.TableEntry) -> Iterator[p4r.Entity]:
        """Entries, or default entries, that fit a pattern; what it leaves unset is a wildcard."""
        _require_supported(pattern)
        for table in self._tables(pattern.table_id):
            counted = pattern.HasField("counter_data") and self._schema.has_direct_counter(table)
            for message, handle in self._select(table, pattern):
                if counted and handle is not None:
                    message.counter_data.CopyFrom(self._count(table, handle))
                yield p4r.Entity(table_entry=message)

    def write_direct_counter(self, kind: _Kind, message: p4r.DirectCounterEntry) -> None:
        """MODIFY the counter of an existing entry."""
        require(
            kind == _Update.MODIFY, invalid, "a direct counter comes and goes with its entry: only MODIFY"
        )
        entry = message.table_entry
        table = self._schema.table(entry.table_id)
        self._require_counter(table)
        _require_no_default(entry)
        handle = self._find(table, self._key(table, entry), entry.priority)
        if message.HasField("data"):
            self._pipeline.set_direct_counter(table.preamble.name, handle, _value(message.data))

    def read_direct_counter(self, pattern: p4r.DirectCounterEntry) -> Iterator[p4r.Entity]:
        """Counters of the entries that fit the pattern."""
        _require_no_default(pattern.table_entry)
        wildcard = pattern.table_entry.table_id == 0
        for table in self._tables(pattern.table_entry.table_id):
            if wildcard and not self._schema.has_direct_counter(table):
                continue
            self._require_counter(table)
            for message, handle in self._select(table, pattern.table_entry):
                if handle is None:
                    continue
                message.ClearField("action")
                counted = p4r.DirectCounterEntry(table_entry=message, data=self._count(table, handle))
                yield p4r.Entity(direct_counter_entry=counted)

    def written(self) -> Iterator[p4r.Entity]:
        """Entries and default actions that are not the program's own."""
        for table in self._schema.tables.values():
            for entry in self._pipeline.entries(table.preamble.name):
                if not entry.const:
                    yield p4r.Entity(table_entry=self._encode(table, entry))
            declared = self._pipeline.program.tables[table.preamble.name].default
            current = self._pipeline.default(table.preamble.name)
            if current is not None and (
                declared is None or current != (declared.action, declared.parameters)
            ):
                yield p4r.Entity(table_entry=self._encode_default(table))

    def _write_default(self, kind: _Kind, table: p4i.Table, message: p4r.TableEntry) -> None:
        name = table.preamble.name
        require(kind == _Update.MODIFY, invalid, f"the default action of {name} can only be modified")
        require(
            not message.match and not message.priority,
            invalid,
            "a default entry has neither match nor priority",
        )
        if message.HasField("counter_data"):
            _require_no_default(message)
        if table.const_default_action_id:
            raise Refused(Code.PERMISSION_DENIED, f"the default action of {name} is constant")
        if message.HasField("action"):
            action, params = actions.decode(self._schema, table, message.action, default=True)
            self._pipeline.set_default(name, action, params)
            self._keep(table, None, message)
        else:
            self._pipeline.set_default(name, None)
            self._cookies.pop((table.preamble.id, None), None)

    def _key(self, table: p4i.Table, message: p4r.TableEntry) -> list[Match]:
        """The match of an entry that is named in full."""
        name = table.preamble.name
        if matches.needs_priority(table):
            require(message.priority > 0, invalid, f"an entry of {name} needs a priority greater than 0")
        else:
            require(message.priority == 0, invalid, f"an entry of {name} takes no priority")
        return matches.decode(table, message.match)

    def _find(self, table: p4i.Table, match: list[Match], priority: int) -> int:
        handle = self._pipeline.find(table.preamble.name, match, priority)
        if handle is None:
            raise not_found(f"table {table.preamble.name} has no such entry")
        return handle

    def _keep(self, table: p4i.Table, handle: int | None, message: p4r.TableEntry) -> None:
        """Remember what only the controller understands, and write the counter if one came along."""
        self._cookies[table.preamble.id, handle] = p4r.TableEntry(
            metadata=message.metadata, controller_metadata=message.controller_metadata
        )
        if handle is not None and message.HasField("counter_data"):
            self._pipeline.set_direct_counter(table.preamble.name, handle, _value(message.counter_data))

    def _tables(self, table_id: int) -> list[p4i.Table]:
        return [self._schema.table(table_id)] if table_id else list(self._schema.tables.values())

    def _select(
        self, table: p4i.Table, pattern: p4r.TableEntry
    ) -> Iterator[tuple[p4r.TableEntry, int | None]]:
        """Entries (or the default entry, if that is asked for) with their handles."""
        if pattern.is_default_action:
            yield self._encode_default(table), None
            return
        match: list[Match] = []
        if pattern.match:
            require(pattern.table_id, invalid, "a match needs a table")
            match = matches.decode(table, pattern.match)
        for entry in self._pipeline.entries(table.preamble.name):
            if pattern.priority not in (0, entry.priority):
                continue
            if match and self._pipeline.find(table.preamble.name, match, entry.priority) != entry.handle:
                continue
            yield self._encode(table, entry), entry.handle

    def _encode(self, table: p4i.Table, entry: Entry) -> p4r.TableEntry:
        message = p4r.TableEntry(table_id=table.preamble.id, is_const=entry.const)
        message.match.extend(matches.encode(table, entry.matches))
        message.action.CopyFrom(actions.encode(self._schema, table, entry.action, entry.params))
        if matches.needs_priority(table):
            message.priority = entry.priority
        message.MergeFrom(self._cookies.get((table.preamble.id, entry.handle), p4r.TableEntry()))
        return message

    def _encode_default(self, table: p4i.Table) -> p4r.TableEntry:
        message = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
        default = self._pipeline.default(table.preamble.name)
        if default is not None:
            message.action.CopyFrom(actions.encode(self._schema, table, *default))
        message.MergeFrom(self._cookies.get((table.preamble.id, None), p4r.TableEntry()))
        return message

    def _require_counter(self, table: p4i.Table) -> None:
        require(
            self._schema.has_direct_counter(table),
            invalid,
            f"table {table.preamble.name} has no direct counter",
        )

    def _require_countable(self, table: p4i.Table, message: p4r.TableEntry) -> None:
        if message.HasField("counter_data"):
            self._require_counter(table)

    def _count(self, table: p4i.Table, handle: int) -> p4r.CounterData:
        value = self._pipeline.direct_counter(table.preamble.name, handle)
        return p4r.CounterData(packet_count=value.packets, byte_count=value.bytes)


def _value(data: p4r.CounterData) -> CounterValue:
    return CounterValue(data.packet_count, data.byte_count)


def _require_supported(message: p4r.TableEntry) -> None:
    if message.HasField("meter_config") or message.HasField("meter_counter_data"):
        raise unimplemented("direct meters are not supported")
    if message.idle_timeout_ns:
        raise unimplemented("idle time-outs are not supported")


def _require_no_default(message: p4r.TableEntry) -> None:
    if message.is_default_action:
        raise unimplemented("direct counters count hits: a default action has none, as on BMv2")
