# SPDX-License-Identifier: Apache-2.0
"""A P4Info by id, checked against the program that it claims to describe."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from finsy.proto import p4i

from railweave.switch.p4runtime import p4data
from railweave.switch.p4runtime.errors import invalid, not_found, require, unimplemented
from railweave.switch.program import Program, TableInfo


class _Named(Protocol):
    @property
    def preamble(self) -> p4i.Preamble: ...


class _Sized(Protocol):
    @property
    def preamble(self) -> p4i.Preamble: ...
    @property
    def size(self) -> int: ...


class _Cells(Protocol):
    @property
    def size(self) -> int: ...


_T = TypeVar("_T", bound=_Named)


@dataclass(frozen=True)
class Schema:
    """The objects of a P4Info that the server serves, by id."""

    p4info: p4i.P4Info
    names: dict[int, str]  # of all objects
    tables: dict[int, p4i.Table]
    actions: dict[int, p4i.Action]
    profiles: dict[int, p4i.ActionProfile]
    counters: dict[int, p4i.Counter]
    direct_counters: dict[int, p4i.DirectCounter]
    meters: dict[int, p4i.Meter]
    direct_meters: dict[int, p4i.DirectMeter]
    registers: dict[int, p4i.Register]
    value_sets: dict[int, p4i.ValueSet]
    digests: dict[int, p4i.Digest]
    strings: dict[str, int]  # types that are translated to strings: bits in the program, 0 if it has none

    @classmethod
    def of(cls, p4info: p4i.P4Info, program: Program) -> Schema:
        """Index a P4Info; Refused if the program lacks something that it lists, or has it otherwise."""
        names: dict[int, str] = {}
        schema = cls(
            p4info=p4info,
            names=names,
            tables=_by_id(p4info.tables, names),
            actions=_by_id(p4info.actions, names),
            profiles=_by_id(p4info.action_profiles, names),
            counters=_by_id(p4info.counters, names),
            direct_counters=_by_id(p4info.direct_counters, names),
            meters=_by_id(p4info.meters, names),
            direct_meters=_by_id(p4info.direct_meters, names),
            registers=_by_id(p4info.registers, names),
            value_sets=_by_id(p4info.value_sets, names),
            digests=_by_id(p4info.digests, names),
            strings={
                name: 0
                for name, new in p4info.type_info.new_types.items()
                if new.translated_type.HasField("sdn_string")
            },
        )
        _require_all("table", schema.tables.values(), program.tables)
        _require_all("action profile", schema.profiles.values(), program.profiles)
        _require_all("register", schema.registers.values(), program.registers)
        _require_cells("counter", schema.counters.values(), program.counters)
        _require_cells("meter", schema.meters.values(), program.meters)
        _require_cells("register", schema.registers.values(), program.registers)
        for table in schema.tables.values():
            schema._check_table(table, program.tables[table.preamble.name])
        for digest in schema.digests.values():
            schema._check_digest(digest, program)
        schema._measure_strings(program)
        return schema

    def table(self, table_id: int) -> p4i.Table:
        """The table with this id; Refused if there is none."""
        return _find("table", self.tables, table_id)

    def action(self, action_id: int) -> p4i.Action:
        """The action with this id; Refused if there is none."""
        return _find("action", self.actions, action_id)

    def profile(self, profile_id: int) -> p4i.ActionProfile:
        """The action profile with this id; Refused if there is none."""
        return _find("action profile", self.profiles, profile_id)

    def counter(self, counter_id: int) -> p4i.Counter:
        """The indirect counter with this id; Refused if there is none."""
        return _find("counter", self.counters, counter_id)

    def meter(self, meter_id: int) -> p4i.Meter:
        """The indirect meter with this id; Refused if there is none."""
        return _find("meter", self.meters, meter_id)

    def register(self, register_id: int) -> p4i.Register:
        """The register with this id; Refused if there is none."""
        return _find("register", self.registers, register_id)

    def value_set(self, value_set_id: int) -> p4i.ValueSet:
        """The value set with this id; Refused if there is none."""
        return _find("value set", self.value_sets, value_set_id)

    def digest(self, digest_id: int) -> p4i.Digest:
        """The digest with this id; Refused if there is none."""
        return _find("digest", self.digests, digest_id)

    def has_direct_counter(self, table: p4i.Table) -> bool:
        """Whether entries of the table count packets."""
        return any(resource in self.direct_counters for resource in table.direct_resource_ids)

    def direct_meter(self, table: p4i.Table) -> p4i.DirectMeter | None:
        """The meter of the table's entries, if they have one."""
        return next(
            (self.direct_meters[r] for r in table.direct_resource_ids if r in self.direct_meters), None
        )

    def _check_table(self, table: p4i.Table, info: TableInfo) -> None:
        name = table.preamble.name
        require(
            len(info.key) == len(table.match_fields),
            invalid,
            f"table {name} has {len(info.key)} key fields in the program, "
            f"{len(table.match_fields)} in the P4Info",
        )
        for field, key in zip(table.match_fields, info.key, strict=True):
            self._check_width(f"field {field.name} of table {name}", field, key.bitwidth)
        profile = self.profiles.get(table.implementation_id)
        require(
            (profile.preamble.name if profile else None) == info.profile,
            invalid,
            f"table {name} is implemented by {info.profile or 'no action profile'} in the program, but by "
            f"{table.implementation_id or 'none'} in the P4Info",
        )
        require(
            not self.has_direct_counter(table) or info.direct_counter,
            invalid,
            f"the P4Info gives table {name} a direct counter that the program lacks",
        )
        require(
            self.direct_meter(table) is None or info.direct_meter is not None,
            invalid,
            f"the P4Info gives table {name} a direct meter that the program lacks",
        )
        for reference in table.action_refs:
            require(
                reference.id in self.actions,
                invalid,
                f"table {name} refers to action {reference.id}, which the P4Info lacks",
            )
            self._check_action(self.actions[reference.id], info)

    def _check_action(self, action: p4i.Action, table: TableInfo) -> None:
        name = action.preamble.name
        found = next((known for known in table.actions if known.name == name), None)
        require(found, invalid, f"table {table.name} has no action {name} in the program")
        widths = [parameter.bitwidth for parameter in found.parameters] if found else []
        require(
            len(widths) == len(action.params),
            invalid,
            f"action {name} has {len(widths)} parameters in the program, {len(action.params)} in the P4Info",
        )
        for param, width in zip(action.params, widths, strict=True):
            self._check_width(f"parameter {param.name} of action {name}", param, width)

    def _check_width(self, what: str, described: p4i.MatchField | p4i.Action.Param, width: int) -> None:
        """The widths agree, or the type is translated: then the program's counts."""
        require(
            described.bitwidth == width or described.HasField("type_name"),
            invalid,
            f"{what} has {width} bits in the program, {described.bitwidth} in the P4Info",
        )
        described.bitwidth = width
        name = described.type_name.name
        if name in self.strings:
            known = self.strings[name] or width
            require(known == width, invalid, f"{what} has {width} bits, but {name} has {known} elsewhere")
            self.strings[name] = width
            kind = getattr(described, "match_type", p4i.MatchField.EXACT)
            require(
                kind in (p4i.MatchField.EXACT, p4i.MatchField.OPTIONAL),
                unimplemented,
                f"{what}: strings, as {name} has them, match exactly (EXACT, OPTIONAL) or not at all",
            )

    def _measure_strings(self, program: Program) -> None:
        """Set how many bits stand for the strings of value sets and controller headers."""
        for one in self.value_sets.values():
            if known := program.value_sets.get(one.preamble.name):
                for field, key in zip(one.match, known.key, strict=False):
                    if field.type_name.name in self.strings:
                        self._check_width(f"field {field.id} of {one.preamble.name}", field, key.bitwidth)
        for header in self.p4info.controller_packet_metadata:
            for part in header.metadata:
                name = part.type_name.name
                if name in self.strings:  # the program does not tell which of its headers this is
                    part.bitwidth = self.strings[name]
                    what = f"{header.preamble.name}.{part.name}"
                    require(part.bitwidth, invalid, f"{what}: no table says how many bits {name} has")

    def _check_digest(self, digest: p4i.Digest, program: Program) -> None:
        name = digest.preamble.name
        known = {info.name: info for info in program.digests.values()}
        require(name in known, invalid, f"the P4Info has a digest {name!r} that the program lacks")
        described, carried = p4data.bitwidths(self.p4info, digest.type_spec), known[name].bitwidths
        require(
            len(described) == len(carried),
            invalid,
            f"digest {name} has {len(carried)} fields in the program, {len(described)} in the P4Info",
        )


def _by_id(objects: Iterable[_T], names: dict[int, str]) -> dict[int, _T]:
    found: dict[int, _T] = {}
    for one in objects:
        number, name = one.preamble.id, one.preamble.name
        require(number != 0, invalid, f"{name!r} has the id 0 in the P4Info, which stands for none")
        require(number not in names, invalid, f"{name!r} and {names.get(number)!r} share the id {number}")
        names[number] = name
        found[number] = one
    return found


def _require_all(kind: str, objects: Iterable[_Named], names: Collection[str]) -> None:
    for one in objects:
        require(
            one.preamble.name in names,
            invalid,
            f"the P4Info has a {kind} {one.preamble.name!r} that the program lacks; compile both together",
        )


def _require_cells(kind: str, objects: Iterable[_Sized], cells: Mapping[str, _Cells]) -> None:
    objects = list(objects)
    _require_all(kind, objects, cells)
    for one in objects:
        name = one.preamble.name
        require(
            one.size == cells[name].size,
            invalid,
            f"{kind} {name} has {cells[name].size} cells in the program, {one.size} in the P4Info",
        )


def _find(kind: str, objects: dict[int, _T], object_id: int) -> _T:
    found = objects.get(object_id)
    if found is None:
        raise not_found(f"no {kind} has id {object_id} in the P4Info")
    return found
