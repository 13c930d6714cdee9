# SPDX-License-Identifier: Apache-2.0
"""Registers, counters and meters: arrays by name and index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from finsy.proto import p4d, p4i, p4r

from railweave.switch.errors import SwitchError
from railweave.switch.inspect import names
from railweave.switch.inspect.client import SwitchClient, Unsupported

Row = dict[str, Any]
_AT_ONCE = 4096  # most cells named singly in a request; for more, the whole array is read


def declared(client: SwitchClient, kind: str) -> list[Row]:
    """The arrays of a kind (register, counter, meter) that the program has, without their values."""
    return [
        {"name": one.preamble.alias or one.preamble.name, "size": one.size, "cells": _unit(one)}
        for one in _objects(client.p4info(), kind)
    ]


def cells(client: SwitchClient, kind: str, wanted: str, indexes: str | None) -> Row:
    """Cells of an array: {"name", "size", "first", "values"}; SwitchError for what is not there."""
    one = names.find(kind, _objects(client.p4info(), kind), wanted)
    name = one.preamble.alias or one.preamble.name
    chosen = names.span(indexes, one.size, f"{kind} {name}")
    whole = len(chosen) > _AT_ONCE or len(chosen) == one.size
    patterns = [_PATTERNS[kind](one.preamble.id, None if whole else index) for index in chosen]
    found: dict[int, Any] = {}
    try:
        for entity in client.read(patterns[:1] if whole else patterns):
            index, value = _VALUES[kind](entity)
            found[index] = value
    except Unsupported as error:
        raise SwitchError(
            f"this switch's P4Runtime server reads no {kind}s ({error}); BMv2's reads no registers"
        ) from None
    return {
        "name": name,
        "size": one.size,
        "cells": _unit(one),
        "first": chosen.start,
        "values": [found[index] for index in chosen if index in found],
    }


def _objects(p4info: p4i.P4Info, kind: str) -> Sequence[Any]:
    every: dict[str, Sequence[Any]] = {
        "register": p4info.registers,
        "counter": p4info.counters,
        "meter": p4info.meters,
    }
    return every[kind]


def _unit(one: p4i.Register | p4i.Counter | p4i.Meter) -> str:
    """The format of a cell."""
    if isinstance(one, p4i.Register):
        bits = one.type_spec.bitstring
        width = bits.bit.bitwidth or bits.int.bitwidth
        return f"{width} bits" if width else one.type_spec.WhichOneof("type_spec") or "?"
    if isinstance(one, p4i.Counter):
        return p4i.CounterSpec.Unit.Name(one.spec.unit).lower()
    return p4i.MeterSpec.Unit.Name(one.spec.unit).lower() + "/s"


def _register(number: int, index: int | None) -> p4r.Entity:
    entity = p4r.Entity(register_entry=p4r.RegisterEntry(register_id=number))
    if index is not None:
        entity.register_entry.index.index = index
    return entity


def _counter(number: int, index: int | None) -> p4r.Entity:
    entity = p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=number))
    if index is not None:
        entity.counter_entry.index.index = index
    return entity


def _meter(number: int, index: int | None) -> p4r.Entity:
    entity = p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=number))
    if index is not None:
        entity.meter_entry.index.index = index
    return entity


def _register_value(entity: p4r.Entity) -> tuple[int, int]:
    entry = entity.register_entry
    return entry.index.index, plain(entry.data)


def _counter_value(entity: p4r.Entity) -> tuple[int, Row]:
    entry = entity.counter_entry
    return entry.index.index, {"packets": entry.data.packet_count, "bytes": entry.data.byte_count}


def _meter_value(entity: p4r.Entity) -> tuple[int, Row | None]:
    entry = entity.meter_entry
    if not entry.HasField("config"):
        return entry.index.index, None
    return entry.index.index, {name: getattr(entry.config, name) for name in RATES}


def plain(data: p4d.P4Data) -> int:
    """The value of a P4Data message."""
    if data.WhichOneof("data") == "bool":
        return int(data.bool)
    return int.from_bytes(data.bitstring or data.enum_value, "big")


def runs(values: Iterable[int], first: int) -> list[tuple[int, int, int]]:
    """Runs of equal values: (first index, last index, value)."""
    found: list[tuple[int, int, int]] = []
    for index, value in enumerate(values, first):
        if found and found[-1][2] == value:
            found[-1] = (found[-1][0], index, value)
        else:
            found.append((index, index, value))
    return found


RATES = ("cir", "cburst", "pir", "pburst")
_PATTERNS: dict[str, Callable[[int, int | None], p4r.Entity]] = {
    "register": _register,
    "counter": _counter,
    "meter": _meter,
}
_VALUES: dict[str, Callable[[p4r.Entity], tuple[int, Any]]] = {
    "register": _register_value,
    "counter": _counter_value,
    "meter": _meter_value,
}
