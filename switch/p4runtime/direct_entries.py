# SPDX-License-Identifier: Apache-2.0
"""Direct counters and meters as entities of their own, named by the entry that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import meters
from railweave.switch.p4runtime.direct import default_has_none, value
from railweave.switch.p4runtime.errors import require
from railweave.switch.p4runtime.schema import Kind, Schema
from railweave.switch.p4runtime.tables import Tables
from railweave.switch.pipeline import Pipeline


class DirectEntries:
    """DirectCounterEntry and DirectMeterEntry of all tables."""

    def __init__(self, schema: Schema, pipeline: Pipeline, tables: Tables) -> None:
        """Entries are found through `tables`."""
        self._schema = schema
        self._pipeline = pipeline
        self._tables = tables
        self._direct = tables.direct

    def write_counter(self, kind: Kind, message: p4r.DirectCounterEntry) -> None:
        """MODIFY the counter of an existing entry; without data nothing changes."""
        _require_modify(kind, "counter")
        table = self._schema.tables[message.table_entry.table_id]
        self._direct.require_counter(table)
        handle = self._handle(table, message.table_entry)
        if message.HasField("data"):
            self._pipeline.tables.set_direct_counter(table.preamble.name, handle, value(message.data))

    def write_meter(self, kind: Kind, message: p4r.DirectMeterEntry) -> None:
        """MODIFY the meter of an existing entry; without a config it turns green."""
        _require_modify(kind, "meter")
        table = self._schema.tables[message.table_entry.table_id]
        meter = self._direct.meter_of(table)
        if message.HasField("counter_data"):
            raise meters.no_colours()
        config = meters.decode(meter, message.config if message.HasField("config") else None)
        handle = self._handle(table, message.table_entry)
        self._pipeline.tables.set_direct_meter(table.preamble.name, handle, config)

    def read_counters(self, pattern: p4r.DirectCounterEntry) -> Iterator[p4r.Entity | None]:
        """Counters of the entries that fit the pattern; None for one that does not."""
        if pattern.table_entry.table_id:
            self._direct.require_counter(self._schema.tables[pattern.table_entry.table_id])
        for found in self._entries(pattern.table_entry, self._schema.has_direct_counter):
            yield found and p4r.Entity(
                direct_counter_entry=p4r.DirectCounterEntry(
                    table_entry=found[1], data=self._direct.count(found[0], found[2])
                )
            )

    def read_meters(self, pattern: p4r.DirectMeterEntry) -> Iterator[p4r.Entity | None]:
        """Configurations of the meters of the entries that fit the pattern; None for one that does not."""
        if pattern.table_entry.table_id:
            self._direct.meter_of(self._schema.tables[pattern.table_entry.table_id])
        if pattern.HasField("counter_data"):
            raise meters.no_colours()
        for found in self._entries(pattern.table_entry, self._schema.direct_meter):
            if found is None:
                yield None
                continue
            table, entry, handle = found
            config = self._pipeline.tables.direct_meter(table.preamble.name, handle)
            message = p4r.DirectMeterEntry(
                table_entry=entry, config=None if config is None else meters.encode(config)
            )
            yield p4r.Entity(direct_meter_entry=message)

    def _entries(
        self, pattern: p4r.TableEntry, has: Callable[[p4i.Table], object]
    ) -> Iterator[tuple[p4i.Table, p4r.TableEntry, int] | None]:
        """Entries that fit, by their keys, where the table `has` it; NOT_FOUND if a full key names none."""
        if pattern.is_default_action:
            raise default_has_none()
        if pattern.table_id and pattern.match:
            table = self._schema.tables[pattern.table_id]
            self._tables.find(table, self._tables.key(table, pattern), pattern.priority)
        for table in self._schema.tables.chosen(pattern.table_id):
            for found in self._tables.select(table, pattern):
                if found is None or found[1] is None or not has(table):
                    yield None
                else:
                    message, handle = found[0], found[1]
                    key = p4r.TableEntry(
                        table_id=message.table_id, match=message.match, priority=message.priority
                    )
                    yield table, key, handle

    def _handle(self, table: p4i.Table, entry: p4r.TableEntry) -> int:
        if entry.is_default_action:
            raise default_has_none()
        return self._tables.find(table, self._tables.key(table, entry), entry.priority)


def _require_modify(kind: Kind, what: str) -> None:
    require(kind == p4r.Update.MODIFY, f"a direct {what} comes and goes with its entry: only MODIFY")
