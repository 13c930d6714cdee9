# SPDX-License-Identifier: Apache-2.0
"""Indirect counters, meters and registers: arrays, read and modified by index, never inserted or deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime.cells import counter_value, encode_meter, meter_config, require_no_colours
from railweave.switch.p4runtime.errors import out_of_range, require, unimplemented
from railweave.switch.p4runtime.p4data import Plain, Types
from railweave.switch.p4runtime.schema import Entities, Kind, Schema
from railweave.switch.pipeline import CounterValue, MeterConfig, Pipeline

_BLOCK = 1024  # cells read from the engine at once
_COPY_BYTES = 200  # of memory for a copied counter or meter

_Block = Sequence[Any]  # cells in a row: counters and meters as a list, registers as the engine's bytes


class Arrays(Entities):
    """All arrays of one kind (`counter`, `meter` or `register`) of a pipeline."""

    _kind: str

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Serve the objects of a P4Info."""
        super().__init__(schema, pipeline)
        self._objects: dict[int, Any] = getattr(schema, f"{self._kind}s")
        self._read: Callable[[str, range], _Block] = getattr(pipeline.arrays, f"{self._kind}s")
        self._set: Callable[[str, range, Any], None] = getattr(pipeline.arrays, f"set_{self._kind}s")
        self._copies: dict[tuple[str, range], _Block] = {}  # of a snapshot

    def snapshot(self, pipeline: Pipeline) -> Self:
        """Return the same arrays, to be read only: `copy_cells` keeps cells as they are."""
        view = super().snapshot(pipeline)
        view._copies = {}
        return view

    def copy_cells(self, pattern: Any) -> Iterator[int]:
        """Keep the cells that fit a pattern as they are now. Yield the bytes of each step."""
        for one, block in self._blocks(pattern):
            if (one.preamble.name, block) not in self._copies:
                copied = self._read(one.preamble.name, block)
                self._copies[one.preamble.name, block] = copied
                yield len(copied) * (1 if isinstance(copied, bytes) else _COPY_BYTES)

    def cells(self, message: Any) -> range:
        """Return the cells that a message names: one, or all if it names none."""
        one = self._named(message)
        if not message.HasField("index"):
            return range(one.size)
        name, index = one.preamble.name, message.index.index
        require(index >= 0, f"{name}: an index is 0 or more, not {index}")
        require(index < one.size, f"{name} has indexes 0…{one.size - 1}, not {index}", out_of_range)
        return range(index, index + 1)

    def keep(self, message: Any) -> Callable[[], None]:
        """Return a function that brings back the cells that a message names."""
        name, cells = self._named(message).preamble.name, self.cells(message)
        values = list(self._split(self._read(name, cells), len(cells)))

        def restore() -> None:
            for index, value in zip(cells, values, strict=True):
                self._set(name, range(index, index + 1), value)

        return restore

    def write(self, kind: Kind, message: Any) -> None:
        """MODIFY one cell, or all cells of an array when the index is left out."""
        require(kind == p4r.Update.MODIFY, f"{self._kind}s can only be modified")
        one, cells = self._named(message), self.cells(message)
        self._check(one, message)
        value = self._decode(one, message)
        if value is not None or self._kind == "meter":  # a counter without data keeps its value
            self._set(one.preamble.name, cells, value)

    def read(self, pattern: Any) -> Iterator[p4r.Entity]:
        """Yield cells of one array, or all cells of all arrays (id 0)."""
        for one, block in self._blocks(pattern):
            self._check(one, pattern)
            cells = self._copies.get((one.preamble.name, block))
            if cells is None:
                cells = self._read(one.preamble.name, block)
            for index, value in zip(block, self._split(cells, len(block)), strict=True):
                entity = p4r.Entity()
                entry = getattr(entity, f"{self._kind}_entry")
                setattr(entry, f"{self._kind}_id", one.preamble.id)
                entry.index.index = index
                self._encode(one, value, entry)
                yield entity

    def _blocks(self, pattern: Any) -> Iterator[tuple[Any, range]]:
        """Yield the arrays and cells that a pattern names, in blocks."""
        number = getattr(pattern, f"{self._kind}_id")
        for one in [self._objects[number]] if number else self._objects.values():
            cells = self.cells(pattern) if number else range(one.size)
            for at in range(0, len(cells), _BLOCK):
                yield one, cells[at : at + _BLOCK]

    def _named(self, message: Any) -> Any:
        return self._objects[getattr(message, f"{self._kind}_id")]

    def _check(self, one: Any, message: Any) -> None:
        """Refuse a write or read that is not supported."""

    def _split(self, block: _Block, count: int) -> Iterable[Any]:
        """Return the values of `count` cells."""
        return block

    def _decode(self, one: Any, message: Any) -> Any:
        """Return the value that a message gives; Refused if a cell cannot hold it."""
        raise NotImplementedError

    def _encode(self, one: Any, value: Any, entry: Any) -> None:
        """Write a value into a message."""
        raise NotImplementedError


class Counters(Arrays):
    """Indirect counters. They start at 0."""

    _kind = "counter"

    def _decode(self, one: p4i.Counter, message: p4r.CounterEntry) -> CounterValue | None:
        return counter_value(message)

    def _encode(self, one: p4i.Counter, value: CounterValue, entry: p4r.CounterEntry) -> None:
        entry.data.packet_count, entry.data.byte_count = value


class Meters(Arrays):
    """Indirect meters. A cell without a config is green."""

    _kind = "meter"

    def _check(self, one: p4i.Meter, message: p4r.MeterEntry) -> None:
        require_no_colours(message)

    def _decode(self, one: p4i.Meter, message: p4r.MeterEntry) -> MeterConfig | None:
        return meter_config(one, message)

    def _encode(self, one: p4i.Meter, value: MeterConfig | None, entry: p4r.MeterEntry) -> None:
        if value is not None:
            entry.config.CopyFrom(encode_meter(value))


class Registers(Arrays):
    """Registers. Their cells hold one number each, as those of BMv2 do, and start at 0."""

    _kind = "register"

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Serve the registers of a P4Info."""
        super().__init__(schema, pipeline)
        types, program = Types(schema.p4info), pipeline.program.registers
        self._types: dict[int, Plain] = {}
        for number, one in self._objects.items():
            plain = types.plain(one.type_spec)
            if plain and plain.bitwidth:  # the program's width counts, also for translated types
                self._types[number] = replace(plain, bitwidth=program[one.preamble.name].width)

    def _check(self, one: p4i.Register, message: p4r.RegisterEntry) -> None:
        require(
            one.preamble.id in self._types,
            f"register {one.preamble.name} holds strings or a type with parts; only numbers are supported",
            unimplemented,
        )

    def _split(self, block: _Block, count: int) -> Iterator[int]:
        size = len(block) // max(count, 1)
        return (int.from_bytes(block[at : at + size], "big") for at in range(0, len(block), size))

    def _decode(self, one: p4i.Register, message: p4r.RegisterEntry) -> int:
        return self._types[one.preamble.id].take(message.data, f"register {one.preamble.name}")

    def _encode(self, one: p4i.Register, value: int, entry: p4r.RegisterEntry) -> None:
        self._types[one.preamble.id].put(value, entry.data)
