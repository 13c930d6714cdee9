# SPDX-License-Identifier: Apache-2.0
"""Direct counters and meters as entities of their own, named by the entry that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import meters
from railweave.switch.p4runtime.errors import require
from railweave.switch.p4runtime.schema import Kind, Schema
from railweave.switch.p4runtime.tables import Tables, counter_value, default_has_none
from railweave.switch.pipeline import Entry


class DirectEntries:
    """DirectCounterEntry and DirectMeterEntry of all tables."""

    def __init__(self, schema: Schema, tables: Tables) -> None:
        """Find entries through `tables`."""
        self._schema = schema
        self._tables = tables

    def write_counter(self, kind: Kind, message: p4r.DirectCounterEntry) -> None:
        """MODIFY the counter of an existing entry; without data nothing changes."""
        _require_modify(kind, "counter")
        table = self._schema.tables[message.table_entry.table_id]
        self._tables.store(table).require_counter()
        entry = self._entry(table, message.table_entry)
        if message.HasField("data"):
            self._tables.store(table).set_direct_counter(entry.handle, counter_value(message.data))

    def write_meter(self, kind: Kind, message: p4r.DirectMeterEntry) -> None:
        """MODIFY the meter of an existing entry; without a config it turns green."""
        _require_modify(kind, "meter")
        table = self._schema.tables[message.table_entry.table_id]
        meter = self._tables.meter_of(table)
        if message.HasField("counter_data"):
            raise meters.no_colours()
        config = meters.decode(meter, message.config if message.HasField("config") else None)
        entry = self._entry(table, message.table_entry)
        self._tables.store(table).set_direct_meter(entry.handle, config)

    def read_counters(self, pattern: p4r.DirectCounterEntry) -> Iterator[p4r.Entity | None]:
        """Yield counters of the entries that fit the pattern; None for an entry that does not."""
        if pattern.table_entry.table_id:
            self._tables.store(self._schema.tables[pattern.table_entry.table_id]).require_counter()
        for found in self._entries(pattern.table_entry, self._schema.has_direct_counter):
            yield found and p4r.Entity(
                direct_counter_entry=p4r.DirectCounterEntry(
                    table_entry=found[2], data=self._tables.count(found[0], found[1].handle)
                )
            )

    def read_meters(self, pattern: p4r.DirectMeterEntry) -> Iterator[p4r.Entity | None]:
        """Yield meter configs of the entries that fit the pattern; None for an entry that does not."""
        if pattern.table_entry.table_id:
            self._tables.meter_of(self._schema.tables[pattern.table_entry.table_id])
        if pattern.HasField("counter_data"):
            raise meters.no_colours()
        for found in self._entries(pattern.table_entry, self._schema.direct_meter):
            if found is None:
                yield None
                continue
            _, entry, key = found
            config = None if entry.meter is None else meters.encode(entry.meter)
            yield p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry(table_entry=key, config=config))

    def _entries(
        self, pattern: p4r.TableEntry, has: Callable[[p4i.Table], object]
    ) -> Iterator[tuple[p4i.Table, Entry, p4r.TableEntry] | None]:
        """Yield table, entry and key for each entry that fits in a table that `has` the resource.

        Other entries give None. NOT_FOUND if a complete key names no entry.
        """
        if pattern.is_default_action:
            raise default_has_none()
        if pattern.table_id and pattern.match:
            self._tables.entry(self._schema.tables[pattern.table_id], pattern)
        for table in self._schema.tables.chosen(pattern.table_id):
            for entry in self._tables.select(table, pattern):
                if entry is None or not has(table):
                    yield None
                else:
                    yield table, entry, self._tables.key(table, entry)

    def _entry(self, table: p4i.Table, message: p4r.TableEntry) -> Entry:
        if message.is_default_action:
            raise default_has_none()
        return self._tables.entry(table, message)


def _require_modify(kind: Kind, what: str) -> None:
    require(kind == p4r.Update.MODIFY, f"a direct {what} comes and goes with its entry: only MODIFY")
