# SPDX-License-Identifier: Apache-2.0
"""Indirect counters and registers: arrays that are read and modified by index, never inserted or deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from finsy.proto import p4d, p4i, p4r
from railweave.switch.p4runtime import bytestrings
from railweave.switch.p4runtime.errors import Code, Refused, invalid, require, unimplemented
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.pipeline import CounterValue, Pipeline


class Counters:
    """All indirect counters of a pipeline."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Counters start at zero."""
        self._schema = schema
        self._pipeline = pipeline

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.CounterEntry) -> None:
        """MODIFY one cell, or all cells of a counter when the index is left out."""
        require(kind == p4r.Update.MODIFY, invalid, "counters can only be modified")
        counter = self._schema.counter(message.counter_id)
        for index in _indexes(counter.preamble.name, counter.size, message):
            value = CounterValue(message.data.packet_count, message.data.byte_count)
            self._pipeline.set_counter(counter.preamble.name, index, value)

    def read(self, pattern: p4r.CounterEntry) -> Iterator[p4r.Entity]:
        """Cells of one counter, or of all (id 0)."""
        chosen = [self._schema.counter(pattern.counter_id)] if pattern.counter_id else self._all()
        for counter in chosen:
            name = counter.preamble.name
            for index in _indexes(name, counter.size, pattern):
                value = self._pipeline.counter(name, index)
                entity = p4r.Entity()
                entity.counter_entry.counter_id = counter.preamble.id
                entity.counter_entry.index.index = index
                entity.counter_entry.data.packet_count = value.packets
                entity.counter_entry.data.byte_count = value.bytes
                yield entity

    def _all(self) -> Iterable[p4i.Counter]:
        return self._schema.counters.values()


class Registers:
    """All registers of a pipeline whose cells are plain bit strings."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Registers start at zero."""
        self._schema = schema
        self._pipeline = pipeline

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.RegisterEntry) -> None:
        """MODIFY one cell, or all cells of a register when the index is left out."""
        require(kind == p4r.Update.MODIFY, invalid, "registers can only be modified")
        register = self._schema.register(message.register_id)
        name = register.preamble.name
        data = message.data.WhichOneof("data")
        require(data == "bitstring", invalid, f"register {name} holds a bitstring, not {data}")
        value = bytestrings.decode(message.data.bitstring, _bitwidth(register), f"register {name}")
        for index in _indexes(name, register.size, message):
            self._pipeline.set_register(name, index, value)

    def read(self, pattern: p4r.RegisterEntry) -> Iterator[p4r.Entity]:
        """Cells of one register, or of all (id 0)."""
        chosen: Iterable[p4i.Register] = self._schema.registers.values()
        if pattern.register_id:
            chosen = [self._schema.register(pattern.register_id)]
        for register in chosen:
            name = register.preamble.name
            _bitwidth(register)
            for index in _indexes(name, register.size, pattern):
                data = p4d.P4Data(bitstring=bytestrings.encode(self._pipeline.register(name, index)))
                entity = p4r.Entity(
                    register_entry=p4r.RegisterEntry(register_id=register.preamble.id, data=data)
                )
                entity.register_entry.index.index = index
                yield entity


def _bitwidth(register: p4i.Register) -> int:
    if register.type_spec.WhichOneof("type_spec") != "bitstring":
        raise unimplemented(f"register {register.preamble.name}: only bit<n> and int<n> cells are supported")
    bits = register.type_spec.bitstring
    return bits.bit.bitwidth or bits.int.bitwidth or bits.varbit.max_bitwidth


def _indexes(name: str, size: int, message: p4r.CounterEntry | p4r.RegisterEntry) -> range:
    if not message.HasField("index"):
        return range(size)
    index = message.index.index
    if not 0 <= index < size:
        raise Refused(Code.OUT_OF_RANGE, f"{name} has indexes 0…{size - 1}, not {index}")
    return range(index, index + 1)
