# SPDX-License-Identifier: Apache-2.0
"""Lane fusion: expressions of equal shape over neighbouring 32-bit fields and registers become vectors.

Given the expressions of n outputs, walk them in step. Where all n are the same node, the value is broadcast;
where they are 32-bit words that follow each other in a packet header, they are loaded as one vector; where
they are metadata fields or registers, the layout is asked to put them side by side. Values are kept modulo
2^32, with the ranges of the nodes telling where that is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.fields import Field, Register
from railweave.switch.lowering.layout import Layout
from railweave.switch.lowering.symbolic import Summary

LEAST_LANES = 4
WORD = (1 << 32) - 1
INT_LOW, INT_HIGH = -(1 << 31), (1 << 31) - 1


class _NotLanes(Exception):
    """These expressions have no vector form."""


@dataclass(frozen=True, eq=False)
class Vector:
    """A vector value. `what` holds fields, registers, a scalar node or a number, by `op`."""

    op: str
    args: tuple[Vector, ...] = ()
    what: Any = None


@dataclass(frozen=True)
class VectorStore:
    """Where a vector goes: consecutive fields, or registers at one index."""

    targets: tuple[Any, ...]  # of Field or of Register
    index: Expr | None
    value: Vector


@dataclass
class Fused:
    """A summary cut in two: vectors, and what stays scalar."""

    vectors: list[VectorStore] = field(default_factory=list)
    fields: dict[Field, Expr] = field(default_factory=dict)
    registers: dict[Register, tuple[Expr, Expr]] = field(default_factory=dict)


class Fuser:
    """Fuses summaries one after the other; all share one layout."""

    def __init__(self, layout: Layout) -> None:
        """`layout` learns what must lie side by side."""
        self.layout = layout
        self._shapes: dict[int, Any] = {}
        self._shape_numbers: dict[Any, int] = {}
        self._memo: dict[tuple[int, ...], Vector] = {}
        self._requests: list[tuple[str, tuple[Any, ...]]] = []

    def fuse(self, summary: Summary) -> Fused:
        """Vectors where there are at least four lanes of equal shape."""
        result = Fused(fields=dict(summary.fields), registers=dict(summary.registers))
        self._memo = {}
        for run in self._field_runs(summary):
            value = self._try([summary.fields[member] for member in run], run, ())
            if value is not None:
                result.vectors.append(VectorStore(run, None, value))
                for member in run:
                    del result.fields[member]
        for arrays in self._register_runs(summary):
            index = summary.registers[arrays[0]][0]
            value = self._try([summary.registers[array][1] for array in arrays], (), arrays)
            if value is not None:
                result.vectors.append(VectorStore(arrays, index, value))
                for array in arrays:
                    del result.registers[array]
        return result

    def _try(self, nodes: list[Expr], run: tuple[Field, ...], arrays: tuple[Register, ...]) -> Vector | None:
        self._requests = []
        before = dict(self._memo)
        try:
            value = self._vector(tuple(nodes))
            if run and run[0].metadata:
                self._requests.append(("run", run))
            if arrays:
                self._requests.append(("bank", arrays))
            if self._grant():
                return value
        except (_NotLanes, RecursionError):
            pass
        self._memo = before  # what was made for nothing rests on places that were not granted
        return None

    def _grant(self) -> bool:
        """All the requests or none."""
        layout = self.layout
        saved = (list(layout.runs), list(layout.banks), dict(layout._run_of), dict(layout._bank_of))
        for kind, items in self._requests:
            if not (layout.place_run(items) if kind == "run" else layout.place_bank(items)):
                layout.runs, layout.banks, layout._run_of, layout._bank_of = saved
                return False
        return True

    # Candidates: outputs of the same kind whose expressions have the same shape.

    def _field_runs(self, summary: Summary) -> list[tuple[Field, ...]]:
        runs: list[tuple[Field, ...]] = []
        lanes = [member for member in summary.fields if member.is_packet_lane]
        lanes.sort(key=lambda member: (member.header, member.position))
        current: list[Field] = []
        for member in lanes:
            if current and not (
                member.header == current[-1].header
                and member.position == current[-1].position + 32
                and self._shape(summary.fields[member]) == self._shape(summary.fields[current[-1]])
            ):
                runs.append(tuple(current))
                current = []
            current.append(member)
        runs.append(tuple(current))
        groups: dict[Any, list[Field]] = {}
        for member, value in summary.fields.items():
            if member.is_metadata_lane:
                groups.setdefault((member.signed, self._shape(value)), []).append(member)
        runs += [tuple(group) for group in groups.values()]
        return [run for run in runs if len(run) >= LEAST_LANES]

    def _register_runs(self, summary: Summary) -> list[tuple[Register, ...]]:
        groups: dict[Any, list[Register]] = {}
        for array, (index, value) in summary.registers.items():
            if array.width == 32:
                groups.setdefault((index.number, array.size, self._shape(value)), []).append(array)
        return [tuple(group) for group in groups.values() if len(group) >= LEAST_LANES]

    def _shape(self, node: Expr) -> int:
        """Equal for expressions that differ only in which lane they are about."""
        found = self._shapes.get(node.number)
        if found is None:
            if node.op == "field" and node.leaf.is_packet_lane:
                key: Any = ("packet", node.leaf.header)
            elif node.op == "field" and node.leaf.is_metadata_lane:
                key = ("metadata", node.leaf.signed)
            elif node.op == "reg":
                key = ("reg", node.args[0].number, node.leaf.size, node.leaf.width)
            elif node.args:
                key = (node.op, node.leaf, *(self._shape(arg) for arg in node.args))
            else:
                key = ("same", node.number)
            found = self._shapes[node.number] = self._shape_numbers.setdefault(key, len(self._shape_numbers))
        return found

    # Vectors from n expressions.

    def _vector(self, nodes: tuple[Expr, ...]) -> Vector:
        key = tuple(node.number for node in nodes)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._make(nodes)
        return found

    def _make(self, nodes: tuple[Expr, ...]) -> Vector:
        first = nodes[0]
        if all(node is first for node in nodes):
            return Vector("broadcast", (), first)
        if any(node.op != first.op or len(node.args) != len(first.args) for node in nodes):
            raise _NotLanes
        if first.op == "field":
            return self._fields(tuple(node.leaf for node in nodes))
        if first.op == "reg":
            return self._registers(nodes)
        if not first.args or any(node.leaf != first.leaf for node in nodes):
            raise _NotLanes
        columns = [tuple(node.args[i] for node in nodes) for i in range(len(first.args))]
        return self._operation(first, nodes, columns)

    def _fields(self, fields: tuple[Field, ...]) -> Vector:
        first = fields[0]
        if all(member.is_metadata_lane for member in fields):
            self._requests.append(("run", fields))
            return Vector("meta", (), fields)
        for i, member in enumerate(fields):
            follows = member.header == first.header and member.position == first.position + 32 * i
            if not (member.is_packet_lane and follows):
                raise _NotLanes
        return Vector("packet", (), fields)

    def _registers(self, nodes: tuple[Expr, ...]) -> Vector:
        first = nodes[0]
        arrays = tuple(node.leaf for node in nodes)
        if any(node.args[0] is not first.args[0] for node in nodes):
            raise _NotLanes
        if any(array.width != 32 or array.size != arrays[0].size for array in arrays):
            raise _NotLanes
        self._requests.append(("bank", arrays))
        return Vector("reg", (), (arrays, first.args[0]))

    def _operation(self, first: Expr, nodes: tuple[Expr, ...], columns: list[tuple[Expr, ...]]) -> Vector:  # noqa: PLR0911 - one case after the other
        op = first.op
        if op in {"+", "-", "*", "|", "^", "&"}:
            return self._arithmetic(op, columns)
        if op in {"~", "not"}:
            return Vector("V_NOT", (self._value(columns[0]) if op == "~" else self._mask(columns[0]),))
        if op in {"==", "<", "<=", "and", "or", "d2b"}:
            return self._mask(nodes)
        if op == "b2d":
            one = Vector("number", (), 1)
            return Vector("V_AND", (self._mask(columns[0]), one))
        if op == "two_comp_mod":
            return self._sign_extend(self._value(columns[0]), first.leaf)
        if op in {"usat_cast", "sat_cast"}:
            return self._saturate(first, columns[0])
        if op == "select":
            return self._select(columns)
        if op in {"<<", ">>"}:
            return self._shift(op, columns)
        raise _NotLanes

    def _value(self, nodes: tuple[Expr, ...]) -> Vector:
        """Numbers modulo 2^32."""
        if nodes[0].is_bool:
            raise _NotLanes
        return self._vector(nodes)

    def _arithmetic(self, op: str, columns: list[tuple[Expr, ...]]) -> Vector:
        if op == "&":
            for keep, other in ((0, 1), (1, 0)):
                if all(node.op == "const" and node.leaf & WORD == WORD for node in columns[other]):
                    return self._value(columns[keep])
        names = {"+": "V_ADD", "-": "V_SUB", "*": "V_MUL", "|": "V_OR", "^": "V_XOR", "&": "V_AND"}
        return Vector(names[op], (self._value(columns[0]), self._value(columns[1])))

    @staticmethod
    def _sign_extend(value: Vector, width: int) -> Vector:
        if width >= 32:
            if width > 32:
                raise _NotLanes
            return value
        return Vector("V_SAR", (Vector("V_SHL", (value,), 32 - width),), 32 - width)

    def _saturate(self, first: Expr, column: tuple[Expr, ...]) -> Vector:
        """|+| and |-| of 32-bit lanes."""
        op = column[0].op
        signed = first.op == "sat_cast"
        if first.leaf != 32 or op not in {"+", "-"} or any(node.op != op for node in column):
            raise _NotLanes
        low, high = (INT_LOW, INT_HIGH) if signed else (0, WORD)
        sides = [tuple(node.args[i] for node in column) for i in range(2)]
        if not all(node.fits(low, high) for side in sides for node in side):
            raise _NotLanes
        name = ("V_ADD" if op == "+" else "V_SUB") + ("SS" if signed else "US")
        return Vector(name, (self._value(sides[0]), self._value(sides[1])))

    def _select(self, columns: list[tuple[Expr, ...]]) -> Vector:
        if columns[1][0].is_bool:
            raise _NotLanes
        condition = self._mask(columns[0])
        a, b = self._value(columns[1]), self._value(columns[2])
        if condition.op in {"V_LTS", "V_LTU"}:  # x < y ? y : x is the greater
            suffix = condition.op[-1]
            if condition.args == (b, a):
                return Vector("V_MAX" + suffix, (a, b))
            if condition.args == (a, b):
                return Vector("V_MIN" + suffix, (a, b))
        return Vector("select", (condition, a, b))

    def _shift(self, op: str, columns: list[tuple[Expr, ...]]) -> Vector:
        count = columns[1][0]
        if count.op != "const" or any(node is not count for node in columns[1]) or not 0 <= count.leaf < 32:
            raise _NotLanes
        if op == "<<":
            return Vector("V_SHL", (self._value(columns[0]),), count.leaf)
        if all(node.fits(0, WORD) for node in columns[0]):
            return Vector("V_SHR", (self._value(columns[0]),), count.leaf)
        if all(node.fits(INT_LOW, INT_HIGH) for node in columns[0]):
            return Vector("V_SAR", (self._value(columns[0]),), count.leaf)
        raise _NotLanes

    def _mask(self, nodes: tuple[Expr, ...]) -> Vector:  # noqa: PLR0911 - one case after the other
        """Truth values, as 0 or all ones."""
        first = nodes[0]
        if all(node is first for node in nodes):
            return Vector("broadcast_mask", (), first)
        if any(node.op != first.op for node in nodes):
            raise _NotLanes
        columns = [tuple(node.args[i] for node in nodes) for i in range(len(first.args))]
        if first.op in {"and", "or"}:
            name = "V_AND" if first.op == "and" else "V_OR"
            return Vector(name, (self._mask(columns[0]), self._mask(columns[1])))
        if first.op == "not":
            return Vector("V_NOT", (self._mask(columns[0]),))
        operands = [node for column in columns for node in column]
        unsigned = all(node.fits(0, WORD) for node in operands)
        if not unsigned and not all(node.fits(INT_LOW, INT_HIGH) for node in operands):
            raise _NotLanes
        if first.op == "d2b":
            zero = Vector("number", (), 0)
            return Vector("V_NOT", (Vector("V_EQ", (self._value(columns[0]), zero)),))
        a, b = self._value(columns[0]), self._value(columns[1])
        if first.op == "==":
            return Vector("V_EQ", (a, b))
        less = "V_LTU" if unsigned else "V_LTS"
        if first.op == "<":
            return Vector(less, (a, b))
        if first.op == "<=":
            return Vector("V_NOT", (Vector(less, (b, a)),))
        raise _NotLanes
