# SPDX-License-Identifier: Apache-2.0
"""A P4Info by id, checked against the program that it claims to describe."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from finsy.proto import p4i
from railweave.switch.p4runtime.errors import invalid, not_found, require
from railweave.switch.program import Program


class _Named(Protocol):
    @property
    def preamble(self) -> p4i.Preamble: ...


_T = TypeVar("_T", bound=_Named)


@dataclass(frozen=True)
class Schema:
    """The objects of a P4Info that the server serves, by id."""

    p4info: p4i.P4Info
    tables: dict[int, p4i.Table]
    actions: dict[int, p4i.Action]
    counters: dict[int, p4i.Counter]
    direct_counters: dict[int, p4i.DirectCounter]
    registers: dict[int, p4i.Register]

    @classmethod
    def of(cls, p4info: p4i.P4Info, program: Program) -> Schema:
        """Index a P4Info; Refused if the program lacks something that it lists."""
        schema = cls(
            p4info=p4info,
            tables=_by_id(p4info.tables),
            actions=_by_id(p4info.actions),
            counters=_by_id(p4info.counters),
            direct_counters=_by_id(p4info.direct_counters),
            registers=_by_id(p4info.registers),
        )
        _require_all("table", schema.tables.values(), program.tables)
        _require_all("counter", schema.counters.values(), program.counters)
        _require_all("register", schema.registers.values(), program.registers)
        for table in schema.tables.values():
            keys = len(program.tables[table.preamble.name].key)
            require(
                keys == len(table.match_fields),
                invalid,
                f"table {table.preamble.name} has {keys} key fields in the program, "
                f"{len(table.match_fields)} in the P4Info",
            )
            for reference in table.action_refs:
                require(
                    reference.id in schema.actions,
                    invalid,
                    f"table {table.preamble.name} refers to action {reference.id}, which the P4Info lacks",
                )
        return schema

    def table(self, table_id: int) -> p4i.Table:
        """The table with this id; Refused if there is none."""
        return _find("table", self.tables, table_id)

    def action(self, action_id: int) -> p4i.Action:
        """The action with this id; Refused if there is none."""
        return _find("action", self.actions, action_id)

    def counter(self, counter_id: int) -> p4i.Counter:
        """The indirect counter with this id; Refused if there is none."""
        return _find("counter", self.counters, counter_id)

    def register(self, register_id: int) -> p4i.Register:
        """The register with this id; Refused if there is none."""
        return _find("register", self.registers, register_id)

    def has_direct_counter(self, table: p4i.Table) -> bool:
        """Whether entries of the table count packets."""
        return any(resource in self.direct_counters for resource in table.direct_resource_ids)


def _by_id(objects: Iterable[_T]) -> dict[int, _T]:
    return {one.preamble.id: one for one in objects}


def _require_all(kind: str, objects: Iterable[_Named], names: Collection[str]) -> None:
    for one in objects:
        require(
            one.preamble.name in names,
            invalid,
            f"the P4Info has a {kind} {one.preamble.name!r} that the program lacks; compile both together",
        )


def _find(kind: str, objects: dict[int, _T], object_id: int) -> _T:
    found = objects.get(object_id)
    if found is None:
        raise not_found(f"no {kind} has id {object_id} in the P4Info")
    return found
