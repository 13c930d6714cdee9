# SPDX-License-Identifier: Apache-2.0
"""Random expressions of every width, and their variables."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

WIDTHS = (1, 3, 5, 8, 9, 13, 16, 24, 31, 32, 33, 48, 57, 63, 64, 65, 72, 100, 128)
WIDE = (200, 256, 512, 1000, 2048)


def some_width(rng: random.Random, least: int = 1) -> int:
    """Return a width in bits, rarely one of more than 128."""
    if rng.random() < 0.03:
        return rng.choice(WIDE)
    return rng.choice([width for width in WIDTHS if width >= least])


@dataclass(frozen=True)
class Variable:
    """A variable. It has a value only if the condition `guard` holds, such as a header's validity."""

    name: str
    width: int
    signed: bool = False
    writable: bool = True
    guard: str | None = None


@dataclass(frozen=True)
class Scope:
    """The variables and conditions that a piece of code can use, and a random generator."""

    rng: random.Random
    variables: tuple[Variable, ...]
    conditions: tuple[str, ...] = ()  # boolean expressions, such as h.b.isValid()

    def plus(self, *more: Variable) -> Scope:
        """Return this scope with further variables."""
        return replace(self, variables=(*self.variables, *more))

    def target(self, unsigned: bool = False) -> Variable:
        """Return a variable that code may write without a condition."""
        return self.rng.choice(
            [v for v in self.variables if v.writable and not v.guard and not (unsigned and v.signed)]
        )

    # Leaves.

    def constant(self, width: int, signed: bool) -> str:
        """Return a constant, often 0, 1, the least or the greatest value."""
        value = self.rng.choice((0, 1, (1 << width) - 1, 1 << (width - 1), self.rng.getrandbits(width)))
        if not signed:
            return f"{width}w{value}"
        return f"((int<{width}>){width}w{value})"

    def leaf(self, width: int, signed: bool) -> str:
        """Return a constant or a variable, converted to this width and type."""
        if self.rng.random() < 0.2:
            return self.constant(width, signed)
        variable = self.rng.choice(self.variables)
        text = variable.name
        if variable.guard:
            empty = f"{variable.width}{'s' if variable.signed else 'w'}0"
            text = f"({variable.guard} ? {text} : {empty})"
        if variable.width == width and variable.signed == signed:
            return text
        if variable.signed:
            text = f"((bit<{variable.width}>){text})"
        if variable.width > width and self.rng.random() < 0.5 and not variable.guard:
            low = self.rng.randrange(variable.width - width + 1)
            text = f"{text}[{low + width - 1}:{low}]"
        elif variable.width != width:
            text = f"((bit<{width}>){text})"
        return f"((int<{width}>){text})" if signed else text

    # Expressions.

    def value(self, width: int, depth: int, signed: bool = False) -> str:  # noqa: PLR0911 - a case each
        """Return an expression of type bit<width> or int<width>."""
        kind = self.rng.random()
        if depth == 0:
            return self.leaf(width, signed)
        if kind < 0.50:
            return self._binary(width, depth - 1, signed)
        if kind < 0.60:
            shifted = self.value(width, depth - 1, signed)
            return (
                f"({shifted} {self.rng.choice(('<<', '>>'))} {self.leaf(self.rng.choice((3, 5, 8)), False)})"
            )
        if kind < 0.72:
            return f"({self.rng.choice('~-')}{self.value(width, depth - 1, signed)})"
        if kind < 0.82:
            chosen = f"{self.value(width, depth - 1, signed)} : {self.value(width, depth - 1, signed)}"
            return f"({self.condition(depth - 1)} ? {chosen})"
        if kind < 0.90 and width > 4 and not signed:
            first = self.rng.randrange(1, width)
            return f"({self.value(first, depth - 1)} ++ {self.value(width - first, depth - 1)})"
        if signed:
            return f"((int<{width}>){self.value(width, depth - 1)})"
        return f"((bit<{width}>){self.value(some_width(self.rng, 2), depth - 1)})"

    def _binary(self, width: int, depth: int, signed: bool) -> str:
        operators = ["+", "-", "*", "&", "|", "^", "|+|", "|-|"]  # p4c supports / and % only for constants
        if width == 1:
            operators = ["+", "-", "*", "&", "|", "^"]
        operator = self.rng.choice(operators)
        left, right = self.value(width, depth, signed), self.value(width, depth, signed)
        return f"({left} {operator} {right})"

    def condition(self, depth: int) -> str:
        """Return a boolean expression."""
        kind = self.rng.random()
        if depth > 0 and kind < 0.3:
            operator = self.rng.choice(("&&", "||"))
            return f"({self.condition(depth - 1)} {operator} {self.condition(depth - 1)})"
        if depth > 0 and kind < 0.4:
            return f"(!{self.condition(depth - 1)})"
        if kind < 0.6 and self.conditions:
            return self.rng.choice(self.conditions)
        width, signed = some_width(self.rng, 2), self.rng.random() < 0.4
        operator = self.rng.choice(("<", "<=", ">", ">=", "==", "!="))
        left, right = (self.value(width, min(depth, 1), signed) for _ in range(2))
        return f"({left} {operator} {right})"
