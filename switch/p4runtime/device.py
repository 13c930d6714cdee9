# SPDX-License-Identifier: Apache-2.0
"""A loaded pipeline as P4Runtime sees it: entities that can be written and read."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from finsy.proto import p4r

from railweave.switch.errors import DuplicateEntry, ImmutableTable, InUse, OutOfRange, TableFull, UnknownEntry
from railweave.switch.p4runtime.arrays import Arrays, Counters, Meters, Registers
from railweave.switch.p4runtime.digests import Digests
from railweave.switch.p4runtime.direct import DirectEntries
from railweave.switch.p4runtime.errors import Code, Refused, invalid, require, unimplemented
from railweave.switch.p4runtime.packet_io import ControllerHeader
from railweave.switch.p4runtime.profiles import Profiles
from railweave.switch.p4runtime.replication import Replication
from railweave.switch.p4runtime.roles import p4_id
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.p4runtime.tables import Tables, monotonic_us
from railweave.switch.p4runtime.translation import Translation
from railweave.switch.p4runtime.value_sets import ValueSets
from railweave.switch.pipeline import Pipeline

_Update = p4r.Update
_Write = Callable[[p4r.Update.Type.ValueType, Any], None]
_Read = Callable[[Any], Iterator[p4r.Entity | None]]
_CODES: dict[type[Exception], tuple[Code, str | None]] = {  # with advice that differs from the code's
    UnknownEntry: (Code.NOT_FOUND, None),
    DuplicateEntry: (Code.ALREADY_EXISTS, None),
    TableFull: (Code.RESOURCE_EXHAUSTED, None),
    ImmutableTable: (Code.PERMISSION_DENIED, "modify only counters and meters of constant entries"),
    InUse: (Code.FAILED_PRECONDITION, "delete the entries and groups that refer to it"),
    OutOfRange: (Code.OUT_OF_RANGE, None),
    ValueError: (Code.INVALID_ARGUMENT, None),  # after those that are more special
}


@dataclass(frozen=True)
class Device:
    """One pipeline config and the state behind it."""

    config: p4r.ForwardingPipelineConfig
    pipeline: Pipeline
    schema: Schema
    tables: Tables
    direct: DirectEntries
    profiles: Profiles
    counters: Counters
    meters: Meters
    registers: Registers
    replication: Replication
    value_sets: ValueSets
    digests: Digests
    packet_in: ControllerHeader
    packet_out: ControllerHeader
    translation: Translation

    @classmethod
    def of(
        cls,
        config: p4r.ForwardingPipelineConfig,
        pipeline: Pipeline,
        clock_us: Callable[[], int] = monotonic_us,
    ) -> Device:
        """Serve a pipeline under its P4Info; Refused if they do not fit."""
        p4info = copy.deepcopy(config.p4info)
        schema = Schema.of(p4info, pipeline.program)
        tables = Tables(schema, pipeline, clock_us)
        translation = Translation(schema)
        for default in (False, True):
            translation.reserve(tables.read(p4r.TableEntry(is_default_action=default)))
        return cls(
            config=config,
            pipeline=pipeline,
            schema=schema,
            tables=tables,
            direct=DirectEntries(schema, tables),
            profiles=Profiles(schema, pipeline),
            counters=Counters(schema, pipeline),
            meters=Meters(schema, pipeline),
            registers=Registers(schema, pipeline),
            replication=Replication(pipeline),
            value_sets=ValueSets(schema, pipeline),
            digests=Digests(schema, translation.types),
            packet_in=ControllerHeader.of(p4info, "packet_in"),
            packet_out=ControllerHeader.of(p4info, "packet_out"),
            translation=translation,
        )

    def write(self, update: p4r.Update) -> None:
        """Carry out one update, or be Refused."""
        with _refusals(), self.translation.writing(update) as inward:
            self._write(inward)

    def snapshot(self) -> Device:
        """Return the present state that controllers have written, to be read only.

        Packets change cells and counters of entries later, except those that `copy_cells` keeps.
        """
        pipeline = self.pipeline.snapshot()
        tables = self.tables.snapshot(pipeline)
        return replace(
            self,
            pipeline=pipeline,
            tables=tables,
            direct=DirectEntries(self.schema, tables),
            profiles=Profiles(self.schema, pipeline),
            counters=self.counters.snapshot(),
            meters=self.meters.snapshot(),
            registers=self.registers.snapshot(),
            replication=self.replication.snapshot(),
            digests=self.digests.snapshot(),
            value_sets=ValueSets(self.schema, pipeline),
            translation=self.translation.snapshot(),
        )

    def copy_cells(self, patterns: Iterable[p4r.Entity]) -> Iterator[int]:
        """Keep the cells and counters that a snapshot's patterns ask for. Yield the bytes of each step."""
        for pattern in patterns:
            yield 0
            kind = pattern.WhichOneof("entity")
            counted = kind == "table_entry" and pattern.table_entry.HasField("counter_data")
            with contextlib.suppress(Refused):  # reading it is refused, too
                if counted or kind == "direct_counter_entry":
                    for table in self.schema.tables.chosen(p4_id(pattern) or 0):
                        yield from self.tables.copy_counters(table)
                elif array := self._array(kind):
                    yield from array.copy_cells(_content(pattern))

    def _write(self, update: p4r.Update) -> None:
        kind, entity = update.type, update.entity
        if kind not in (_Update.INSERT, _Update.MODIFY, _Update.DELETE):
            raise invalid(f"an update is INSERT, MODIFY or DELETE, not {kind}")
        write, _ = self._handler(entity)
        write(kind, _content(entity))

    @cached_property
    def _handlers(self) -> dict[str, tuple[_Write, _Read]]:
        """Return the functions that write and read entities, by kind of entity."""
        return {
            "table_entry": (self.tables.write, self.tables.read),
            "direct_counter_entry": (self.direct.write_counter, self.direct.read_counters),
            "direct_meter_entry": (self.direct.write_meter, self.direct.read_meters),
            "action_profile_member": (self.profiles.write_member, self.profiles.read_members),
            "action_profile_group": (self.profiles.write_group, self.profiles.read_groups),
            "counter_entry": (self.counters.write, self.counters.read),
            "meter_entry": (self.meters.write, self.meters.read),
            "register_entry": (self.registers.write, self.registers.read),
            "packet_replication_engine_entry": (self.replication.write, self.replication.read),
            "value_set_entry": (self.value_sets.write, self.value_sets.read),
            "digest_entry": (self.digests.write, self.digests.read),
        }

    def _handler(self, entity: p4r.Entity) -> tuple[_Write, _Read]:
        kind = entity.WhichOneof("entity")
        if kind is None:
            raise invalid("the update or request names no entity")
        require(kind in self._handlers, f"{kind} is not supported by this target", unimplemented)
        return self._handlers[kind]

    def read(self, pattern: p4r.Entity) -> Iterator[p4r.Entity]:
        """Yield everything that fits a pattern."""
        return (entity for entity in self.search(pattern) if entity is not None)

    def search(self, pattern: p4r.Entity) -> Iterator[p4r.Entity | None]:
        """Yield everything that fits a pattern, and None for everything else: one item per step."""
        if pattern.HasField("extern_entry") and not pattern.extern_entry.extern_type_id:
            return  # a wildcard for all extern types; this target supports no type
        _, read = self._handler(pattern)
        with _refusals():
            try:
                inward = self.translation.key(pattern)
            except Refused as refusal:
                if pattern.HasField("table_entry") and refusal.code is Code.NOT_FOUND:
                    return
                raise
            for entity in read(_content(inward)):
                yield entity and self.translation.outward(entity)

    def current(self, entity: p4r.Entity) -> Iterator[p4r.Entity]:
        """Yield the entities that an update would replace, complete enough to be written back."""
        if entity.WhichOneof("entity") == "table_entry":
            with _refusals():
                found = self.tables.current(self.translation.key(entity).table_entry)
            return iter([self.translation.outward(found)])
        return self.read(entity)

    def cells(self, entity: p4r.Entity) -> int:
        """Return how many cells of a counter, meter or register an update writes."""
        array = self._array(entity.WhichOneof("entity"))
        return len(array.cells(_content(entity))) if array else 0

    def keep_cells(self, entity: p4r.Entity) -> Callable[[], None]:
        """Return a function that restores the cells of a counter, meter or register that an update writes."""
        array = self._array(entity.WhichOneof("entity"))
        if array is None:
            raise ValueError("no cells")
        return array.keep(_content(entity))

    def _array(self, kind: str | None) -> Arrays | None:
        match kind:
            case "counter_entry":
                return self.counters
            case "meter_entry":
                return self.meters
            case "register_entry":
                return self.registers
        return None

    def expired(self, most: int) -> tuple[list[p4r.TableEntry], bool]:
        """Look at up to `most` entries. Return the keys of idle ones, and whether more are due."""
        entries, more = self.tables.expired(most)
        entities = (p4r.Entity(table_entry=entry) for entry in entries)
        return [self.translation.outward(entity).table_entry for entity in entities], more


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turn exceptions of the pipeline into refusals."""
    try:
        yield
    except tuple(_CODES) as error:
        code, do = next(found for kind, found in _CODES.items() if isinstance(error, kind))
        raise Refused(code, str(error.args[0]) if error.args else type(error).__name__, do) from None


def _content(entity: p4r.Entity) -> Any:
    return getattr(entity, str(entity.WhichOneof("entity")))
