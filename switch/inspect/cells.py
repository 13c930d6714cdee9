# SPDX-License-Identifier: Apache-2.0
"""Registers, counters and meters: arrays by name and index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from finsy.proto import p4d, p4i, p4r, p4t

from railweave.switch.errors import SwitchError
from railweave.switch.inspect import names
from railweave.switch.inspect.client import SwitchClient, Unsupported

Row = dict[str, Any]
RATES = ("cir", "cburst", "pir", "pburst")
_AT_ONCE = 4096  # most cells named singly in a request; for more, the whole array is read


def declared(client: SwitchClient, kind: str) -> list[Row]:
    """Return the arrays of a kind (register, counter, meter) that the program has, without values."""
    return [_shape(one) for one in getattr(client.p4info(), f"{kind}s")]


def cells(client: SwitchClient, kind: str, wanted: str, indexes: str | None) -> Row:
    """Return {"name", "size", "cells", "first", "values"} of an array; SwitchError if it is unknown."""
    one = names.find(kind, getattr(client.p4info(), f"{kind}s"), wanted)
    chosen = names.span(indexes, one.size, f"{kind} {names.of(one)}")
    whole = len(chosen) > _AT_ONCE or len(chosen) == one.size
    patterns = [_pattern(kind, one.preamble.id, index) for index in ([None] if whole else chosen)]
    found: dict[int, Any] = {}
    try:
        for entity in client.read(patterns):
            entry = getattr(entity, f"{kind}_entry")
            found[entry.index.index] = _value(kind, one, entry)
    except Unsupported as error:
        raise SwitchError(
            f"this switch's P4Runtime server reads no {kind}s ({error})",
            f"a server that reads {kind}s",
            "use --target embedded; BMv2 reads no registers",
        ) from None
    values = [found[index] for index in chosen if index in found]
    return {**_shape(one), "first": chosen.start, "values": values}


def _shape(one: p4i.Register | p4i.Counter | p4i.Meter) -> Row:
    """Return name and size of an array, and the format of a cell."""
    if isinstance(one, p4i.Register):
        bits = one.type_spec.bitstring
        width = bits.bit.bitwidth or bits.int.bitwidth
        unit = f"{width} bits" if width else one.type_spec.WhichOneof("type_spec") or "?"
    elif isinstance(one, p4i.Counter):
        unit = p4i.CounterSpec.Unit.Name(one.spec.unit).lower()
    else:
        unit = p4i.MeterSpec.Unit.Name(one.spec.unit).lower() + "/s"
    return {"name": names.of(one), "size": one.size, "cells": unit}


def _pattern(kind: str, number: int, index: int | None) -> p4r.Entity:
    entity = p4r.Entity()
    entry = getattr(entity, f"{kind}_entry")
    setattr(entry, f"{kind}_id", number)
    if index is not None:
        entry.index.index = index
    return entity


def _value(kind: str, one: Any, entry: Any) -> Any:
    """Return a cell in the form in which it is shown."""
    if kind == "register":
        return _number(one.type_spec, entry.data)
    if kind == "counter":
        return {"packets": entry.data.packet_count, "bytes": entry.data.byte_count}
    return rates(entry.config) if entry.HasField("config") else None


def rates(config: p4r.MeterConfig) -> Row:
    """Return the rates and bursts of a meter by name."""
    return {name: getattr(config, name) for name in RATES}


def _number(spec: p4t.P4DataTypeSpec, data: p4d.P4Data) -> int:
    """Return the value of a P4Data message."""
    if data.WhichOneof("data") == "bool":
        return int(data.bool)
    return int.from_bytes(data.bitstring or data.enum_value, "big", signed=spec.bitstring.HasField("int"))


def runs(values: Iterable[int], first: int) -> list[tuple[int, int, int]]:
    """Return runs of equal values: (first index, last index, value)."""
    found: list[tuple[int, int, int]] = []
    for index, value in enumerate(values, first):
        if found and found[-1][2] == value:
            found[-1] = (found[-1][0], index, value)
        else:
            found.append((index, index, value))
    return found
