# SPDX-License-Identifier: Apache-2.0
"""RECONCILE_AND_COMMIT: the forwarding state of one program written into the program that replaces it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeVar

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime.arrays import blocks
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Refused, invalid
from railweave.switch.p4runtime.roles import p4_id

_Object = TypeVar("_Object", p4i.Counter, p4i.Register, p4i.Table)
_Array = TypeVar("_Array", p4i.Counter, p4i.Register)
_BLOCKS_AT_ONCE = 64  # of 4 KiB and more: packets wait so long
_PASSES = 4


class Handover:
    """Writes what `old` holds into `new`, which is fresh, while controllers and packets go on writing `old`.

    First `steps`, then without a pause `last_writes` and, while no packet passes, `last_cells`.
    """

    def __init__(self, old: Device, new: Device) -> None:
        """Nothing is followed before the `with` begins."""
        self._old = old
        self._new = new
        self._meanwhile: list[p4r.Update] = []
        self._registers = _sizes(old.schema.registers, new.schema.registers)
        self._counters = _sizes(old.schema.counters, new.schema.counters)
        self._paired: dict[str, dict[int, int]] = {  # by table: handles of entries that both have
            table.preamble.name: {}
            for table in old.schema.tables.values()
            if old.schema.has_direct_counter(table)
            and (there := _kept(table, new.schema.tables))
            and new.schema.has_direct_counter(there)
        }

    def __enter__(self) -> Handover:
        """Follow what is written."""
        self._old.followers.append(self._meanwhile)
        self._new.translation.prefer(self._old.translation)  # registers may hold the numbers
        self._blocks = self._old.pipeline.arrays.track_cells()
        return self

    def __exit__(self, *_: object) -> None:
        """Follow no longer."""
        self._old.pipeline.arrays.untrack_cells()
        self._old.followers.remove(self._meanwhile)
        self._new.translation.prefer(None)

    def steps(self) -> Iterator[None]:
        """Bring over nearly everything.

        Refused (INVALID_ARGUMENT) if something has no place in `new`; `old` is as it was in any case.
        """
        old, new = self._old, self._new
        for update in chain(old.snapshot().state(), old.meter_state()):
            _write(old, new, update)
            yield
        yield from _checking_cells(old, new)
        yield from self._pairing()
        # Where packets write as fast as this copies, the rest is for `last_cells`.
        for _ in range(_PASSES * self._blocks // _BLOCKS_AT_ONCE + 1):
            if self._carry():
                break
            yield
        while self._meanwhile:
            _write(old, new, self._meanwhile.pop(0))
            yield
        yield from self._pairing()

    def last_writes(self) -> None:
        """Bring over what controllers have written since; nothing if another turn came before this one."""
        while self._meanwhile:
            _write(self._old, self._new, self._meanwhile.pop(0))
        for _ in self._pairing():
            pass

    def last_cells(self) -> None:
        """Bring over what packets have written since. None may pass meanwhile."""
        while not self._carry():
            pass
        for table, paired in self._paired.items():
            there = self._new.pipeline.tables[table]
            self._old.pipeline.tables[table].carry_direct_counters(there, paired)

    def _carry(self) -> bool:
        old, new = self._old.pipeline.arrays, self._new.pipeline.arrays
        return old.carry_cells(new, self._registers, self._counters, _BLOCKS_AT_ONCE)

    def _pairing(self) -> Iterator[None]:
        tables = {table.preamble.name: table for table in self._old.schema.tables.values()}
        for table, paired in self._paired.items():
            for entry in self._old.pipeline.tables[table].unpaired(paired):
                handle = self._old.same(tables[table], entry, self._new)
                if handle is not None:
                    paired[entry.handle] = handle
                yield


def _sizes(ours: Mapping[int, _Array], theirs: Mapping[int, _Array]) -> dict[str, int]:
    """How many cells of each array the new program keeps."""
    kept = ((one, _kept(one, theirs)) for one in ours.values())
    return {one.preamble.name: min(one.size, there.size) for one, there in kept if there}


def _kept(one: _Object, there: Mapping[int, _Object]) -> _Object | None:
    """The same object of the new program, if it has it."""
    other = there.get(one.preamble.id)
    return other if other is not None and other.preamble.name == one.preamble.name else None


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
        return  # cells are carried in blocks
    try:
        _require_same_object(old, new, update.entity)
        new.write(update)
    except Refused as refusal:
        raise _no_place(refusal.message) from None


def _no_place(why: str) -> Refused:
    return invalid(
        f"the new program cannot keep the forwarding state ({why})", "VERIFY_AND_COMMIT, which clears it"
    )


def _require_same_object(old: Device, new: Device, entity: p4r.Entity) -> None:
    """Refuse to take an object for another one that happens to have its id."""
    number = p4_id(entity)
    if number is None:
        return
    before, after = old.schema.names.get(number), new.schema.names.get(number)
    if before != after:
        raise invalid(f"{before} has state" + (f", and its id is now that of {after}" if after else ""))
