# SPDX-License-Identifier: Apache-2.0
"""Straight-line pieces of actions, executed on symbols.

The result gives the new value of every field and register cell as an expression of the old values. Copies
vanish, and `if` becomes `select`. So hundreds of statements from p4c become expressions of equal shape, which
`vectors.py` turns into vector instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from railweave.switch.lowering.actions import (
    Assign,
    Choice,
    Effect,
    Jump,
    RegisterRead,
    RegisterWrite,
    Statement,
)
from railweave.switch.lowering.expr import CASTS, UNARY, Expr, Graph
from railweave.switch.lowering.fields import Field
from railweave.switch.program import ArrayInfo

MAX_DEPTH = 150  # of expressions: functions that visit them make one call per level
MAX_WORK = 1 << 21  # fields visited where paths fork and join; beyond that, fusing is not worth the time
TOO_DEEP = "the expressions are too deep"
_UNPAIRED = "the branches do not join in pairs"


@dataclass(frozen=True)
class Summary:
    """The effect of a piece of code, if every register index is in range."""

    fields: dict[Field, Expr]
    registers: dict[ArrayInfo, tuple[Expr, Expr]]  # index, value
    indexes: dict[tuple[ArrayInfo, Expr], None]  # that must be in range, in order

    def leaves(self) -> set[Field]:
        """Return the fields whose value before the piece matters."""
        roots = [*self.fields.values(), *(index for _, index in self.indexes)]
        for index, value in self.registers.values():
            roots += [index, value]
        return fields_in(roots)


@dataclass(frozen=True)
class Piece:
    """A part of an action, and its summary or the reason why it has none."""

    statements: list[Statement]
    summary: Summary | None
    why: str = ""


class _Inexpressible(Exception):
    """The piece is executed statement by statement instead; the message says why."""


@dataclass
class _State:
    fields: dict[Field, Expr] = field(default_factory=dict)
    registers: dict[ArrayInfo, tuple[Expr, Expr]] = field(default_factory=dict)
    path: tuple[Expr, ...] = ()

    def fork(self, condition: Expr) -> _State:
        return _State(dict(self.fields), dict(self.registers), (*self.path, condition))


def fields_in(roots: list[Expr]) -> set[Field]:
    """Return all fields that expressions read."""
    found: set[Field] = set()
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.number in seen:
            continue
        seen.add(node.number)
        if node.op == "field":
            found.add(node.leaf)
        stack.extend(node.args)
    return found


def summarise(graph: Graph, statements: list[Statement]) -> list[Piece]:
    """Return an action in pieces. Pieces that only write fields and registers get a summary if possible."""
    return [
        _summary(graph, block)
        if pure and len(block) > 1
        else Piece(block, None, "the action has other effects")
        for pure, block in _split(statements)
    ]


def _split(statements: list[Statement]) -> list[tuple[bool, list[Statement]]]:
    """Cut an action where no jump crosses; True marks pieces without other effects.

    Jump targets in the pieces count from their beginning.
    """
    pieces: list[tuple[bool, list[Statement]]] = []
    start = 0
    for end in _cuts(statements):
        block = [_shift(statement, start) for statement in statements[start:end]]
        pure = not any(isinstance(statement, (Effect, Choice)) for statement in block)
        if pieces and pieces[-1][0] == pure:
            base = len(pieces[-1][1])
            pieces[-1][1].extend(_shift(statement, -base) for statement in block)
        else:
            pieces.append((pure, block))
        start = end
    return pieces


def _cuts(statements: list[Statement]) -> list[int]:
    """Return the positions over which no jump goes, including the end."""
    crossed = [0] * (len(statements) + 2)  # differences of the number of jumps over a position
    for position, statement in enumerate(statements):
        if isinstance(statement, Jump):
            first, last = sorted((position, statement.target))
            crossed[first + 1] += 1
            crossed[max(last, position + 1)] -= 1
    cuts, depth = [], 0
    for position in range(1, len(statements) + 1):
        depth += crossed[position]
        if depth == 0:
            cuts.append(position)
    return cuts


def _shift(statement: Statement, by: int) -> Statement:
    return Jump(statement.target - by, statement.condition) if isinstance(statement, Jump) else statement


def _summary(graph: Graph, statements: list[Statement]) -> Piece:
    """Summarise statements without other effects, if their effect has a simple form."""
    try:
        return Piece(statements, _Execution(graph).run(statements))
    except _Inexpressible as reason:
        return Piece(statements, None, str(reason))
    except RecursionError:
        return Piece(statements, None, TOO_DEEP)


class _Execution:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.work = 0
        self.indexes: dict[tuple[ArrayInfo, Expr], None] = {}

    def run(self, statements: list[Statement]) -> Summary:
        pending: dict[int, list[_State]] = {}
        state: _State | None = _State()
        for position, statement in enumerate(statements):
            state = self._join(state, pending.pop(position, []))
            if state is None:
                continue
            if isinstance(statement, Jump):
                if statement.target <= position:
                    raise _Inexpressible("the action has a loop")
                state = self._jump(state, statement, pending)
            else:
                self._execute(state, statement)
        state = self._join(state, [other for states in pending.values() for other in states])
        if state is None or state.path:
            raise _Inexpressible(_UNPAIRED)
        return Summary(state.fields, state.registers, self.indexes)

    def _jump(self, state: _State, jump: Jump, pending: dict[int, list[_State]]) -> _State | None:
        self._spend(state)
        waiting = pending.setdefault(jump.target, [])
        if jump.condition is None:
            waiting.append(state)
            return None
        condition = self._substitute(jump.condition, state)
        waiting.append(state.fork(self.graph.negate(condition)))
        return state.fork(condition)

    def _join(self, state: _State | None, others: list[_State]) -> _State | None:
        states = [*others, state] if state is not None else list(others)
        while len(states) > 1:
            second, first = states.pop(), states.pop()
            states.append(self._merge(first, second))
        return states[0] if states else None

    def _merge(self, a: _State, b: _State) -> _State:
        if not a.path or a.path[:-1] != b.path[:-1] or a.path[-1] is not self.graph.negate(b.path[-1]):
            raise _Inexpressible(_UNPAIRED)
        if a.path[-1].op == "not":
            a, b = b, a
        condition = a.path[-1]
        self._spend(a, b)
        merged = _State(dict(a.fields), dict(a.registers), a.path[:-1])
        for member in {**a.fields, **b.fields}:
            x, y = (
                state.fields.get(member) or self.graph.leaf("field", member, member.width, member.signed)
                for state in (a, b)
            )
            if x is not y:
                merged.fields[member] = self._bounded(self.graph.select(condition, x, y))
        for array in {**a.registers, **b.registers}:
            merged.registers[array] = self._merge_cell(condition, array, a, b)
        return merged

    def _merge_cell(self, condition: Expr, array: ArrayInfo, a: _State, b: _State) -> tuple[Expr, Expr]:
        index, _ = a.registers.get(array) or b.registers[array]
        values = []
        for state in (a, b):
            cell = state.registers.get(array, (index, self.graph.register(array, index, array.width)))
            if cell[0] is not index:
                raise _Inexpressible("the branches use a register at different indexes")
            values.append(cell[1])
        return index, self._bounded(self.graph.select(condition, values[0], values[1]))

    @staticmethod
    def _bounded(value: Expr) -> Expr:
        if value.depth > MAX_DEPTH:
            raise _Inexpressible(TOO_DEEP)
        return value

    def _spend(self, *states: _State) -> None:
        self.work += sum(len(state.fields) + len(state.registers) for state in states)
        if self.work > MAX_WORK:
            raise _Inexpressible("the action has too many branches")

    def _execute(self, state: _State, statement: Statement) -> None:
        if isinstance(statement, Assign):
            value = self._substitute(statement.value, state)
        elif isinstance(statement, RegisterRead):
            value = self._read(state, statement.array, self._substitute(statement.index, state))
        elif isinstance(statement, RegisterWrite):
            array, index = statement.array, self._substitute(statement.index, state)
            if array in state.registers and state.registers[array][0] is not index:
                raise _Inexpressible("the action writes a register at different indexes")
            value = self.graph.wrap(self._substitute(statement.value, state), array.width, signed=False)
            state.registers[array] = (index, self._bounded(value))
            self.indexes[array, index] = None
            return
        else:
            raise _Inexpressible("the action has other effects")
        target = statement.target
        state.fields[target] = self._bounded(self.graph.wrap(value, target.width, target.signed))

    def _read(self, state: _State, array: ArrayInfo, index: Expr) -> Expr:
        self.indexes[array, index] = None
        if array not in state.registers:
            return self.graph.register(array, index, array.width)
        written_at, value = state.registers[array]
        if written_at is not index:
            raise _Inexpressible("the action reads a register at another index than it wrote")
        return value

    def _substitute(self, node: Expr, state: _State) -> Expr:
        if node.op == "field":
            return state.fields.get(node.leaf, node)
        if not node.args:
            if node.op == "header_eq":
                raise _Inexpressible("the action compares headers")  # their fields may have changed
            return node
        args = tuple(self._substitute(arg, state) for arg in node.args)
        if all(new is old for new, old in zip(args, node.args, strict=True)):
            return node
        return rebuild(self.graph, node, args)


def rebuild(graph: Graph, node: Expr, args: tuple[Expr, ...]) -> Expr:
    """Return `node` with other arguments."""
    if node.op in UNARY:
        return UNARY[node.op](graph, *args)
    if node.op in CASTS:
        return graph.cast(node.op, args[0], node.leaf)
    if node.op == "reg":
        return graph.register(node.leaf, args[0], node.leaf.width)
    return graph.select(*args) if node.op == "select" else graph.binary(node.op, *args)
