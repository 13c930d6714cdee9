# SPDX-License-Identifier: Apache-2.0
"""RECONCILE_AND_COMMIT: the forwarding state of one program written into the program that replaces it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime.arrays import blocks
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Refused, invalid
from railweave.switch.p4runtime.roles import p4_id
from railweave.switch.p4runtime.turns import Turns

_Object = TypeVar("_Object", p4i.Counter, p4i.Register, p4i.Table)


async def carry_over(old: Device, new: Device, turns: Turns) -> None:
    """Write what controllers have left in `old` into `new`, which is fresh; they may go on writing meanwhile.

    When this returns, `new` has all that was written until then but for counters and registers, which packets
    write, too: `carry_cells` brings them when no packet passes. Refused (INVALID_ARGUMENT) if something has
    no place in `new`; `old` is as it was in any case.
    """
    meanwhile: list[p4r.Update] = []
    old.followers.append(meanwhile)
    try:
        async for _ in turns.chunks(_writing(old, new, old.snapshot(), meanwhile)):
            pass
        while meanwhile:
            _write(old, new, meanwhile.pop(0))
        for update in old.meter_state():
            _write(old, new, update)
    finally:
        old.followers.remove(meanwhile)


def carry_cells(old: Device, new: Device) -> None:
    """Copy registers and counters as far as `new` has them. No packet may pass meanwhile."""
    for register in old.schema.registers.values():
        if room := _kept(register, new.schema.registers):
            for block in blocks(range(min(register.size, room.size))):
                _carry_registers(old, new, register.preamble.name, block)
    for counter in old.schema.counters.values():
        if place := _kept(counter, new.schema.counters):
            for block in blocks(range(min(counter.size, place.size))):
                _carry_counters(old, new, counter.preamble.name, block)
    for table in old.schema.tables.values():
        if _kept(table, new.schema.tables) and old.schema.has_direct_counter(table):
            _carry_direct_counters(old, new, table.preamble.name)


def _kept(one: _Object, there: Mapping[int, _Object]) -> _Object | None:
    """The same object of the new program, if it has it."""
    other = there.get(one.preamble.id)
    return other if other is not None and other.preamble.name == one.preamble.name else None


def _carry_registers(old: Device, new: Device, name: str, block: range) -> None:
    data, width = old.pipeline.arrays.registers(name, block), _width(new, name)
    if not data.strip(b"\0"):
        return  # as in the new program
    if width == _width(old, name):
        new.pipeline.arrays.restore_registers(name, block, data)
        return
    for index, value in _values(data, block):
        new.pipeline.arrays.set_register(name, index, value % (1 << width))


def _carry_counters(old: Device, new: Device, name: str, block: range) -> None:
    for index, count in zip(block, old.pipeline.arrays.counters(name, block), strict=True):
        if count.packets or count.bytes:
            new.pipeline.arrays.set_counter(name, index, count)


def _carry_direct_counters(old: Device, new: Device, name: str) -> None:
    for entry in old.pipeline.tables.entries(name):
        handle = new.pipeline.tables.same(name, entry)
        if handle is not None:
            new.pipeline.tables.set_direct_counter(
                name, handle, old.pipeline.tables.direct_counter(name, entry.handle)
            )


def _writing(old: Device, new: Device, view: Device, meanwhile: list[p4r.Update]) -> Iterator[None]:
    """Steps until `new` has all of `view`, a snapshot of `old`, and most of what was written meanwhile."""
    for update in view.state():
        _write(old, new, update)
        yield
    yield from _checking_cells(old, new)
    while meanwhile:
        _write(old, new, meanwhile.pop(0))
        yield


def _checking_cells(old: Device, new: Device) -> Iterator[None]:
    """Refuse counts and registers that are not 0 and have no place."""
    for register in old.schema.registers.values():
        name, room = register.preamble.name, _kept(register, new.schema.registers)
        width, size = (_width(new, name), room.size) if room else (0, 0)
        for block in blocks(range(register.size)):
            data = old.pipeline.arrays.registers(name, block)
            if any(value >> width or index >= size for index, value in _values(data, block) if value):
                raise _no_place(f"{name} has state and no place, or a smaller one")
            yield
    for counter in old.schema.counters.values():
        name, place = counter.preamble.name, _kept(counter, new.schema.counters)
        size = place.size if place else 0
        for block in blocks(range(counter.size)):
            counts = zip(block, old.pipeline.arrays.counters(name, block), strict=True)
            if any((count.packets or count.bytes) and index >= size for index, count in counts):
                raise _no_place(f"{name} has counted and has no place, or a smaller one")
            yield


def _values(data: bytes, block: range) -> Iterator[tuple[int, int]]:
    """Indexes and values of cells in a row; nothing if all are 0."""
    if not data.strip(b"\0"):
        return
    size = len(data) // len(block)
    for place, index in enumerate(block):
        yield index, int.from_bytes(data[place * size : (place + 1) * size], "big")


def _width(device: Device, register: str) -> int:
    return device.pipeline.program.registers[register].bitwidth


def _write(old: Device, new: Device, update: p4r.Update) -> None:
    if update.entity.WhichOneof("entity") in ("counter_entry", "register_entry"):
        return  # see carry_cells
    try:
        _require_same_object(old, new, update.entity)
        new.write(update)
    except Refused as refusal:
        raise _no_place(refusal.message) from None


def _no_place(why: str) -> Refused:
    return invalid(f"the new program cannot keep the forwarding state ({why}); VERIFY_AND_COMMIT clears it")


def _require_same_object(old: Device, new: Device, entity: p4r.Entity) -> None:
    """Refuse to take an object for another one that happens to have its id."""
    number = p4_id(entity)
    if number is None:
        return
    before, after = old.schema.names.get(number), new.schema.names.get(number)
    if before != after:
        raise invalid(f"{before} has state" + (f", and its id is now that of {after}" if after else ""))
