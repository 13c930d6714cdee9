# SPDX-License-Identifier: Apache-2.0
"""Indirect counters, meters and registers: arrays, read and modified by index, never inserted or deleted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import meters, p4data
from railweave.switch.p4runtime.errors import out_of_range, require, unimplemented
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.p4runtime.tables import counter_value
from railweave.switch.pipeline import CounterValue, MeterConfig, Pipeline

_BLOCK = 1024  # cells read from the engine at once
_COPY_BYTES = 200  # of memory for a copied counter or meter

_Block = Sequence[Any]  # cells in a row: counters and meters as a list, registers as the engine's bytes


def blocks(cells: range) -> Iterator[range]:
    """Parts of a range that are read from the engine at once."""
    return (cells[at : at + _BLOCK] for at in range(0, len(cells), _BLOCK))


class Arrays:
    """All arrays of one kind (`counter`, `meter` or `register`) of a pipeline."""

    def __init__(
        self,
        kind: str,
        objects: Mapping[int, Any],
        read: Callable[[str, range], _Block],
        set_all: Callable[[str, range, Any], None],
    ) -> None:
        """`objects` by id, how to read cells, and how to write the same into cells.

        None is a method of this: it would keep this as long as this keeps it.
        """
        self._kind = kind
        self._objects = objects
        self._read = read
        self._set = set_all
        self._copies: dict[tuple[str, range], _Block] = {}  # of a snapshot

    def snapshot(self) -> Self:
        """Return the same arrays, to be read only: `copy_cells` keeps cells as they are."""
        view = copy.copy(self)
        view._copies = {}
        return view

    def copy_cells(self, pattern: Any) -> Iterator[int]:
        """Keep the cells that fit a pattern as they are now. Yield the bytes of each step."""
        for one in self._chosen(pattern):
            for block in blocks(_indexes(one, pattern)):
                if (one.preamble.name, block) not in self._copies:
                    copied = self._read(one.preamble.name, block)
                    self._copies[one.preamble.name, block] = copied
                    yield len(copied) * (1 if isinstance(copied, bytes) else _COPY_BYTES)

    def cells(self, message: Any) -> range:
        """The cells that a message names: one, or all if it names none."""
        return _indexes(self._named(message), message)

    def keep(self, message: Any) -> Callable[[], None]:
        """What brings back the cells that a message names."""
        name, cells = self._named(message).preamble.name, self.cells(message)
        values = list(self._split(self._read(name, cells), len(cells)))

        def restore() -> None:
            for index, value in zip(cells, values, strict=True):
                self._set(name, range(index, index + 1), value)

        return restore

    def write(self, kind: p4r.Update.Type.ValueType, message: Any) -> None:
        """MODIFY one cell, or all cells of an array when the index is left out."""
        require(kind == p4r.Update.MODIFY, f"{self._kind}s can only be modified")
        one = self._named(message)
        value = self._decode(one, message)
        self._set(one.preamble.name, _indexes(one, message), value)

    def read(self, pattern: Any) -> Iterator[p4r.Entity]:
        """Cells of one array, or of all (id 0)."""
        for one in self._chosen(pattern):
            self._check_read(one, pattern)
            for block in blocks(_indexes(one, pattern)):
                copied = self._copies.get((one.preamble.name, block))
                cells = self._read(one.preamble.name, block) if copied is None else copied
                for index, value in zip(block, self._split(cells, len(block)), strict=True):
                    yield self._entity(one, index, value)

    def _chosen(self, pattern: Any) -> Iterable[Any]:
        number = getattr(pattern, f"{self._kind}_id")
        return [self._objects[number]] if number else self._objects.values()

    @staticmethod
    def _split(block: _Block, count: int) -> Iterable[Any]:
        """Return the values of `count` cells."""
        return block

    def _named(self, message: Any) -> Any:
        return self._objects[getattr(message, f"{self._kind}_id")]

    def _entity(self, one: Any, index: int, value: Any) -> p4r.Entity:
        entity = p4r.Entity()
        entry = getattr(entity, f"{self._kind}_entry")
        setattr(entry, f"{self._kind}_id", one.preamble.id)
        entry.index.index = index
        self._encode(one, value, entry)
        return entity

    def _check_read(self, one: Any, pattern: Any) -> None:
        """Refuse what cannot be read."""

    def _decode(self, one: Any, message: Any) -> Any:
        """The value that a message gives; Refused if a cell cannot hold it."""
        raise NotImplementedError

    def _encode(self, one: Any, value: Any, entry: Any) -> None:
        """Write a value into a message."""
        raise NotImplementedError


class Counters(Arrays):
    """Indirect counters."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """All are 0."""
        arrays = pipeline.arrays
        super().__init__("counter", schema.counters, arrays.counters, arrays.set_counters)

    def _decode(self, one: p4i.Counter, message: p4r.CounterEntry) -> CounterValue:
        return counter_value(message.data)

    def _encode(self, one: p4i.Counter, value: CounterValue, entry: p4r.CounterEntry) -> None:
        entry.data.packet_count, entry.data.byte_count = value


class Meters(Arrays):
    """Indirect meters; a cell without a config is green."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """All are green."""
        self._arrays = pipeline.arrays
        super().__init__("meter", schema.meters, self._arrays.meters, self._arrays.set_meters)

    def _check_read(self, one: p4i.Meter, pattern: p4r.MeterEntry) -> None:
        if pattern.HasField("counter_data"):
            raise meters.no_colours()

    def _decode(self, one: p4i.Meter, message: p4r.MeterEntry) -> MeterConfig | None:
        self._check_read(one, message)
        return meters.decode(one, message.config if message.HasField("config") else None)

    def _encode(self, one: p4i.Meter, value: MeterConfig | None, entry: p4r.MeterEntry) -> None:
        if value is not None:
            entry.config.CopyFrom(meters.encode(value))


class Registers(Arrays):
    """Registers; their cells hold one number each, as BMv2's do."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """All are 0."""
        self._schema = schema
        self._arrays = pipeline.arrays
        super().__init__("register", schema.registers, self._arrays.registers, self._arrays.set_registers)

    def keep(self, message: p4r.RegisterEntry) -> Callable[[], None]:
        """What brings back the cells that a message names."""
        name, cells = self._named(message).preamble.name, self.cells(message)
        data = self._arrays.registers(name, cells)
        return lambda: self._arrays.restore_registers(name, cells, data)

    @staticmethod
    def _split(block: _Block, count: int) -> Iterable[bytes]:
        size = len(block) // count
        return (bytes(block[at : at + size]).lstrip(b"\0") or b"\0" for at in range(0, len(block), size))

    def _check_read(self, one: p4i.Register, pattern: p4r.RegisterEntry) -> None:
        name, widths = one.preamble.name, p4data.bitwidths(self._schema.p4info, one.type_spec)
        require(len(widths) == 1, f"register {name} holds {len(widths)} numbers in a cell, not one")
        reason = "nobody knows when a packet drops one"
        require(widths[0], f"register {name} holds strings: {reason}", unimplemented)

    def _decode(self, one: p4i.Register, message: p4r.RegisterEntry) -> int:
        self._check_read(one, message)
        what = f"register {one.preamble.name}"
        [value] = p4data.decode(self._schema.p4info, one.type_spec, message.data, what)
        return value

    def _encode(self, one: p4i.Register, value: bytes, entry: p4r.RegisterEntry) -> None:
        match one.type_spec.WhichOneof("type_spec"):
            case "bool":
                entry.data.bool = value != b"\0"
            case "serializable_enum":
                entry.data.enum_value = value
            case _:
                entry.data.bitstring = value


def _indexes(one: Any, message: Any) -> range:
    """The cells of an array that a message names: one, or all if it names none."""
    if not message.HasField("index"):
        return range(one.size)
    name, index = one.preamble.name, message.index.index
    require(index >= 0, f"{name}: an index is 0 or more, not {index}")
    require(index < one.size, f"{name} has indexes 0…{one.size - 1}, not {index}", out_of_range)
    return range(index, index + 1)
