# SPDX-License-Identifier: Apache-2.0
"""Checksums: verified after parsing, updated before deparsing."""

from __future__ import annotations

from dataclasses import dataclass

from railweave.switch.lowering.code import Code, Label
from railweave.switch.lowering.emit import store_field, store_register
from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.fields import Field
from railweave.switch.lowering.notes import note_field
from railweave.switch.lowering.read import ExpressionReader
from railweave.switch.lowering.source import Json, find, get, objects, unsupported, where
from railweave.switch.lowering.values import branch, compute


@dataclass(frozen=True)
class Checksum:
    """A field that a calculation (by number) gives; `held` is its value, `valid` its header's validity."""

    target: Field
    calculation: int
    condition: Expr | None
    held: Expr
    valid: Expr
    verify: bool
    update: bool


def read_checksums(root: Json, expressions: ExpressionReader, calculations: dict[str, int]) -> list[Checksum]:
    """Read all checksums of the program."""
    result = []
    for item in objects(root, "checksums"):
        place = where(item, f"checksum {item.get('name')!r}")
        if get(item, "type", str, place) != "generic":
            raise unsupported(f"a checksum of type {item['type']!r}", item, place)
        calculation = find(calculations, item.get("calculation"), "calculation", place)
        target = expressions.headers.field(item.get("target"), place)
        condition = item.get("if_cond")
        result.append(
            Checksum(
                target,
                calculation,
                None if condition is None else expressions.condition(condition, place),
                expressions.graph.wrap(expressions.load(target), target.width, signed=False),
                expressions.is_valid(expressions.headers.by_name[target.header]),
                bool(item.get("verify", True)),
                bool(item.get("update", True)),
            )
        )
    return result


def emit_verify(out: Code, checksums: list[Checksum]) -> None:
    """Set standard_metadata.checksum_error if a checksum is wrong."""
    error = out.headers.find("standard_metadata", "checksum_error")
    for checksum in (checksum for checksum in checksums if checksum.verify):
        out.scope()
        right = Label()
        branch(out, checksum.valid, right, when=False)
        computed, equal = _emit(out, checksum, right), out.fresh()
        out.op("EQ", equal, computed, compute(out, checksum.held))
        out.op("JNZ", equal, right)
        if error is not None:
            store_field(out, error, out.graph.const(1))
        out.place(right)


def emit_update(out: Code, checksums: list[Checksum]) -> None:
    """Write the computed values."""
    for checksum in (checksum for checksum in checksums if checksum.update):
        out.scope()
        skip = Label()
        store_register(out, checksum.target, _emit(out, checksum, skip))
        note_field(out, "checksum", checksum.target)
        out.place(skip)


def _emit(out: Code, checksum: Checksum, skip: Label) -> int:
    """Return a register with the computed checksum. Jump to `skip` if the condition is false."""
    if checksum.condition is not None:
        branch(out, checksum.condition, skip, when=False)
    computed = out.fresh()
    out.op("CHECKSUM", computed, checksum.calculation)
    return computed
