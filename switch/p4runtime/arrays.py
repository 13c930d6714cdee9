# SPDX-License-Identifier: Apache-2.0
"""Indirect counters, meters and registers: arrays, read and modified by index, never inserted or deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import meters, p4data
from railweave.switch.p4runtime.direct import value as counter_value
from railweave.switch.p4runtime.errors import Code, Refused, invalid, require, unimplemented
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.pipeline import Pipeline

_BLOCK = 1024  # cells read from the engine at once


def blocks(cells: range) -> Iterator[range]:
    """Parts of a range that are read from the engine at once."""
    return (cells[at : at + _BLOCK] for at in range(0, len(cells), _BLOCK))


class Counters:
    """All indirect counters of a pipeline."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Counters start at zero."""
        self._schema = schema
        self._pipeline = pipeline

    def cells(self, message: p4r.CounterEntry) -> range:
        """The cells that a message names: one, or all if it names none."""
        counter = self._schema.counter(message.counter_id)
        return _indexes(counter.preamble.name, counter.size, message)

    def keep(self, message: p4r.CounterEntry) -> Callable[[], None]:
        """What brings back the cells that a message names."""
        name, cells = self._schema.counter(message.counter_id).preamble.name, self.cells(message)
        values = self._pipeline.arrays.counters(name, cells)

        def restore() -> None:
            for index, value in zip(cells, values, strict=True):
                self._pipeline.arrays.set_counter(name, index, value)

        return restore

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.CounterEntry) -> None:
        """MODIFY one cell, or all cells of a counter when the index is left out."""
        require(kind == p4r.Update.MODIFY, invalid, "counters can only be modified")
        counter = self._schema.counter(message.counter_id)
        value = counter_value(message.data)
        self._pipeline.arrays.set_counters(counter.preamble.name, self.cells(message), value)

    def read(self, pattern: p4r.CounterEntry) -> Iterator[p4r.Entity]:
        """Cells of one counter, or of all (id 0)."""
        chosen = [self._schema.counter(pattern.counter_id)] if pattern.counter_id else self._all()
        for counter in chosen:
            name = counter.preamble.name
            for block in blocks(_indexes(name, counter.size, pattern)):
                for index, value in zip(block, self._pipeline.arrays.counters(name, block), strict=True):
                    entity = p4r.Entity()
                    entity.counter_entry.counter_id = counter.preamble.id
                    entity.counter_entry.index.index = index
                    entity.counter_entry.data.packet_count = value.packets
                    entity.counter_entry.data.byte_count = value.bytes
                    yield entity

    def _all(self) -> Iterable[p4i.Counter]:
        return self._schema.counters.values()


class Meters:
    """All indirect meters of a pipeline."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Meters start green."""
        self._schema = schema
        self._pipeline = pipeline

    def cells(self, message: p4r.MeterEntry) -> range:
        """The cells that a message names: one, or all if it names none."""
        meter = self._schema.meter(message.meter_id)
        return _indexes(meter.preamble.name, meter.size, message)

    def keep(self, message: p4r.MeterEntry) -> Callable[[], None]:
        """What brings back the cells that a message names."""
        name, cells = self._schema.meter(message.meter_id).preamble.name, self.cells(message)
        values = [self._pipeline.arrays.meter(name, index) for index in cells]

        def restore() -> None:
            for index, value in zip(cells, values, strict=True):
                self._pipeline.arrays.set_meter(name, index, value)

        return restore

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.MeterEntry) -> None:
        """MODIFY one cell, or all cells of a meter when the index is left out; no config turns it green."""
        require(kind == p4r.Update.MODIFY, invalid, "meters can only be modified")
        meter = self._schema.meter(message.meter_id)
        _require_colourless(message)
        config = meters.decode(meter, message.config if message.HasField("config") else None)
        self._pipeline.arrays.set_meters(meter.preamble.name, self.cells(message), config)

    def read(self, pattern: p4r.MeterEntry) -> Iterator[p4r.Entity]:
        """Cells of one meter, or of all (id 0)."""
        _require_colourless(pattern)
        chosen: Iterable[p4i.Meter] = self._schema.meters.values()
        if pattern.meter_id:
            chosen = [self._schema.meter(pattern.meter_id)]
        for meter in chosen:
            for index in _indexes(meter.preamble.name, meter.size, pattern):
                entity = p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=meter.preamble.id))
                entity.meter_entry.index.index = index
                config = self._pipeline.arrays.meter(meter.preamble.name, index)
                if config is not None:
                    entity.meter_entry.config.CopyFrom(meters.encode(config))
                yield entity

    def state(self) -> Iterator[p4r.Entity]:
        """The cells that are configured."""
        for meter in self._schema.meters.values():
            for index, config in self._pipeline.arrays.configured_meters(meter.preamble.name).items():
                entity = p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=meter.preamble.id))
                entity.meter_entry.index.index = index
                entity.meter_entry.config.CopyFrom(meters.encode(config))
                yield entity


class Registers:
    """All registers of a pipeline."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Registers start at zero."""
        self._schema = schema
        self._pipeline = pipeline

    def cells(self, message: p4r.RegisterEntry) -> range:
        """The cells that a message names: one, or all if it names none."""
        register = self._schema.register(message.register_id)
        return _indexes(register.preamble.name, register.size, message)

    def keep(self, message: p4r.RegisterEntry) -> Callable[[], None]:
        """What brings back the cells that a message names."""
        name, cells = self._schema.register(message.register_id).preamble.name, self.cells(message)
        values = self._pipeline.arrays.registers(name, cells)

        def restore() -> None:
            self._pipeline.arrays.restore_registers(name, cells, values)

        return restore

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.RegisterEntry) -> None:
        """MODIFY one cell, or all cells of a register when the index is left out."""
        require(kind == p4r.Update.MODIFY, invalid, "registers can only be modified")
        register = self._schema.register(message.register_id)
        name = register.preamble.name
        what = f"register {name}"
        _require_plain(self._schema, register)
        [value] = p4data.decode(self._schema.p4info, register.type_spec, message.data, what)
        self._pipeline.arrays.set_registers(name, self.cells(message), value)

    def read(self, pattern: p4r.RegisterEntry) -> Iterator[p4r.Entity]:
        """Cells of one register, or of all (id 0)."""
        chosen: Iterable[p4i.Register] = self._schema.registers.values()
        if pattern.register_id:
            chosen = [self._schema.register(pattern.register_id)]
        for register in chosen:
            name = register.preamble.name
            _require_plain(self._schema, register)
            kind = register.type_spec.WhichOneof("type_spec")
            for block in blocks(_indexes(name, register.size, pattern)):
                cells = self._pipeline.arrays.registers(name, block)
                size = len(cells) // len(block)
                for place, index in enumerate(block):
                    entity = p4r.Entity()
                    entry = entity.register_entry
                    entry.register_id = register.preamble.id
                    entry.index.index = index
                    value = cells[place * size : (place + 1) * size].lstrip(b"\0") or b"\0"
                    if kind == "bool":
                        entry.data.bool = value != b"\0"
                    elif kind == "serializable_enum":
                        entry.data.enum_value = value
                    else:
                        entry.data.bitstring = value
                    yield entity


def _require_plain(schema: Schema, register: p4i.Register) -> None:
    """BMv2's registers hold one number in a cell."""
    name, widths = register.preamble.name, p4data.bitwidths(schema.p4info, register.type_spec)
    require(len(widths) == 1, invalid, f"register {name} holds {len(widths)} numbers in a cell, not one")
    require(widths[0], unimplemented, f"register {name} holds strings: nobody knows when a packet drops one")


def _require_colourless(message: p4r.MeterEntry) -> None:
    if message.HasField("counter_data"):
        raise meters.no_colours()


def _indexes(name: str, size: int, message: p4r.CounterEntry | p4r.MeterEntry | p4r.RegisterEntry) -> range:
    """The cells that a message names: one, or all if it names none."""
    if not message.HasField("index"):
        return range(size)
    index = message.index.index
    require(index >= 0, invalid, f"{name}: an index is 0 or more, not {index}")
    if index >= size:
        raise Refused(Code.OUT_OF_RANGE, f"{name} has indexes 0…{size - 1}, not {index}")
    return range(index, index + 1)
