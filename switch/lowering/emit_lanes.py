# SPDX-License-Identifier: Apache-2.0
"""Instructions for a summarised piece of an action: all values first, then all stores."""

from __future__ import annotations

from dataclasses import dataclass, field

from railweave.switch.lowering.code import Label
from railweave.switch.lowering.emit import Emitter
from railweave.switch.lowering.expr import Expr, mask
from railweave.switch.lowering.fields import Field, Register
from railweave.switch.lowering.lanes import Fused, Vector, VectorStore


def emit_fused(out: Emitter, fused: Fused, indexes: list[tuple[Register, Expr]], fallback: Label) -> None:
    """Goes to `fallback`, with nothing done, if one of the register indexes is out of range."""
    for size, index in dict.fromkeys((array.size, index) for array, index in indexes):
        low = out.graph.binary("&", index, out.graph.const(mask(32)))
        out.branch(out.graph.binary("<", low, out.graph.const(size)), fallback, when=False)
    lanes = _LaneEmitter(out, fallback)
    vectors = [(store, lanes.vector(store.value, len(store.targets))) for store in fused.vectors]
    changed = [(member, node) for member, node in fused.fields.items() if _ready(out, member, node)]
    for array, (index, value) in fused.registers.items():
        out.number(index)
        if array.width <= 64:
            out.number(value)
        else:
            out.wide(value)
    for store, number in vectors:
        lanes.store(store, number)
    for member, node in changed:
        out.store(member, node)
    for array, (index, value) in fused.registers.items():
        out.store_cell(array, index, value)


def _ready(out: Emitter, member: Field, node: Expr) -> bool:
    """Compute the value; False if it is what the field holds anyway."""
    if node.op == "field" and node.leaf == member:
        return False
    if out.native_field(member):
        out.number(node)
    else:
        out.wide(node)
    return True


@dataclass
class _LaneEmitter:
    """Vector registers of one piece."""

    out: Emitter
    fallback: Label
    numbers: dict[Vector, int] = field(default_factory=dict)

    def vector(self, vector: Vector, lanes: int) -> int:
        """A vector register with the value."""
        found = self.numbers.get(vector)
        if found is None:
            self.out.lanes = max(self.out.lanes, lanes)
            args = [self.vector(arg, lanes) for arg in vector.args]
            found = self.numbers[vector] = len(self.numbers)
            self.out.vectors = max(self.out.vectors, len(self.numbers))
            self._make(vector, found, args, lanes)
        return found

    def _make(self, vector: Vector, result: int, args: list[int], lanes: int) -> None:
        out = self.out
        match vector.op:
            case "packet":
                out.op("V_LD_BE", result, out.layout.bit_position(vector.what[0]) // 8, 0, lanes)
            case "meta":
                out.op("V_LD_N", result, out.layout.offsets[vector.what[0]], 0, lanes)
            case "reg":
                arrays, index = vector.what
                out.op("V_LD_REG", result, self._slice(arrays), out.number(index), self.fallback)
            case "number":
                out.op("V_BCAST", result, out.constant(vector.what), 0, lanes)
            case "broadcast":
                out.op("V_BCAST", result, out.number(vector.what), 0, lanes)
            case "broadcast_mask":
                ones = out.fresh()
                out.op("SUB", ones, out.constant(0), out.number(vector.what))
                out.op("V_BCAST", result, ones, 0, lanes)
            case "select":
                out.op("V_MOV", result, args[2], 0, lanes)
                out.op("V_SELECT", result, args[0], args[1], lanes)
            case "V_NOT":
                out.op("V_NOT", result, args[0], 0, lanes)
            case "V_SHL" | "V_SHR" | "V_SAR":
                out.op(vector.op, result, args[0], vector.what, lanes)
            case _:
                out.op(vector.op, result, *args, lanes)

    def _slice(self, arrays: tuple[Register, ...]) -> int:
        bank, word = self.out.layout.bank_position(arrays[0])
        return self.out.slices.setdefault((bank, word, len(arrays)), len(self.out.slices))

    def store(self, store: VectorStore, number: int) -> None:
        """To fields that follow each other, or to registers side by side."""
        out, first = self.out, store.targets[0]
        if isinstance(first, Register):
            assert store.index is not None  # noqa: S101 - registers always come with one
            out.op("V_ST_REG", number, self._slice(store.targets), out.number(store.index))
        elif first.metadata:
            out.op("V_ST_N", number, out.layout.offsets[first], 0, len(store.targets))
        else:
            out.op("V_ST_BE", number, out.layout.bit_position(first) // 8, 0, len(store.targets))
