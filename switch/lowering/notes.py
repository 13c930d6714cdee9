# SPDX-License-Identifier: Apache-2.0
"""Trace notes: records with values, in the code of a second plan for traced packets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.fields import Field
from railweave.switch.lowering.values import Values


@dataclass(frozen=True)
class Note:
    """One kind of thing that happens at one place of the program.

    `kind` is a word such as `state`, `extract`, `set`; `name` is of what it happens to; `labels` name the
    values.
    """

    kind: str
    name: str
    labels: tuple[str, ...] = ()


@dataclass
class Noting(Values):
    """Appends notes to the code if it is for tracing."""

    notes: list[Note] | None = None

    def note(self, kind: str, name: str, values: Iterable[tuple[str, Expr]] = ()) -> None:
        """Record it, with the current values."""
        if self.notes is None:
            return
        labelled = list(values)
        for _, value in labelled:
            self._noted_value(value)
        self.op("NOTE", 0, self._number_of(Note(kind, name, tuple(label for label, _ in labelled))))

    def note_field(self, kind: str, member: Field) -> None:
        """Record a field with its current value."""
        if self.notes is None:
            return
        self.scope()  # what has been loaded before is an old value
        leaf = "variable" if member.variable else "field"
        value = self.graph.leaf(leaf, member, member.width, member.signed and not member.variable)
        self.note(kind, f"{member.header}.{member.name}", [("value", value)])
        self.scope()

    def note_lookup(self, table: int) -> None:
        """Record the table's result."""
        if self.notes is not None:
            self.op("NOTE_TABLE", 0, table)

    def note_validity(self, headers: Iterable[str]) -> None:
        """Record which of these headers will be emitted."""
        if self.notes is None:
            return
        names = []
        for name in headers:
            valid = self.fresh()
            self.op("LD_U8", valid, self.layout.validity[name])
            self.op("LOG_VALUE", valid, 0)
            names.append(name)
        self.op("NOTE", 0, self._number_of(Note("deparse", "", tuple(names))))

    def _noted_value(self, value: Expr) -> None:
        if value.fits64:
            self.op("LOG_VALUE", self.number(value), int(not value.fits_unsigned64))
        else:
            self.op("W_LOG_VALUE", self.wide(value))

    def _number_of(self, note: Note) -> int:
        assert self.notes is not None  # noqa: S101 - asked before
        self.notes.append(note)
        return len(self.notes) - 1
