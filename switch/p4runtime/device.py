# SPDX-License-Identifier: Apache-2.0
"""A loaded pipeline as P4Runtime sees it: entities that can be written and read."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from finsy.proto import p4r

from railweave.switch.errors import DuplicateEntry, ImmutableTable, InUse, OutOfRange, TableFull, UnknownEntry
from railweave.switch.p4runtime.arrays import Arrays, Counters, Meters, Registers
from railweave.switch.p4runtime.digests import Digests
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
    profiles: Profiles
    arrays: Mapping[str, Arrays]  # counters, meters and registers, by kind of entity
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
        schema = Schema(p4info, pipeline.program)
        tables = Tables(schema, pipeline, clock_us)
        translation = Translation(schema)
        for default in (False, True):
            translation.reserve(tables.read(p4r.TableEntry(is_default_action=default)))
        return cls(
            config=config,
            pipeline=pipeline,
            schema=schema,
            tables=tables,
            profiles=Profiles(schema, pipeline),
            arrays={
                "counter_entry": Counters(schema, pipeline),
                "meter_entry": Meters(schema, pipeline),
                "register_entry": Registers(schema, pipeline),
            },
            replication=Replication(schema, pipeline),
            value_sets=ValueSets(schema, pipeline),
            digests=Digests(schema, translation.types),
            packet_in=ControllerHeader.of(p4info, "packet_in"),
            packet_out=ControllerHeader.of(p4info, "packet_out"),
            translation=translation,
        )

    def write(self, update: p4r.Update) -> None:
        """Carry out one update, or be Refused."""
        timed = update.type != _Update.DELETE and update.entity.table_entry.HasField("time_since_last_hit")
        require(not timed, "time_since_last_hit is for reading")
        self.restore(update)

    def restore(self, update: p4r.Update) -> None:
        """Carry out an update that brings back an entry of `current`, with the time since its last hit."""
        with _refusals(), self.translation.writing(update) as inward:
            kind = inward.type
            if kind not in (_Update.INSERT, _Update.MODIFY, _Update.DELETE):
                raise invalid(f"an update is INSERT, MODIFY or DELETE, not {kind}")
            write, _ = self._handler(inward.entity)
            write(kind, _content(inward.entity))

    def snapshot(self) -> Device:
        """Return the present state that controllers have written, to be read only.

        Packets change cells and counters of entries later, except those that `copy_cells` keeps.
        """
        pipeline = self.pipeline.snapshot()
        return replace(
            self,
            pipeline=pipeline,
            tables=self.tables.snapshot(pipeline),
            profiles=self.profiles.snapshot(pipeline),
            arrays={kind: array.snapshot(pipeline) for kind, array in self.arrays.items()},
            replication=self.replication.snapshot(pipeline),
            value_sets=self.value_sets.snapshot(pipeline),
            digests=self.digests.snapshot(),
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
                elif array := self.arrays.get(str(kind)):
                    yield from array.copy_cells(_content(pattern))

    @cached_property
    def _handlers(self) -> dict[str, tuple[_Write, _Read]]:
        """Return the functions that write and read entities, by kind of entity."""
        return {
            "table_entry": (self.tables.write, self.tables.read),
            "direct_counter_entry": (self.tables.write_counter, self.tables.read_counters),
            "direct_meter_entry": (self.tables.write_meter, self.tables.read_meters),
            "action_profile_member": (self.profiles.write_member, self.profiles.read_members),
            "action_profile_group": (self.profiles.write_group, self.profiles.read_groups),
            **{kind: (array.write, array.read) for kind, array in self.arrays.items()},
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
        array = self.arrays.get(str(entity.WhichOneof("entity")))
        return len(array.cells(_content(entity))) if array else 0

    def keep_cells(self, entity: p4r.Entity) -> Callable[[], None]:
        """Return a function that restores the cells of a counter, meter or register that an update writes."""
        return self.arrays[str(entity.WhichOneof("entity"))].keep(_content(entity))

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
