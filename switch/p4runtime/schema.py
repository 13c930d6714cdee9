# SPDX-License-Identifier: Apache-2.0
"""A P4Info by id, checked against the program that it claims to describe."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime.errors import not_found, require, unimplemented
from railweave.switch.p4runtime.p4data import Types
from railweave.switch.program import Program, TableInfo

if TYPE_CHECKING:
    from railweave.switch.pipeline import Pipeline

Kind: TypeAlias = "p4r.Update.Type.ValueType"  # INSERT, MODIFY or DELETE


class Named(Protocol):
    """The objects of a P4Info."""

    @property
    def preamble(self) -> p4i.Preamble:
        """Return the object's id, name and alias."""
        ...


_T = TypeVar("_T", bound=Named)


class _Objects(dict[int, _T]):
    """Objects of one kind by id; Refused for an id that the P4Info lacks."""

    def __init__(self, kind: str, objects: Iterable[_T], names: dict[int, str]) -> None:
        """Add to the names of all objects; Refused for an id that is 0 or taken."""
        super().__init__()
        self._kind = kind
        for one in objects:
            number, name = one.preamble.id, one.preamble.name
            require(number != 0, f"{name!r} has the id 0 in the P4Info, which stands for none")
            require(number not in names, f"{name!r} and {names.get(number)!r} share the id {number}")
            names[number] = name
            self[number] = one

    def __missing__(self, number: int) -> _T:
        """Refuse an id that the P4Info lacks."""
        raise not_found(f"no {self._kind} has id {number} in the P4Info")

    def chosen(self, number: int) -> list[_T]:
        """Return the objects that a pattern's id names: one object, or all (0)."""
        return [self[number]] if number else list(self.values())

    def require_present(self, known: Mapping[str, Any]) -> None:
        """Refuse objects that the program lacks, or has with another size."""
        for one in self.values():
            name = one.preamble.name
            lacks = f"the P4Info has a {self._kind} {name!r} that the program lacks; compile both together"
            require(name in known, lacks)
            if isinstance(one, p4i.Counter | p4i.Meter | p4i.Register):
                _require_equal(f"{self._kind} {name}", "cells", known[name].size, one.size)


class Schema:
    """The objects of a P4Info that the server serves, by id."""

    def __init__(self, p4info: p4i.P4Info, program: Program) -> None:
        """Index a P4Info; Refused if the program lacks something that it lists, or has it otherwise."""
        self.p4info = p4info
        self.names: dict[int, str] = {}  # of all objects
        self.tables = _Objects("table", p4info.tables, self.names)
        self.actions = _Objects("action", p4info.actions, self.names)
        self.profiles = _Objects("action profile", p4info.action_profiles, self.names)
        self.counters = _Objects("counter", p4info.counters, self.names)
        self.direct_counters = _Objects("direct counter", p4info.direct_counters, self.names)
        self.meters = _Objects("meter", p4info.meters, self.names)
        self.direct_meters = _Objects("direct meter", p4info.direct_meters, self.names)
        self.registers = _Objects("register", p4info.registers, self.names)
        self.value_sets = _Objects("value set", p4info.value_sets, self.names)
        self.digests = _Objects("digest", p4info.digests, self.names)
        new_types = p4info.type_info.new_types
        # Types that controllers see otherwise: bits in the program, 0 if no table has it.
        self.translated = {name: 0 for name, new in new_types.items() if new.HasField("translated_type")}
        present: tuple[tuple[_Objects[Any], Mapping[str, Any]], ...] = (
            (self.tables, program.tables),
            (self.profiles, program.profiles),
            (self.counters, program.counters),
            (self.meters, program.meters),
            (self.registers, program.registers),
            (self.digests, {info.name: info for info in program.digests.values()}),
        )
        for objects, known in present:
            objects.require_present(known)
        for table in self.tables.values():
            self._check_table(table, program.tables[table.preamble.name])
        fields = {info.name: len(info.bitwidths) for info in program.digests.values()}
        for digest in self.digests.values():
            name, leaves = digest.preamble.name, Types(p4info).leaves(digest.type_spec)
            _require_equal(f"digest {name}", "fields", fields[name], leaves)
        self._measure_translated(program)

    @property
    def strings(self) -> dict[str, int]:
        """Return the types that are translated to strings, with their bits in the program."""
        new_types = self.p4info.type_info.new_types
        return {
            name: bitwidth
            for name, bitwidth in self.translated.items()
            if new_types[name].translated_type.HasField("sdn_string")
        }

    def direct(self, kind: str, table: p4i.Table) -> Any:
        """Return the direct counter or meter (`kind`) of the table's entries; None if they have none."""
        objects: _Objects[Any] = getattr(self, f"direct_{kind}s")
        return next((objects[number] for number in table.direct_resource_ids if number in objects), None)

    def _check_table(self, table: p4i.Table, info: TableInfo) -> None:
        name = table.preamble.name
        _require_equal(f"table {name}", "key fields", len(info.key), len(table.match_fields))
        for field, key in zip(table.match_fields, info.key, strict=True):
            self._check_width(f"field {field.name} of table {name}", field, key.bitwidth)
        profile = self.profiles.get(table.implementation_id)
        require(
            (profile.preamble.name if profile else None) == info.profile,
            f"table {name} is implemented by {info.profile or 'no action profile'} in the program, but by "
            f"{table.implementation_id or 'none'} in the P4Info",
        )
        for kind, has in (("counter", info.direct_counter), ("meter", info.direct_meter is not None)):
            lacks = f"the P4Info gives table {name} a direct {kind} that the program lacks"
            require(has or self.direct(kind, table) is None, lacks)
        known = {action.name: action.parameters for action in info.actions}
        for number in (reference.id for reference in table.action_refs):
            require(number in self.actions, f"table {name} refers to action {number}, which the P4Info lacks")
            action, params = self.actions[number].preamble.name, self.actions[number].params
            require(action in known, f"table {name} has no action {action} in the program")
            _require_equal(f"action {action}", "parameters", len(known[action]), len(params))
            for param, parameter in zip(params, known[action], strict=True):
                self._check_width(f"parameter {param.name} of action {action}", param, parameter.bitwidth)

    def _check_width(self, what: str, described: p4i.MatchField | p4i.Action.Param, width: int) -> None:
        """Refuse different widths. The width of a translated type is the program's."""
        if not described.HasField("type_name"):
            _require_equal(what, "bits", width, described.bitwidth)
        described.bitwidth = width
        name = described.type_name.name
        if name in self.translated:
            known = self.translated[name] or width
            require(known == width, f"{what} has {width} bits, but {name} has {known} elsewhere")
            self.translated[name] = width
        if name in self.strings:
            kind = getattr(described, "match_type", p4i.MatchField.EXACT)
            require(
                kind in (p4i.MatchField.EXACT, p4i.MatchField.OPTIONAL),
                f"{what}: strings, as {name} has them, match exactly (EXACT, OPTIONAL) or not at all",
                unimplemented,
            )

    def _measure_translated(self, program: Program) -> None:
        """Set how many bits the translated types of value sets and controller headers have in the program."""
        for one in self.value_sets.values():
            if known := program.value_sets.get(one.preamble.name):
                for field, key in zip(one.match, known.key, strict=False):
                    if field.type_name.name in self.translated:
                        self._check_width(f"field {field.id} of {one.preamble.name}", field, key.bitwidth)
        for header in self.p4info.controller_packet_metadata:
            for part in header.metadata:
                name = part.type_name.name
                # The program does not say which of its headers this is.
                part.bitwidth = self.translated.get(name) or part.bitwidth
                what = f"{header.preamble.name}.{part.name}"
                require(
                    part.bitwidth or name not in self.strings,
                    f"{what}: no table says how many bits {name} has",
                )


def _require_equal(what: str, parts: str, program: int, described: int) -> None:
    require(program == described, f"{what} has {program} {parts} in the program, {described} in the P4Info")


class Entities:
    """Entities of a pipeline, as P4Runtime writes and reads them."""

    def __init__(self, schema: Schema, pipeline: Pipeline) -> None:
        """Serve a pipeline under its P4Info."""
        self._schema = schema
        self._pipeline = pipeline

    def snapshot(self, pipeline: Pipeline) -> Self:
        """Return the entities of a pipeline's snapshot, to be read only."""
        view = copy.copy(self)
        view._pipeline = pipeline
        return view
