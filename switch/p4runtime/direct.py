# SPDX-License-Identifier: Apache-2.0
"""Direct counters and meters as parts of table entries: they come and go with them."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import meters
from railweave.switch.p4runtime.errors import Refused, invalid, require, unimplemented
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.pipeline import CounterValue, Pipeline

_COPY_BYTES = 200  # of memory for a copied counter


class Direct:
    """The direct resources of all tables, as parts of table entries."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Counters start at 0, meters at green."""
        self._schema = schema
        self._pipeline = pipeline
        self._copies: dict[int, dict[int, CounterValue]] = {}  # of a snapshot, by table id and handle

    def copy_counters(self, table: p4i.Table) -> Iterator[int]:
        """Keep the counters of a snapshot's entries as they are now. Yield the bytes of each step."""
        if not self._schema.has_direct_counter(table) or table.preamble.id in self._copies:
            return
        name, copies = table.preamble.name, self._copies.setdefault(table.preamble.id, {})
        for entry in self._pipeline.tables.entries(name):
            copies[entry.handle] = self._pipeline.tables.direct_counter(name, entry.handle)
            yield _COPY_BYTES

    def check(self, table: p4i.Table, message: p4r.TableEntry) -> None:
        """Refuse resources that the table lacks, or values that they cannot take."""
        if message.HasField("counter_data"):
            self.require_counter(table)
        if message.HasField("meter_config"):
            meters.decode(self.meter_of(table), message.meter_config)
        if message.HasField("meter_counter_data"):
            self.meter_of(table)
            raise meters.no_colours()

    def check_read(self, table: p4i.Table, pattern: p4r.TableEntry) -> None:
        """Refuse to read what no meter here counts."""
        if pattern.HasField("meter_counter_data"):
            self.meter_of(table)
            raise meters.no_colours()

    def apply(self, table: p4i.Table, handle: int, message: p4r.TableEntry) -> None:
        """Write what a checked entry says: a counter that it leaves out stays, a meter turns green."""
        name = table.preamble.name
        if message.HasField("counter_data"):
            self._pipeline.tables.set_direct_counter(name, handle, value(message.counter_data))
        meter = self._schema.direct_meter(table)
        if meter is not None:
            given = message.meter_config if message.HasField("meter_config") else None
            self._pipeline.tables.set_direct_meter(name, handle, meters.decode(meter, given))

    def read(self, table: p4i.Table, handle: int, pattern: p4r.TableEntry, message: p4r.TableEntry) -> None:
        """Add to an entry what the pattern asks for and the table has."""
        if pattern.HasField("counter_data") and self._schema.has_direct_counter(table):
            message.counter_data.CopyFrom(self.count(table, handle))
        if pattern.HasField("meter_config") and self._schema.direct_meter(table) is not None:
            config = self._pipeline.tables.direct_meter(table.preamble.name, handle)
            if config is not None:
                message.meter_config.CopyFrom(meters.encode(config))

    def read_all(self, table: p4i.Table, handle: int, message: p4r.TableEntry) -> None:
        """Add everything that the table has."""
        everything = p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
        self.read(table, handle, everything, message)

    def count(self, table: p4i.Table, handle: int) -> p4r.CounterData:
        """Return the counter of an entry."""
        counted = self._copies.get(table.preamble.id, {}).get(handle)
        if counted is None:
            counted = self._pipeline.tables.direct_counter(table.preamble.name, handle)
        return p4r.CounterData(packet_count=counted.packets, byte_count=counted.bytes)

    def require_counter(self, table: p4i.Table) -> None:
        """Refuse unless entries of the table count packets."""
        require(self._schema.has_direct_counter(table), f"table {table.preamble.name} has no direct counter")

    def meter_of(self, table: p4i.Table) -> p4i.DirectMeter:
        """The meter of the table's entries; Refused if they have none."""
        meter = self._schema.direct_meter(table)
        if meter is None:
            raise invalid(f"table {table.preamble.name} has no direct meter")
        return meter

    @staticmethod
    def refuse_default(message: p4r.TableEntry) -> None:
        """Misses are neither counted nor metered."""
        if any(message.HasField(f) for f in ("counter_data", "meter_config", "meter_counter_data")):
            raise default_has_none()


def default_has_none() -> Refused:
    """Why a default entry has no direct resources."""
    return unimplemented("direct counters and meters see hits: a default action has none, as on BMv2")


def value(data: p4r.CounterData) -> CounterValue:
    """A counter's value from its message; Refused if it is negative."""
    require(data.packet_count >= 0 and data.byte_count >= 0, "a counter's packets and bytes are 0 or more")
    return CounterValue(data.packet_count, data.byte_count)
