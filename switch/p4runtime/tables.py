# SPDX-License-Identifier: Apache-2.0
"""Table entries (specification, section 9.1), with the direct resources that come along with them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from finsy.proto import p4i, p4r

from railweave._native.engine import NONE
from railweave.switch.p4runtime import actions, matches
from railweave.switch.p4runtime.cells import counter_value, encode_meter, meter_config, require_no_colours
from railweave.switch.p4runtime.errors import not_found, require, unimplemented
from railweave.switch.p4runtime.schema import Entities, Kind, Schema
from railweave.switch.pipeline import (
    CounterValue,
    Entry,
    Match,
    MeterConfig,
    Opaque,
    Pipeline,
    Table,
    Target,
)
from railweave.switch.pipeline.matches import check

_Update = p4r.Update
_COPY_BYTES = 200  # of memory for a copied counter
_DEFAULT_HAS_NONE = "direct counters and meters see hits: a default action has none, as on BMv2"
_EVERYTHING = p4r.TableEntry(
    counter_data=p4r.CounterData(),
    meter_config=p4r.MeterConfig(),
    time_since_last_hit=p4r.TableEntry.IdleTimeout(),
)


def monotonic_us() -> int:
    """Return the clock of the ports' thread, in microseconds."""
    return time.monotonic_ns() // 1000


class Tables(Entities):
    """All tables of a pipeline, which keeps their entries."""

    def __init__(self, schema: Schema, pipeline: Pipeline, clock_us: Callable[[], int]) -> None:
        """Serve the tables, with the entries that the program itself brought."""
        super().__init__(schema, pipeline)
        self._clock_us = clock_us
        self._copies: dict[int, dict[int, CounterValue]] = {}  # of a snapshot, by table id and handle
        for table in schema.tables.values():
            self.store(table).set_immutable(table.is_const_table)  # BMv2's JSON does not say

    def snapshot(self, pipeline: Pipeline) -> Self:
        """Return the tables of a pipeline's snapshot: `copy_counters` keeps counters as they are."""
        view = super().snapshot(pipeline)
        view._copies = {}
        return view

    def copy_counters(self, table: p4i.Table) -> Iterator[int]:
        """Keep the counters of a snapshot's entries as they are now. Yield the bytes of each step."""
        store = self.store(table)
        if not store.info.direct_counter or table.preamble.id in self._copies:
            return
        copies = self._copies.setdefault(table.preamble.id, {})
        for entry in store.entries():
            copies[entry.handle] = store.direct_counter(entry.handle)
            yield _COPY_BYTES

    def store(self, table: p4i.Table) -> Table:
        """Return the table of the pipeline."""
        return self._pipeline.tables[table.preamble.name]

    def write(self, kind: Kind, message: p4r.TableEntry) -> None:
        """INSERT, MODIFY or DELETE an entry, or MODIFY a default action."""
        table = self._schema.tables[message.table_id]
        store = self.store(table)
        require(not message.is_const, "is_const is for reading")
        deleted, with_action = kind == _Update.DELETE, message.HasField("action")
        if message.is_default_action:
            self._write_default(kind, table, message)
            return
        if kind != _Update.MODIFY or with_action:
            store.require_mutable()
        if deleted:
            store.delete(self.entry(table, message).handle)
            return
        store.check_timeout(message.idle_timeout_ns)
        counter, meter = self._direct_values(table, message)
        target = actions.decode_target(self._schema, table, message.action, self._pipeline.ports)
        given: dict[str, Any] = {
            "idle_timeout_ns": message.idle_timeout_ns,
            "opaque": _opaque(message),
            "now_us": self._clock_us() - message.time_since_last_hit.elapsed_ns // 1000,
        }
        if kind == _Update.INSERT:
            handle = store.insert(self._match(table, message), target, message.priority, **given)
        else:
            handle = self.entry(table, message).handle
            if with_action:  # without one only direct resources change
                store.modify(handle, target, **given)
        if counter is not None:  # a counter that the entry leaves out stays, a meter turns green
            store.set_direct_counter(handle, counter)
        if store.info.direct_meter is not None:
            store.set_direct_meter(handle, meter)

    def read(self, pattern: p4r.TableEntry) -> Iterator[p4r.Entity | None]:
        """Yield entries, or default entries, that fit a pattern. Its unset fields are wildcards.

        None for an entry that does not fit.
        """
        if pattern.table_id:
            table = self._schema.tables[pattern.table_id]
            if pattern.HasField("time_since_last_hit"):
                require(self.store(table).info.idle_timeouts, f"{table.preamble.name} has no idle time-outs")
            if pattern.HasField("meter_counter_data"):
                self._resource("meter", table)
                require_no_colours(pattern, "meter_counter_data")
        for table in self._schema.tables.chosen(pattern.table_id):
            for entry in self.select(table, pattern):
                if entry is None:
                    yield None
                    continue
                message = self.encode(table, entry)
                if entry.handle != NONE:
                    self._read_direct(table, entry, pattern, message)
                yield p4r.Entity(table_entry=message)

    def select(self, table: p4i.Table, pattern: p4r.TableEntry) -> Iterator[Entry | None]:
        """Yield entries, or the default entry, that fit a pattern; None for an entry that does not.

        A long search can thus be interrupted.
        """
        store = self.store(table)
        if pattern.is_default_action:
            yield store.default
            return
        entries: Iterable[Entry] = store.entries()
        priority, wanted = pattern.priority, None
        if pattern.match:
            require(pattern.table_id, "a match needs a table")
            wanted = check(store.info, self._match(table, pattern))
            if priority or not store.info.needs_priority:
                found = store.find(wanted, priority)
                entries = [] if found is None else [found]
        number = pattern.action.action.action_id
        action = self._schema.names.get(number, "")
        opaque = _opaque(pattern)
        for entry in entries:
            fits = (
                priority in (0, entry.priority)
                and wanted in (None, entry.matches)
                and (not number or action == entry.target.action)
                and opaque.controller_metadata in (0, entry.opaque.controller_metadata)
                and opaque.metadata in (b"", entry.opaque.metadata)
            )
            yield entry if fits else None

    def current(self, message: p4r.TableEntry) -> p4r.Entity:
        """Return the entry that an update would replace, complete enough to be written back."""
        table = self._schema.tables[message.table_id]
        store = self.store(table)
        entry = store.default if message.is_default_action else self.entry(table, message)
        writable = self.encode(table, entry)
        if entry.handle != NONE:
            self._read_direct(table, entry, _EVERYTHING, writable)
        if entry.const or entry == store.declared:
            writable.ClearField("action")
        writable.is_const = False
        return p4r.Entity(table_entry=writable)

    def expired(self, most: int) -> tuple[list[p4r.TableEntry], bool]:
        """Look at up to `most` entries. Return the keys of idle ones, and whether more are due."""
        tables = {table.preamble.name: table for table in self._schema.tables.values()}
        found = []
        expired, more = self._pipeline.expired(self._clock_us(), most)
        for name, entry in expired:
            message = self.encode(tables[name], entry)
            message.ClearField("action")
            found.append(message)
        return found, more

    def entry(self, table: p4i.Table, message: p4r.TableEntry) -> Entry:
        """Return the entry that a message names in full; Refused if the table has no such entry."""
        store = self.store(table)
        found = store.find(*store.key(self._match(table, message), message.priority))
        if found is None:
            raise not_found(f"table {table.preamble.name} has no such entry")
        return found

    def key(self, table: p4i.Table, entry: Entry) -> p4r.TableEntry:
        """Return the message that names an entry."""
        message = p4r.TableEntry(table_id=table.preamble.id, priority=entry.priority)
        if entry.handle == NONE:
            message.is_default_action = True
        else:
            message.match.extend(matches.encode(table.match_fields, entry.matches))
        return message

    def encode(self, table: p4i.Table, entry: Entry) -> p4r.TableEntry:
        """Return an entry as it was written, without its direct resources."""
        message = self.key(table, entry)
        message.is_const = entry.const
        message.idle_timeout_ns = entry.idle_timeout_ns
        message.metadata = entry.opaque.metadata
        message.controller_metadata = entry.opaque.controller_metadata
        if entry.target != Target():
            message.action.CopyFrom(actions.encode_target(self._schema, table, entry.target))
        return message

    def _match(self, table: p4i.Table, message: p4r.TableEntry) -> tuple[Match, ...]:
        return matches.decode(table.preamble.name, table.match_fields, message.match)

    def _write_default(self, kind: Kind, table: p4i.Table, message: p4r.TableEntry) -> None:
        name, store = table.preamble.name, self.store(table)
        require(kind == _Update.MODIFY, f"the default action of {name} can only be modified")
        require(
            not message.match and not message.priority and not message.idle_timeout_ns,
            "a default entry has neither match nor priority nor idle time-out",
        )
        direct = any(message.HasField(f) for f in ("counter_data", "meter_config", "meter_counter_data"))
        require(not direct, _DEFAULT_HAS_NONE, unimplemented)
        store.require_mutable_default()
        if not message.HasField("action"):
            store.set_default(None)
            return
        require(message.action.HasField("action"), f"a default entry of {name} takes an action")
        call = actions.decode(self._schema, table, message.action.action, default=True)
        store.set_default(Target(*call), _opaque(message))

    # Direct counters and meters.

    def write_counter(self, kind: Kind, message: p4r.DirectCounterEntry) -> None:
        """MODIFY the counter of an existing entry; without data nothing changes."""
        table, entry = self._modified("counter", kind, message.table_entry)
        value = counter_value(message)
        if value is not None:
            self.store(table).set_direct_counter(entry.handle, value)

    def write_meter(self, kind: Kind, message: p4r.DirectMeterEntry) -> None:
        """MODIFY the meter of an existing entry; without a config it turns green."""
        require_no_colours(message)
        table, entry = self._modified("meter", kind, message.table_entry)
        config = meter_config(self._schema.direct("meter", table), message)
        self.store(table).set_direct_meter(entry.handle, config)

    def read_counters(self, pattern: p4r.DirectCounterEntry) -> Iterator[p4r.Entity | None]:
        """Yield counters of the entries that fit the pattern; None for an entry that does not."""
        for found in self._having("counter", pattern.table_entry):
            yield found and p4r.Entity(
                direct_counter_entry=p4r.DirectCounterEntry(
                    table_entry=self.key(*found), data=self._count(*found)
                )
            )

    def read_meters(self, pattern: p4r.DirectMeterEntry) -> Iterator[p4r.Entity | None]:
        """Yield meter configs of the entries that fit the pattern; None for an entry that does not."""
        require_no_colours(pattern)
        for found in self._having("meter", pattern.table_entry):
            config = encode_meter(found[1].meter) if found and found[1].meter else None
            yield found and p4r.Entity(
                direct_meter_entry=p4r.DirectMeterEntry(table_entry=self.key(*found), config=config)
            )

    def _modified(self, resource: str, kind: Kind, message: p4r.TableEntry) -> tuple[p4i.Table, Entry]:
        """Return the table and the entry whose counter or meter an update changes."""
        require(kind == _Update.MODIFY, f"a direct {resource} comes and goes with its entry: only MODIFY")
        table = self._schema.tables[message.table_id]
        self._resource(resource, table)
        require(not message.is_default_action, _DEFAULT_HAS_NONE, unimplemented)
        return table, self.entry(table, message)

    def _having(self, resource: str, pattern: p4r.TableEntry) -> Iterator[tuple[p4i.Table, Entry] | None]:
        """Yield the entries that fit and have a counter or meter; None for other entries.

        NOT_FOUND if a complete key names no entry.
        """
        require(not pattern.is_default_action, _DEFAULT_HAS_NONE, unimplemented)
        if pattern.table_id:
            self._resource(resource, self._schema.tables[pattern.table_id])
            if pattern.match:
                self.entry(self._schema.tables[pattern.table_id], pattern)
        for table in self._schema.tables.chosen(pattern.table_id):
            has = self._schema.direct(resource, table) is not None
            for entry in self.select(table, pattern):
                yield (table, entry) if has and entry is not None else None

    def _resource(self, kind: str, table: p4i.Table) -> None:
        """Refuse a table whose entries have no counter, or no meter."""
        has = self._schema.direct(kind, table) is not None
        require(has, f"table {table.preamble.name} has no direct {kind}")

    def _count(self, table: p4i.Table, entry: Entry) -> p4r.CounterData:
        """Return the counter of an entry."""
        counted = self._copies.get(table.preamble.id, {}).get(entry.handle)
        if counted is None:
            counted = self.store(table).direct_counter(entry.handle)
        return p4r.CounterData(packet_count=counted.packets, byte_count=counted.bytes)

    def _direct_values(
        self, table: p4i.Table, message: p4r.TableEntry
    ) -> tuple[CounterValue | None, MeterConfig | None]:
        """Return an entry's counter and meter; Refused if the table lacks them or they cannot take values."""
        counter = meter = None
        if message.HasField("counter_data"):
            self._resource("counter", table)
            counter = counter_value(message, "counter_data")
        if message.HasField("meter_config") or message.HasField("meter_counter_data"):
            self._resource("meter", table)
            require_no_colours(message, "meter_counter_data")
            meter = meter_config(self._schema.direct("meter", table), message, "meter_config")
        return counter, meter

    def _read_direct(
        self, table: p4i.Table, entry: Entry, pattern: p4r.TableEntry, message: p4r.TableEntry
    ) -> None:
        """Add the resources that the pattern asks for and the table has."""
        if pattern.HasField("counter_data") and self.store(table).info.direct_counter:
            message.counter_data.CopyFrom(self._count(table, entry))
        if pattern.HasField("meter_config") and entry.meter is not None:
            message.meter_config.CopyFrom(encode_meter(entry.meter))
        if pattern.HasField("time_since_last_hit") and self.store(table).info.idle_timeouts:
            with contextlib.suppress(IndexError):  # the entry has gone since a snapshot
                elapsed = self.store(table).time_since_last_hit_ns(entry.handle, self._clock_us())
                message.time_since_last_hit.elapsed_ns = elapsed


def _opaque(message: p4r.TableEntry) -> Opaque:
    return Opaque(message.metadata, message.controller_metadata)
