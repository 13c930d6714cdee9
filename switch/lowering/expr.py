# SPDX-License-Identifier: Apache-2.0
"""Expressions as a graph of shared nodes that know the range of their value.

BMv2 computes with unbounded integers and truncates on assignment. A node's range [low, high] tells whether
64-bit arithmetic gives the same result; `None` on either side means unbounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from railweave.switch.errors import InvalidProgram

Bound = int | None

COMPARISONS = {"==", "<", "<="}
CASTS = {"two_comp_mod", "sat_cast", "usat_cast"}
BOOLEANS = COMPARISONS | {"and", "or", "not", "d2b", "header_eq"}
MAX_SHIFT = 4096  # a left shift by a variable that may be greater has no useful bound
MAX_NODES = 1 << 19  # far more than any sane program's expressions have


@dataclass(frozen=True, eq=False, slots=True)
class Expr:
    """One node. `args` are nodes; `leaf` is the object of a leaf (a field, a constant, …)."""

    op: str
    args: tuple[Expr, ...]
    leaf: Any
    low: Bound
    high: Bound
    number: int = field(default=0)
    depth: int = field(default=0)

    @property
    def is_bool(self) -> bool:
        """Return whether the value is a truth value."""
        return self.op in BOOLEANS or (self.op == "select" and self.args[1].is_bool)

    def fits(self, low: int, high: int) -> bool:
        """Return whether every value is in [low, high]."""
        return self.low is not None and self.high is not None and low <= self.low and self.high <= high

    @property
    def fits_signed64(self) -> bool:
        """Return whether int64 holds every value."""
        return self.fits(-(1 << 63), (1 << 63) - 1)

    @property
    def fits_unsigned64(self) -> bool:
        """Return whether uint64 holds every value."""
        return self.fits(0, (1 << 64) - 1)

    @property
    def fits64(self) -> bool:
        """Return whether int64 or uint64 holds every value."""
        return self.fits_signed64 or self.fits_unsigned64


def mask(width: int) -> int:
    """Return a number of `width` ones."""
    return (1 << width) - 1


def _corners(a: Expr, b: Expr, combine: Callable[[int, int], int]) -> tuple[Bound, Bound]:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None, None
    values = [combine(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(values), max(values)


def _and_range(a: Expr, b: Expr) -> tuple[Bound, Bound]:
    tops = [x.high for x in (a, b) if x.low is not None and x.low >= 0 and x.high is not None]
    if tops:
        return 0, min(tops)
    return _bitwise_range(a, b)


def _bitwise_range(a: Expr, b: Expr) -> tuple[Bound, Bound]:
    """Return the range of | and ^ (and & of negative values): two's complement of the wider operand."""
    bounds = (a.low, a.high, b.low, b.high)
    if any(bound is None for bound in bounds):
        return None, None
    bits = max(bound.bit_length() for bound in bounds if bound is not None)
    negative = any(bound < 0 for bound in bounds if bound is not None)
    return (-(1 << bits) if negative else 0), mask(bits)


def _shift_left_range(a: Expr, b: Expr) -> tuple[Bound, Bound]:
    if a.low is None or a.high is None or b.high is None or b.high > MAX_SHIFT:
        return None, None
    return min(a.low, a.low << b.high), max(a.high, a.high << b.high)


def _shift_right_range(a: Expr, b: Expr) -> tuple[Bound, Bound]:
    if a.low is None or a.high is None:
        return None, None
    least = b.low if b.low is not None and 0 <= b.low <= MAX_SHIFT else 0
    return min(a.low >> least, a.low if a.low < 0 else 0), max(a.high >> least, 0 if a.high >= 0 else -1)


_RANGES: dict[str, Callable[[Expr, Expr], tuple[Bound, Bound]]] = {
    "+": lambda a, b: _corners(a, b, lambda x, y: x + y),
    "-": lambda a, b: _corners(a, b, lambda x, y: x - y),
    "*": lambda a, b: _corners(a, b, lambda x, y: x * y),
    "&": _and_range,
    "|": _bitwise_range,
    "^": _bitwise_range,
    "<<": _shift_left_range,
    ">>": _shift_right_range,
    "/": lambda a, b: (0, a.high),
    "%": lambda a, b: (0, a.high if b.high is None else max(b.high - 1, 0)),
}


class Graph:
    """Makes nodes, each distinct one once, so that equal expressions are the same object."""

    def __init__(self) -> None:
        """Begin empty."""
        self._nodes: dict[Any, Expr] = {}

    def _node(self, op: str, args: tuple[Expr, ...], leaf: Any, low: Bound, high: Bound) -> Expr:
        key = (op, tuple(arg.number for arg in args), leaf)
        found = self._nodes.get(key)
        if found is None:
            if len(self._nodes) >= MAX_NODES:
                raise InvalidProgram(f"the program's expressions have more than {MAX_NODES} parts")
            depth = 1 + max((arg.depth for arg in args), default=0)
            found = self._nodes[key] = Expr(op, args, leaf, low, high, len(self._nodes), depth)
        return found

    def const(self, value: int) -> Expr:
        """Make a constant."""
        return self._node("const", (), value, value, value)

    def truth(self, value: bool) -> Expr:
        """Make a constant truth value."""
        return self.binary("==", self.const(1), self.const(int(value)))

    def leaf(self, op: str, what: Any, width: int, signed: bool = False) -> Expr:
        """Make a value of `width` bits from outside: a field, a parameter, …; with no bits, 0."""
        if width == 0:
            return self.const(0)
        if signed:
            return self._node(op, (), what, -(1 << (width - 1)), mask(width - 1))
        return self._node(op, (), what, 0, mask(width))

    def register(self, array: Any, index: Expr, width: int) -> Expr:
        """Make the cell of a register array as it was before the action."""
        return self._node("reg", (index,), array, 0, mask(width))

    def binary(self, op: str, a: Expr, b: Expr) -> Expr:
        """Make integer arithmetic, a comparison, or a logical `and` or `or`."""
        if op in {">", ">="}:
            return self.binary("<" if op == ">" else "<=", b, a)
        if op == "!=":
            return self.negate(self.binary("==", a, b))
        if op in COMPARISONS | {"and", "or"}:
            return self._node(op, (a, b), None, 0, 1)
        if op == "&":
            for x, y in ((a, b), (b, a)):  # a mask that keeps every bit
                if y.op == "const" and y.leaf >= 0 and y.leaf & (y.leaf + 1) == 0 and x.fits(0, y.leaf):
                    return x
        if op in {"<<", ">>"} and b.high is not None and b.high < 0:
            raise InvalidProgram(f"a shift by {b.high}, which is negative")
        low, high = _RANGES[op](a, b)
        return self._node(op, (a, b), None, low, high)

    def invert(self, a: Expr) -> Expr:
        """Make a bitwise complement."""
        bounded = a.low is not None and a.high is not None
        return self._node("~", (a,), None, ~a.high if bounded else None, ~a.low if bounded else None)  # type: ignore[operator]

    def negate(self, a: Expr) -> Expr:
        """Make a logical not."""
        return a.args[0] if a.op == "not" else self._node("not", (a,), None, 0, 1)

    def to_bool(self, a: Expr) -> Expr:
        """Make the truth value that a number is not zero."""
        return a if a.is_bool else a.args[0] if a.op == "b2d" else self._node("d2b", (a,), None, 0, 1)

    def to_data(self, a: Expr) -> Expr:
        """Make the number 0 or 1 of a truth value."""
        return self._node("b2d", (a,), None, 0, 1) if a.is_bool else a

    def wrap(self, a: Expr, width: int, signed: bool) -> Expr:
        """Make `a` modulo 2^width, unsigned or in two's complement."""
        if not signed or width == 0:
            return self.binary("&", a, self.const(mask(width)))
        return self.cast("two_comp_mod", a, width)

    def cast(self, op: str, a: Expr, width: int) -> Expr:
        """Make `a` in two's complement of `width` bits, or clamped to their range (sat_cast, usat_cast)."""
        low, high = (0, mask(width)) if op == "usat_cast" else (-(1 << (width - 1)), mask(width - 1))
        return a if a.fits(low, high) else self._node(op, (a,), width, low, high)

    def select(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        """Make `condition ? a : b`."""
        if a is b:
            return a
        low = None if a.low is None or b.low is None else min(a.low, b.low)
        high = None if a.high is None or b.high is None else max(a.high, b.high)
        return self._node("select", (condition, a, b), None, low, high)

    def header_equal(self, a: Any, b: Any) -> Expr:
        """Make the truth value that two headers are valid and have equal contents."""
        return self._node("header_eq", (), (a, b), 0, 1)


UNARY = {"not": Graph.negate, "~": Graph.invert, "d2b": Graph.to_bool, "b2d": Graph.to_data}
