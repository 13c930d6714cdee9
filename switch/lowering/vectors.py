# SPDX-License-Identifier: Apache-2.0
"""Fusion: expressions of equal shape over neighbouring fields and registers become vectors.

The fuser walks through the expressions of n outputs in step. If all n are the same node, its value is
broadcast. Fields of 8, 16, 32 or 64 bits that follow each other in a packet header are loaded as one vector.
For metadata fields and registers, the layout is asked to put them side by side. Vectors have words of 32
bits, or of 64 bits if 32 are not enough. Values are kept modulo 2^32 or 2^64. The ranges of the nodes tell
where that is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from railweave.switch.lowering.actions import Assign, RegisterWrite, Statement
from railweave.switch.lowering.expr import Expr, mask
from railweave.switch.lowering.fields import Field
from railweave.switch.lowering.layout import Row
from railweave.switch.lowering.symbolic import TOO_DEEP, Piece, Summary
from railweave.switch.program import ArrayInfo

MIN_LENGTH = 4


class _NoVector(Exception):
    """These expressions have no vector form; the message says why."""


@dataclass(frozen=True, eq=False)
class Vector:
    """A vector value. `op` says whether `what` is fields, registers, a scalar node or a number."""

    op: str
    word: int  # bits of an element: 32 or 64
    args: tuple[Vector, ...] = ()
    what: Any = None


@dataclass(frozen=True)
class VectorStore:
    """Where a vector goes: consecutive fields, or registers at one index."""

    targets: tuple[Any, ...]  # of Field or of ArrayInfo
    index: Expr | None
    value: Vector


@dataclass(frozen=True)
class Fused:
    """A piece of an action as vectors and scalar values. `statements` run if an index is out of range."""

    statements: list[Statement]
    indexes: list[tuple[ArrayInfo, Expr]]  # that must be in range
    vectors: list[VectorStore]
    fields: dict[Field, Expr]
    registers: dict[ArrayInfo, tuple[Expr, Expr]]


@dataclass(frozen=True)
class Refusal:
    """Outputs of an action that stay scalar, and the reason."""

    first: Field | ArrayInfo
    length: int
    why: str

    def __str__(self) -> str:
        """Return a line for a person."""
        return f"{self.length} values from {_name(self.first)} on: {self.why}"


def _name(output: Field | ArrayInfo) -> str:
    return output.name if isinstance(output, ArrayInfo) else f"{output.header}.{output.name}"


def fuse(
    actions: dict[int, list[Piece]],
) -> tuple[dict[int, list[Piece | Fused]], dict[int, list[Refusal]], list[Row]]:
    """Fuse the pieces that have a summary. Return also the refusals, and rows for the layout."""
    fuser = _Fuser()
    fused, refused = {}, {}
    for number, pieces in actions.items():
        fuser.refused = []
        fused[number] = [fuser.fuse(piece) for piece in pieces]
        refused[number] = fuser.refused
    return fused, refused, fuser.rows


def _scalar(piece: Piece) -> list[Refusal]:
    """Return the refusal of a piece that has no summary, if it assigns to enough outputs."""
    outputs = dict.fromkeys(
        statement.target if isinstance(statement, Assign) else statement.array
        for statement in piece.statements
        if isinstance(statement, Assign | RegisterWrite)
    )
    fitting = [output for output in outputs if output.element_bytes]
    return [Refusal(fitting[0], len(fitting), piece.why)] if len(fitting) >= MIN_LENGTH else []


class _Fuser:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.refused: list[Refusal] = []  # of the current action
        self._word = 32  # bits of an element of the current vector
        self._places: dict[Any, tuple[int, int]] = {}  # row, and position in it
        self._shapes: dict[int, Any] = {}
        self._shape_numbers: dict[Any, int] = {}
        self._memo: dict[tuple[int, tuple[int, ...]], Vector] = {}
        self._requests: list[Row] = []

    def fuse(self, piece: Piece) -> Piece | Fused:
        """Fuse values into vectors where at least four values have the same shape."""
        summary = piece.summary
        if summary is None:
            self.refused += _scalar(piece)
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
        why = ""
        for self._word in (32, 64):
            if 8 * targets[0].element_bytes > self._word:
                continue
            self._requests = []
            before = dict(self._memo)
            try:
                value = self._stored(tuple(nodes), targets)
                self._grant()
            except _NoVector as reason:
                why = str(reason)
            except RecursionError:
                why = TOO_DEEP
            else:
                return value
            self._memo = before  # discarded vectors may rely on rows that were not granted
        self.refused.append(Refusal(targets[0], len(targets), why))
        return None

    def _stored(self, nodes: tuple[Expr, ...], targets: Row) -> Vector:
        """Return the values as they lie in memory."""
        value = self._value(nodes)
        first = targets[0]
        if isinstance(first, ArrayInfo) or first.metadata:
            self._requests.append(targets)
            if 8 * first.element_bytes > first.width and not all(n.fits(0, mask(first.width)) for n in nodes):
                value = self._make("V_AND", value, self._make("number", what=mask(first.width)))
        return value

    def _make(self, op: str, *args: Vector, what: Any = None) -> Vector:
        return Vector(op, self._word, args, what)

    def _grant(self) -> None:
        """Grant all requests, or refuse all."""
        saved = list(self.rows), dict(self._places)
        for items in self._requests:
            if not self._put(items):
                self.rows, self._places = saved
                raise _NoVector(
                    f"another vector has {_name(items[0])} and the following ones in another order"
                )

    def _put(self, items: Row) -> bool:
        """Put these items in a row; False if they already lie elsewhere."""
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
        members = [member for member in summary.fields if member.element_bytes and not member.metadata]
        members.sort(key=lambda member: (member.header, member.position))
        current: list[Field] = []
        for member in members:
            if current and not (
                _follows(member, current[-1], 1)
                and self._shape(summary.fields[member]) == self._shape(summary.fields[current[-1]])
            ):
                runs.append(tuple(current))
                current = []
            current.append(member)
        runs.append(tuple(current))
        groups: dict[Any, list[Field]] = {}
        for member, value in summary.fields.items():
            if member.metadata and member.element_bytes:
                key = member.width, member.signed, self._shape(value)
                groups.setdefault(key, []).append(member)
        runs += [tuple(group) for group in groups.values()]
        return [run for run in runs if len(run) >= MIN_LENGTH]

    def _register_runs(self, summary: Summary) -> list[tuple[ArrayInfo, ...]]:
        groups: dict[Any, list[ArrayInfo]] = {}
        for array, (index, value) in summary.registers.items():
            if array.element_bytes:
                key = index.number, array.size, array.width, self._shape(value)
                groups.setdefault(key, []).append(array)
        return [tuple(group) for group in groups.values() if len(group) >= MIN_LENGTH]

    def _shape(self, node: Expr) -> int:
        """Return the shape of an expression.

        Expressions of the same shape differ only in their fields or registers, which may be neighbours.
        """
        found = self._shapes.get(node.number)
        if found is None:
            if node.op == "field" and node.leaf.element_bytes:
                place = "" if node.leaf.metadata else node.leaf.header
                key: Any = ("field", place, node.leaf.width, node.leaf.signed)
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
        key = self._word, tuple(node.number for node in nodes)
        if key not in self._memo:
            self._memo[key] = self._compute(nodes)
        return self._memo[key]

    def _compute(self, nodes: tuple[Expr, ...]) -> Vector:
        first = nodes[0]
        if all(node is first for node in nodes):
            return self._make("broadcast", what=first)
        if any(node.op != first.op or len(node.args) != len(first.args) for node in nodes):
            raise _NoVector("the expressions differ in their operators")
        if first.op == "field":
            return self._fields(tuple(node.leaf for node in nodes))
        if first.op == "reg":
            return self._registers(nodes)
        if not first.args or any(node.leaf != first.leaf for node in nodes):
            raise _NoVector(f"each has {_OPERANDS.get(first.op, 'an operand')} of its own")
        columns = [tuple(node.args[i] for node in nodes) for i in range(len(first.args))]
        return self._operation(first, nodes, columns)

    def _fields(self, fields: tuple[Field, ...]) -> Vector:
        first = fields[0]
        if first.metadata and all(
            member.metadata and (member.width, member.signed) == (first.width, first.signed)
            for member in fields
        ):
            self._requests.append(fields)
            value = self._make("meta", what=fields)
        elif all(_follows(member, first, i) for i, member in enumerate(fields)):
            value = self._make("packet", what=fields)
        else:
            raise _NoVector(f"the fields from {_name(first)} on do not follow each other")
        return self._sign_extend(value, first.width) if first.signed else value

    def _registers(self, nodes: tuple[Expr, ...]) -> Vector:
        first = nodes[0]
        arrays = tuple(node.leaf for node in nodes)
        if any(node.args[0] is not first.args[0] for node in nodes):
            raise _NoVector("the registers have different indexes")
        shape = arrays[0].width, arrays[0].size
        if not arrays[0].element_bytes or any((array.width, array.size) != shape for array in arrays):
            raise _NoVector("the registers have different widths or sizes, or more than 64 bits")
        self._requests.append(arrays)
        return self._make("reg", what=(arrays, first.args[0]))

    def _operation(self, first: Expr, nodes: tuple[Expr, ...], columns: list[tuple[Expr, ...]]) -> Vector:  # noqa: PLR0911 - one case after the other
        op = first.op
        if op in _ARITHMETIC:
            return self._arithmetic(op, columns)
        if op in {"~", "not"}:
            return self._make("V_NOT", self._value(columns[0]) if op == "~" else self._mask(columns[0]))
        if op in {"==", "<", "<=", "and", "or", "d2b"}:
            return self._mask(nodes)
        if op == "b2d":
            return self._make("V_AND", self._mask(columns[0]), self._make("number", what=1))
        if op == "two_comp_mod":
            return self._sign_extend(self._value(columns[0]), first.leaf)
        if op in {"usat_cast", "sat_cast"}:
            return self._saturate(first, columns[0])
        if op == "select":
            return self._select(columns)
        if op in {"<<", ">>"}:
            return self._shift(op, columns)
        raise _NoVector(f"vectors have no operator {op!r}")

    def _value(self, nodes: tuple[Expr, ...]) -> Vector:
        """Return numbers modulo 2^word."""
        if nodes[0].is_bool:
            raise _NoVector("truth values are stored")
        return self._vector(nodes)

    def _unsigned(self, nodes: tuple[Expr, ...]) -> bool:
        return all(node.fits(0, mask(self._word)) for node in nodes)

    def _signed(self, nodes: tuple[Expr, ...]) -> bool:
        return all(node.fits(-(1 << (self._word - 1)), mask(self._word - 1)) for node in nodes)

    def _too_wide(self) -> _NoVector:
        return _NoVector(f"a value may not fit into {self._word} bits where its exact value counts")

    def _arithmetic(self, op: str, columns: list[tuple[Expr, ...]]) -> Vector:
        if op == "&":
            ones = mask(self._word)
            for keep, other in ((0, 1), (1, 0)):
                if all(node.op == "const" and node.leaf & ones == ones for node in columns[other]):
                    return self._value(columns[keep])
        return self._make(_ARITHMETIC[op], self._value(columns[0]), self._value(columns[1]))

    def _sign_extend(self, value: Vector, width: int) -> Vector:
        by = self._word - width
        if by <= 0:
            return value
        return self._make("V_SAR", self._make("V_SHL", value, what=by), what=by)

    def _saturate(self, first: Expr, column: tuple[Expr, ...]) -> Vector:
        """Clamp values: the sums and differences of |+| and |-|, which may be wider than a word."""
        signed = first.op == "sat_cast"
        op = column[0].op
        if first.leaf == self._word and op in {"+", "-"} and all(node.op == op for node in column):
            sides = [tuple(node.args[i] for node in column) for i in range(2)]
            if all(map(self._signed if signed else self._unsigned, sides)):
                name = _ARITHMETIC[op] + ("SS" if signed else "US")
                return self._make(name, self._value(sides[0]), self._value(sides[1]))
        negative = self._signed(column)
        if not negative and not self._unsigned(column):
            raise self._too_wide()
        value, kind = self._value(column), "S" if negative else "U"
        width = first.leaf
        low, high = (-(1 << (width - 1)), mask(width - 1)) if signed else (0, mask(width))
        if not all(node.fits(low, mask(self._word)) for node in column):
            value = self._make("V_MAX" + kind, value, self._make("number", what=low))
        if not all(node.fits(-(1 << (self._word - 1)), high) for node in column):
            value = self._make("V_MIN" + kind, value, self._make("number", what=high))
        return value

    def _select(self, columns: list[tuple[Expr, ...]]) -> Vector:
        condition = self._mask(columns[0])
        a, b = self._value(columns[1]), self._value(columns[2])
        if condition.op in {"V_LTS", "V_LTU"}:  # x < y ? y : x is the greater
            suffix = condition.op[-1]
            if condition.args == (b, a):
                return self._make("V_MAX" + suffix, a, b)
            if condition.args == (a, b):
                return self._make("V_MIN" + suffix, a, b)
        return self._make("select", condition, a, b)

    def _shift(self, op: str, columns: list[tuple[Expr, ...]]) -> Vector:
        count = columns[1][0]
        if count.op != "const" or any(node is not count for node in columns[1]):
            raise _NoVector("a shift is not by the same constant for all")
        if not 0 <= count.leaf < self._word:
            raise _NoVector(f"a shift is by {self._word} bits or more")
        if op == "<<":
            return self._make("V_SHL", self._value(columns[0]), what=count.leaf)
        if self._unsigned(columns[0]):
            return self._make("V_SHR", self._value(columns[0]), what=count.leaf)
        if self._signed(columns[0]):
            return self._make("V_SAR", self._value(columns[0]), what=count.leaf)
        raise self._too_wide()

    def _mask(self, nodes: tuple[Expr, ...]) -> Vector:  # noqa: PLR0911 - one case after the other
        """Return truth values, as 0 or all ones."""
        first = nodes[0]
        if all(node is first for node in nodes):
            return self._make("broadcast_mask", what=first)
        if any(node.op != first.op for node in nodes):
            raise _NoVector("the conditions differ in their operators")
        if first.op not in {"and", "or", "not", "d2b", "==", "<", "<="}:
            raise _NoVector(f"vectors have no condition {first.op!r}")
        columns = [tuple(node.args[i] for node in nodes) for i in range(len(first.args))]
        if first.op in {"and", "or"}:
            name = "V_AND" if first.op == "and" else "V_OR"
            return self._make(name, self._mask(columns[0]), self._mask(columns[1]))
        if first.op == "not":
            return self._make("V_NOT", self._mask(columns[0]))
        operands = tuple(node for column in columns for node in column)
        unsigned = self._unsigned(operands)
        if not unsigned and not self._signed(operands):
            raise self._too_wide()
        if first.op == "d2b":
            zero = self._make("number", what=0)
            return self._make("V_NOT", self._make("V_EQ", self._value(columns[0]), zero))
        a, b = (self._value(column) for column in columns)
        if first.op == "==":
            return self._make("V_EQ", a, b)
        less = "V_LTU" if unsigned else "V_LTS"
        if first.op == "<":
            return self._make(less, a, b)
        return self._make("V_NOT", self._make(less, b, a))


_ARITHMETIC = {"+": "V_ADD", "-": "V_SUB", "*": "V_MUL", "|": "V_OR", "^": "V_XOR", "&": "V_AND"}
_OPERANDS = {"const": "a constant", "param": "a parameter of the action"}


def _follows(member: Field, first: Field, by: int) -> bool:
    """Return whether a field is `by` fields of the same type behind another in a packet header."""
    place = member.header, member.position, member.width, member.signed
    expected = first.header, first.position + by * first.width, first.width, first.signed
    return bool(member.element_bytes) and not member.metadata and place == expected
