# SPDX-License-Identifier: Apache-2.0
"""Code as it is emitted: instructions, labels, constants, temporary registers and trace notes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from railweave._native.engine import OPS
from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.expr import Graph, mask
from railweave.switch.lowering.fields import Headers
from railweave.switch.lowering.layout import Layout

LOW64 = mask(64)
MAX_INSTRUCTIONS = 1 << 20


@dataclass(eq=False)
class Label:
    """A place in the code, known once `place` has been called."""

    pc: int | None = None


@dataclass(frozen=True)
class Constant:
    """A preset register; its number is known when all constants are."""

    index: int


Operand = int | Constant | Label


@dataclass(frozen=True)
class Note:
    """One kind of event at one place of the program, for traces.

    `kind` is a word such as `state`, `extract`, `set`. `name` is the object's. `labels` name the values.
    """

    kind: str
    name: str
    labels: tuple[str, ...] = ()


@dataclass
class Code:
    """Appends instructions; one scope of temporaries per piece of code."""

    graph: Graph
    headers: Headers
    layout: Layout
    code: list[tuple[int, list[Operand]]] = field(default_factory=list)
    constants: dict[int, Constant] = field(default_factory=dict)
    wide_constants: dict[tuple[int, ...], int] = field(default_factory=dict)
    slices: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    limbs: int = 1
    registers: int = 0  # most temporaries of any scope
    wides: int = 0
    vectors: int = 0
    vector_length: int = 0  # elements of the longest
    parameter_words: int = 1
    notes: list[Note] | None = None  # None: the code is not for tracing
    names: dict[str, list[str]] = field(default_factory=dict)  # of the objects of effects, by kind
    where: str = "program"
    # Registers of the values that this scope has computed, by node.
    known: dict[int, Operand] = field(default_factory=dict)
    known_wide: dict[int, int] = field(default_factory=dict)
    _next: int = 0
    _next_wide: int = 0

    # Code and scopes.

    def op(self, name: str, *operands: Operand) -> None:
        """Append an instruction with the operands d, a, b, c; operands left out are 0."""
        assert len(operands) <= 4, name  # noqa: S101 - a mistake of this package
        if len(self.code) >= MAX_INSTRUCTIONS:
            raise InvalidProgram(f"{self.where}: the program has more than {MAX_INSTRUCTIONS} instructions")
        self.code.append((OPS[name][0], [*operands, *[0] * (4 - len(operands))]))

    def place(self, label: Label) -> None:
        """Bind the label to the next instruction."""
        label.pc = len(self.code)

    def scope(self) -> None:
        """Forget temporaries: nothing computed so far is used again."""
        self._next = self._next_wide = 0
        self.known, self.known_wide = {}, {}

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Emit code that does not run into the following code, which cannot use its temporaries."""
        known = self._next, self._next_wide, dict(self.known), dict(self.known_wide)
        yield
        self._next, self._next_wide, self.known, self.known_wide = known

    def fresh(self) -> int:
        """Return a new temporary."""
        self._next += 1
        self.registers = max(self.registers, self._next)
        if self.registers > 0xF000:
            raise InvalidProgram(f"{self.where}: one action computes too much")
        return self._next - 1

    def fresh_wide(self) -> int:
        """Return a new wide temporary."""
        self._next_wide += 1
        self.wides = max(self.wides, self._next_wide)
        if self.wides > 0xF00:
            raise InvalidProgram(f"{self.where}: one action computes too much with wide numbers")
        return self._next_wide - 1

    def constant(self, value: int) -> Constant:
        """Return the register preset to `value` modulo 2^64."""
        return self.constants.setdefault(value & LOW64, Constant(len(self.constants)))

    def wide_constant(self, value: int, bits: int) -> int:
        """Index of a constant of `bits` bits or more."""
        limbs = max(1, -(-bits // 64))
        self.limbs = max(self.limbs, limbs)
        words = tuple((value >> (64 * i)) & LOW64 for i in range(limbs))
        return self.wide_constants.setdefault(words, len(self.wide_constants))
