# SPDX-License-Identifier: Apache-2.0
"""Trace notes: records with values, in the code of a second plan for traced packets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from railweave.switch.lowering.code import Code, Note
from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.fields import Field
from railweave.switch.lowering.values import compute, compute_wide


def note(out: Code, kind: str, name: str, values: Iterable[tuple[str, Expr]] = ()) -> None:
    """Record an event of the program, with the current values."""
    if out.notes is None:
        return
    labels = []
    for label, value in values:
        labels.append(label)
        log_value(out, value)
    _note(out, Note(kind, name, tuple(labels)))


def note_field(out: Code, kind: str, member: Field) -> None:
    """Record a field with its current value."""
    if out.notes is None:
        return
    out.scope()  # load the field again: a temporary may hold its old value
    leaf = "variable" if member.variable else "field"
    value = out.graph.leaf(leaf, member, member.width, member.signed and not member.variable)
    note(out, kind, f"{member.header}.{member.name}", [("value", value)])
    out.scope()


def note_validity(out: Code, headers: Sequence[str]) -> None:
    """Record which of these headers will be emitted."""
    if out.notes is None:
        return
    for name in headers:
        valid = out.fresh()
        out.op("LD_U8", valid, out.layout.validity[name])
        out.op("LOG_VALUE", valid, 0)
    _note(out, Note("deparse", "", tuple(headers)))


def log_value(out: Code, value: Expr) -> None:
    """Give a value to the next message or note."""
    if value.fits64:
        out.op("LOG_VALUE", compute(out, value), int(not value.fits_unsigned64))
    else:
        out.op("W_LOG_VALUE", compute_wide(out, value))


def _note(out: Code, note: Note) -> None:
    assert out.notes is not None  # noqa: S101 - asked before
    out.op("NOTE", 0, len(out.notes))
    out.notes.append(note)
