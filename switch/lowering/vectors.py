# SPDX-License-Identifier: Apache-2.0
"""Fusion: expressions of equal shape over neighbouring 32-bit fields and registers become vectors.

Given the expressions of n outputs, walk them in step. Where all n are the same node, the value is broadcast;
where they are 32-bit words that follow each other in a packet header, they are loaded as one vector; where
they are metadata fields or registers, the layout is asked to put them side by side. Values are kept modulo
2^32, with the ranges of the nodes telling where that is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from railweave.switch.lowering.actions import Statement
from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.fields import Field, Register
from railweave.switch.lowering.layout import Row
from railweave.switch.lowering.symbolic import Piece, Summary

MIN_LENGTH = 4
WORD = (1 << 32) - 1
INT_LOW, INT_HIGH = -(1 << 31), (1 << 31) - 1


class _NoVector(Exception):
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


@dataclass(frozen=True)
class Fused:
    """A piece of an action as vectors, and what stays scalar; `statements` if an index is out of range."""

    statements: list[Statement]
    indexes: list[tuple[Register, Expr]]  # that must be in range
    vectors: list[VectorStore]
    fields: dict[Field, Expr]
    registers: dict[Register, tuple[Expr, Expr]]


def fuse(actions: dict[int, list[Piece]]) -> tuple[dict[int, list[Piece | Fused]], list[Row]]:
    """Fuse the pieces that have a summary; also what must lie side by side for it."""
    fuser = _Fuser()
    fused = {number: [fuser.fuse(piece) for piece in pieces] for number, pieces in actions.items()}
    return fused, fuser.rows


class _Fuser:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._places: dict[Any, tuple[int, int]] = {}  # row, and position in it
        self._shapes: dict[int, Any] = {}
        self._shape_numbers: dict[Any, int] = {}
        self._memo: dict[tuple[int, ...], Vector] = {}
        self._requests: list[Row] = []

    def fuse(self, piece: Piece) -> Piece | Fused:
        """Vectors where at least four values have the same shape."""
        summary = piece.summary
        if summary is None:
            return piece
        fields, registers = dict(summary.fields), dict(summary.registers)
        result = Fused(piece.statements, list(summary.indexes), [], fields, registers)
        self._memo = {}
        for run in self._field_runs(summary):
            value = self._try([summary.fields[member] for member in run], run)
            if value is not None:
                result.vectors.append(VectorStore(run, None, value))
                for member in run:
                    del fields[member]
        for arrays in self._register_runs(summary):
            index = summary.registers[arrays[0]][0]
            value = self._try([summary.registers[array][1] for array in arrays], arrays)
            if value is not None:
                result.vectors.append(VectorStore(arrays, index, value))
                for array in arrays:
                    del registers[array]
        return result

    def _try(self, nodes: list[Expr], targets: Row) -> Vector | None:
        self._requests = []
        before = dict(self._memo)
        try:
            value = self._vector(tuple(nodes))
            if isinstance(targets[0], Register) or targets[0].metadata:
                self._requests.append(targets)
            if self._grant():
                return value
        except (_NoVector, RecursionError):
            pass
        self._memo = before  # discarded vectors may rely on rows that were not granted
        return None

    def _grant(self) -> bool:
        """All the requests or none."""
        saved = list(self.rows), dict(self._places)
        if all(map(self._put, self._requests)):
            return True
        self.rows, self._places = saved
        return False

    def _put(self, items: Row) -> bool:
        """Ask for these in a row; False if they already lie otherwise."""
        if len(set(items)) != len(items):
            return False
        placed = [self._places.get(item) for item in items]
        if all(place is None for place in placed):
            self._places.update((item, (len(self.rows), position)) for position, item in enumerate(items))
            self.rows.append(items)
            return True
        first = placed[0]
        return first is not None and all(place == (first[0], first[1] + i) for i, place in enumerate(placed))

    # Candidates: outputs of the same kind whose expressions have the same shape.

    def _field_runs(self, summary: Summary) -> list[tuple[Field, ...]]:
        runs: list[tuple[Field, ...]] = []
        words = [member for member in summary.fields if member.is_packet_word]
        words.sort(key=lambda member: (member.header, member.position))
        current: list[Field] = []
        for member in words:
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
            if member.is_metadata_word:
                groups.setdefault((member.signed, self._shape(value)), []).append(member)
        runs += [tuple(group) for group in groups.values()]
        return [run for run in runs if len(run) >= MIN_LENGTH]

    def _register_runs(self, summary: Summary) -> list[tuple[Register, ...]]:
        groups: dict[Any, list[Register]] = {}
        for array, (index, value) in summary.registers.items():
            if array.width == 32:
                groups.setdefault((index.number, array.size, self._shape(value)), []).append(array)
        return [tuple(group) for group in groups.values() if len(group) >= MIN_LENGTH]

    def _shape(self, node: Expr) -> int:
        """Equal for expressions that differ only in which of the neighbours they are about."""
        found = self._shapes.get(node.number)
        if found is None:
            if node.op == "field" and node.leaf.is_packet_word:
                key: Any = ("packet", node.leaf.header)
            elif node.op == "field" and node.leaf.is_metadata_word:
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
            raise _NoVector
        if first.op == "field":
            return self._fields(tuple(node.leaf for node in nodes))
        if first.op == "reg":
            return self._registers(nodes)
        if not first.args or any(node.leaf != first.leaf for node in nodes):
            raise _NoVector
        columns = [tuple(node.args[i] for node in nodes) for i in range(len(first.args))]
        return self._operation(first, nodes, columns)

    def _fields(self, fields: tuple[Field, ...]) -> Vector:
        first = fields[0]
        if all(member.is_metadata_word for member in fields):
            self._requests.append(fields)
            return Vector("meta", (), fields)
        for i, member in enumerate(fields):
            follows = member.header == first.header and member.position == first.position + 32 * i
            if not (member.is_packet_word and follows):
                raise _NoVector
        return Vector("packet", (), fields)

    def _registers(self, nodes: tuple[Expr, ...]) -> Vector:
        first = nodes[0]
        arrays = tuple(node.leaf for node in nodes)
        if any(node.args[0] is not first.args[0] for node in nodes):
            raise _NoVector
        if any(array.width != 32 or array.size != arrays[0].size for array in arrays):
            raise _NoVector
        self._requests.append(arrays)
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
        raise _NoVector

    def _value(self, nodes: tuple[Expr, ...]) -> Vector:
        """Numbers modulo 2^32."""
        if nodes[0].is_bool:
            raise _NoVector
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
                raise _NoVector
            return value
        return Vector("V_SAR", (Vector("V_SHL", (value,), 32 - width),), 32 - width)

    def _saturate(self, first: Expr, column: tuple[Expr, ...]) -> Vector:
        """|+| and |-| of 32-bit words."""
        op = column[0].op
        signed = first.op == "sat_cast"
        if first.leaf != 32 or op not in {"+", "-"} or any(node.op != op for node in column):
            raise _NoVector
        low, high = (INT_LOW, INT_HIGH) if signed else (0, WORD)
        sides = [tuple(node.args[i] for node in column) for i in range(2)]
        if not all(node.fits(low, high) for side in sides for node in side):
            raise _NoVector
        name = ("V_ADD" if op == "+" else "V_SUB") + ("SS" if signed else "US")
        return Vector(name, (self._value(sides[0]), self._value(sides[1])))

    def _select(self, columns: list[tuple[Expr, ...]]) -> Vector:
        if columns[1][0].is_bool:
            raise _NoVector
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
            raise _NoVector
        if op == "<<":
            return Vector("V_SHL", (self._value(columns[0]),), count.leaf)
        if all(node.fits(0, WORD) for node in columns[0]):
            return Vector("V_SHR", (self._value(columns[0]),), count.leaf)
        if all(node.fits(INT_LOW, INT_HIGH) for node in columns[0]):
            return Vector("V_SAR", (self._value(columns[0]),), count.leaf)
        raise _NoVector

    def _mask(self, nodes: tuple[Expr, ...]) -> Vector:  # noqa: PLR0911 - one case after the other
        """Truth values, as 0 or all ones."""
        first = nodes[0]
        if all(node is first for node in nodes):
            return Vector("broadcast_mask", (), first)
        if any(node.op != first.op for node in nodes):
            raise _NoVector
        columns = [tuple(node.args[i] for node in nodes) for i in range(len(first.args))]
        if first.op in {"and", "or"}:
            name = "V_AND" if first.op == "and" else "V_OR"
            return Vector(name, (self._mask(columns[0]), self._mask(columns[1])))
        if first.op == "not":
            return Vector("V_NOT", (self._mask(columns[0]),))
        operands = [node for column in columns for node in column]
        unsigned = all(node.fits(0, WORD) for node in operands)
        if not unsigned and not all(node.fits(INT_LOW, INT_HIGH) for node in operands):
            raise _NoVector
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
        raise _NoVector
