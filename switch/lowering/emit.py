# SPDX-License-Identifier: Apache-2.0
"""Instructions for statements."""

from __future__ import annotations

from typing import Any

from railweave.switch.lowering.actions import (
    Assign,
    Choice,
    Effect,
    Jump,
    RegisterRead,
    RegisterWrite,
    Statement,
)
from railweave.switch.lowering.code import Code, Label, Operand
from railweave.switch.lowering.expr import Expr, mask
from railweave.switch.lowering.fields import Field, Stack
from railweave.switch.lowering.notes import log_value, note, note_field
from railweave.switch.lowering.values import branch, compute, compute_wide, field_access
from railweave.switch.program import ArrayInfo

EXTRACTIONS = {"EXTRACT", "EXTRACT_VL", "EXTRACT_NEXT", "EXTRACT_NEXT_VL"}
# Effects that a trace leaves out, or notes as something else than a call.
UNNOTED = {"LOG", "HDR_HIDE", "VL_COPY", "ADVANCE", "PARSE_ERROR"} | EXTRACTIONS


def store_field(out: Code, member: Field, node: Expr) -> None:
    """Emit field = value, truncated."""
    if member.width == 0:
        return
    if member.is_native:
        store_register(out, member, compute(out, node), node.fits(0, mask(member.width)))
    else:
        out.op("W_ST", compute_wide(out, node), out.layout.bit_position(member), member.width)


def store_register(out: Code, member: Field, value: Operand, fits: bool = False) -> None:
    """Emit field = register, truncated (unless it fits)."""
    if member.width == 0:
        return
    if not member.is_native:
        wide = out.fresh_wide()
        out.limbs = max(out.limbs, member.width // 64 + 1)
        out.op("W_FROM_U", wide, value)
        out.op("W_ST", wide, out.layout.bit_position(member), member.width)
        return
    kind, offset, bits = field_access(out, member)
    if kind in {"N32", "N64"} and member.width not in {32, 64} and not fits:
        masked = out.fresh()
        out.op("AND", masked, value, out.constant(mask(member.width)))
        value = masked
    out.op("ST_" + kind, value, offset, bits)


def _note_after(out: Code, statement: Statement) -> None:
    if isinstance(statement, Assign | RegisterRead | Effect) and statement.target is not None:
        note_field(out, "set", statement.target)
    elif isinstance(statement, Effect) and statement.kind in EXTRACTIONS:
        what = statement.objects[0]
        note(out, "extract", f"{what.name}.next" if isinstance(what, Stack) else what)


def _note_before(out: Code, statement: Statement) -> None:
    if isinstance(statement, RegisterRead):
        note(out, "register read", statement.array.name, [("index", statement.index)])
    elif isinstance(statement, RegisterWrite):
        value = out.graph.wrap(statement.value, statement.array.width, signed=False)
        note(out, "register write", statement.array.name, [("index", statement.index), ("value", value)])
    elif isinstance(statement, Effect) and statement.kind not in UNNOTED:
        objects = [item for item in statement.objects if isinstance(item, str)]
        if statement.kind in out.names:
            objects = [out.names[statement.kind][statement.objects[0]]]
        values = [(str(number), value) for number, value in enumerate(statement.values)]
        note(out, "call", " ".join([statement.kind.lower(), *objects]), values)


def _emit(out: Code, statement: Statement, targets: dict[int, Label]) -> None:
    if isinstance(statement, Assign):
        store_field(out, statement.target, statement.value)
    elif isinstance(statement, RegisterRead):
        _emit_register_read(out, statement)
    elif isinstance(statement, RegisterWrite):
        store_cell(out, statement.array, statement.index, statement.value)
    elif isinstance(statement, Jump):
        target = targets[statement.target]
        if statement.condition is None:
            out.op("JMP", 0, target)
        else:
            branch(out, statement.condition, target, when=False)
    elif isinstance(statement, Choice):
        done = Label()
        for condition, body in statement.alternatives:
            following = Label()
            branch(out, condition, following, when=False)
            with out.apart():
                emit_statements(out, list(body))
            out.op("JMP", 0, done)
            out.place(following)
        out.place(done)
    elif statement.kind == "LOG":
        quiet = Label()
        out.op("LOGGING", 0, quiet)
        for value in statement.values:
            log_value(out, value)
        out.op("LOG", 0, statement.objects[0])
        out.place(quiet)
    else:
        _emit_effect(out, statement)


def emit_statements(out: Code, statements: list[Statement]) -> None:
    """Emit statements in sequence, unfused."""
    targets = {s.target: Label() for s in statements if isinstance(s, Jump)}
    for position, statement in enumerate(statements):
        if position in targets:
            out.place(targets[position])
        out.scope()
        _note_before(out, statement)
        _emit(out, statement, targets)
        _note_after(out, statement)
    if len(statements) in targets:
        out.place(targets[len(statements)])
    out.scope()


def _emit_register_read(out: Code, statement: RegisterRead) -> None:
    skip = Label()
    index = compute(out, statement.index)
    if statement.array.width <= 64 and statement.target.is_native:
        value = out.fresh()
        out.op("REG_RD", value, statement.array.index, index, skip)
        store_register(out, statement.target, value)
    else:
        wide = out.fresh_wide()
        out.limbs = max(out.limbs, statement.array.width // 64 + 1)
        out.op("W_REG_RD", wide, statement.array.index, index, skip)
        if statement.target.is_native:
            value = out.fresh()
            out.op("W_TO", value, wide)
            store_register(out, statement.target, value)
        else:
            out.op("W_ST", wide, out.layout.bit_position(statement.target), statement.target.width)
    out.place(skip)


def store_cell(out: Code, array: ArrayInfo, index: Expr, value: Expr) -> None:
    """Emit array[index] = value, truncated. The store has no effect if the index is out of range."""
    if array.width <= 64:
        out.op("REG_WR", compute(out, value), array.index, compute(out, index))
    else:
        out.limbs = max(out.limbs, array.width // 64 + 1)
        copy = out.fresh_wide()  # the instruction truncates in place
        out.op("W_ZEXT", copy, compute_wide(out, value), array.width)
        out.op("W_REG_WR", copy, array.index, compute(out, index))


def _emit_effect(out: Code, effect: Effect) -> None:
    objects = [_object(out, item) for item in effect.objects]
    values = [compute(out, value) for value in effect.values]
    if effect.kind in {"ASSERT", "EXTRACT_NEXT_VL"}:
        out.op(effect.kind, *values, *objects)
        return
    if effect.target is None:
        out.op(effect.kind, 0, *objects, *values)
        return
    result, skip = out.fresh(), Label()
    # Some may leave the field as it is, and go to `skip`.
    out.op(effect.kind, result, *objects, *values, *([skip] if effect.kind in {"METER", "RANDOM"} else ()))
    store_register(out, effect.target, result)
    out.place(skip)


def _object(out: Code, item: Any) -> int:
    """Return the number of a header (by name), a stack, a variable-length field, or a number itself."""
    if isinstance(item, str):
        return out.headers.by_name[item].index
    if isinstance(item, Field):
        return out.layout.variables[item]
    return item.index if isinstance(item, Stack) else int(item)
