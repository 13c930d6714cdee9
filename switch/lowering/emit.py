# SPDX-License-Identifier: Apache-2.0
"""Instructions for statements and actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from railweave._native.engine import LONG_WORDS
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
from railweave.switch.lowering.symbolic import Piece
from railweave.switch.lowering.values import branch, compute, compute_wide, field_access
from railweave.switch.lowering.vectors import Fused, Vector, VectorStore
from railweave.switch.program import Action, ArrayInfo

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


# Actions: fused pieces as vectors, all else statement by statement.


@dataclass(frozen=True)
class ActionBody:
    """An action that is ready to be emitted, at `entry` and in place."""

    description: Action
    pieces: list[Piece | Fused]
    entry: Label = field(default_factory=Label)

    @property
    def exits(self) -> bool:
        """Return whether the action may end the pipeline."""
        statements = [statement for piece in self.pieces for statement in piece.statements]
        return any(isinstance(statement, Effect) and statement.kind == "EXIT" for statement in statements)


def emit_action(out: Code, body: ActionBody) -> None:
    """Emit the action; for a trace, unfused."""
    action = body.description
    out.where = f"action {action.name!r}"
    out.scope()
    parameters = [p for p in action.parameters if p.bitwidth]
    note(out, "action", action.name, [(p.name, out.graph.leaf("param", p, p.bitwidth)) for p in parameters])
    for piece in body.pieces:
        if isinstance(piece, Piece) or out.notes is not None:
            emit_statements(out, piece.statements)
            continue
        fallback, done = Label(), Label()
        out.scope()
        _emit_fused(out, piece, fallback)
        if piece.indexes:
            out.op("JMP", 0, done)
            out.place(fallback)
            out.op("COLD", 0, done)
            emit_statements(out, piece.statements)
            out.place(done)
            out.op("JOIN")
        else:
            out.place(fallback)
            out.place(done)
        out.scope()


def _emit_fused(out: Code, fused: Fused, fallback: Label) -> None:
    """Emit all values, then all stores. Jump to `fallback` first if a register index is out of range."""
    for size, index in dict.fromkeys((array.size, index) for array, index in fused.indexes):
        low = out.graph.binary("&", index, out.graph.const(mask(32)))
        branch(out, out.graph.binary("<", low, out.graph.const(size)), fallback, when=False)
    registers = _VectorRegisters(out, fallback)
    vectors = [(store, registers.load(store.value, _length(store))) for store in fused.vectors]
    changed = [(member, node) for member, node in fused.fields.items() if _ready(out, member, node)]
    for array, (index, value) in fused.registers.items():
        compute(out, index)
        if array.width <= 64:
            compute(out, value)
        else:
            compute_wide(out, value)
    for store, number in vectors:
        registers.store(store, number)
    for member, node in changed:
        store_field(out, member, node)
    for array, (index, value) in fused.registers.items():
        store_cell(out, array, index, value)


def _ready(out: Code, member: Field, node: Expr) -> bool:
    """Compute the value; False if the field already holds it."""
    if node.op == "field" and node.leaf == member:
        return False
    if member.is_native:
        compute(out, node)
    else:
        compute_wide(out, node)
    return True


def _length(store: VectorStore) -> int:
    """Return the vector length in the form that instructions take."""
    return len(store.targets) | (LONG_WORDS if store.value.word == 64 else 0)


@dataclass
class _VectorRegisters:
    """Vector registers of one piece."""

    out: Code
    fallback: Label
    numbers: dict[Vector, int] = field(default_factory=dict)

    def load(self, vector: Vector, length: int) -> int:
        """Return a vector register with the value."""
        found = self.numbers.get(vector)
        if found is None:
            self.out.vector_length = max(self.out.vector_length, length & ~LONG_WORDS)
            args = [self.load(arg, length) for arg in vector.args]
            found = self.numbers[vector] = len(self.numbers)
            self.out.vectors = max(self.out.vectors, len(self.numbers))
            self._make(vector, found, args, length)
        return found

    def _make(self, vector: Vector, result: int, args: list[int], length: int) -> None:
        out = self.out
        match vector.op:
            case "packet":
                first = vector.what[0]
                out.op("V_LD_BE", result, out.layout.bit_position(first) // 8, first.element_bytes, length)
            case "meta":
                first = vector.what[0]
                out.op("V_LD_N", result, out.layout.offsets[first], first.element_bytes, length)
            case "reg":
                arrays, index = vector.what
                row = self._slice(arrays, length)
                out.op("V_LD_REG", result, row, compute(out, index), self.fallback)
            case "number":
                out.op("V_BCAST", result, out.constant(vector.what), 0, length)
            case "broadcast":
                out.op("V_BCAST", result, compute(out, vector.what), 0, length)
            case "broadcast_mask":
                ones = out.fresh()
                out.op("SUB", ones, out.constant(0), compute(out, vector.what))
                out.op("V_BCAST", result, ones, 0, length)
            case "select":
                out.op("V_MOV", result, args[2], 0, length)
                out.op("V_SELECT", result, args[0], args[1], length)
            case "V_NOT":
                out.op("V_NOT", result, args[0], 0, length)
            case "V_SHL" | "V_SHR" | "V_SAR":
                out.op(vector.op, result, args[0], vector.what, length)
            case _:
                out.op(vector.op, result, *args, length)

    def _slice(self, arrays: tuple[ArrayInfo, ...], length: int) -> int:
        bank, word = self.out.layout.bank_position(arrays[0])
        row = (bank, word, length, arrays[0].element_bytes)
        return self.out.slices.setdefault(row, len(self.out.slices))

    def store(self, store: VectorStore, number: int) -> None:
        """Store to fields that follow each other, or to registers side by side."""
        out, first, length = self.out, store.targets[0], _length(store)
        if isinstance(first, ArrayInfo):
            assert store.index is not None  # noqa: S101 - registers always come with one
            out.op("V_ST_REG", number, self._slice(store.targets, length), compute(out, store.index))
        elif first.metadata:
            out.op("V_ST_N", number, out.layout.offsets[first], first.element_bytes, length)
        else:
            out.op("V_ST_BE", number, out.layout.bit_position(first) // 8, first.element_bytes, length)
