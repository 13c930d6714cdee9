# SPDX-License-Identifier: Apache-2.0
"""Instructions for actions: fused pieces as vectors, all else statement by statement."""

from __future__ import annotations

from dataclasses import dataclass, field

from railweave._native.engine import LONG_WORDS
from railweave.switch.lowering.actions import Effect
from railweave.switch.lowering.code import Code, Label
from railweave.switch.lowering.emit import emit_statements, store_cell, store_field
from railweave.switch.lowering.expr import Expr, mask
from railweave.switch.lowering.fields import Field
from railweave.switch.lowering.notes import note
from railweave.switch.lowering.symbolic import Piece
from railweave.switch.lowering.values import branch, compute, compute_wide
from railweave.switch.lowering.vectors import Fused, Vector, VectorStore
from railweave.switch.program import Action, ArrayInfo


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
