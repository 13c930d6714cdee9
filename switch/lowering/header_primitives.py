# SPDX-License-Identifier: Apache-2.0
"""Primitives that assign: fields, headers, unions and stacks, and their validity."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.actions import Assign, Choice, Effect, Statement
from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.fields import Field, Header, Union
from railweave.switch.lowering.read import ExpressionReader
from railweave.switch.lowering.source import get, unsupported

Choices = list[tuple[Expr | None, Any]]
MAX_ALTERNATIVES = 1 << 16  # of all statements together that an index at run time decides


class HeaderPrimitives:
    """One method per primitive; each gives the statements of a call."""

    def __init__(self, expressions: ExpressionReader) -> None:
        """Read operands with `expressions`."""
        self.expressions = expressions
        self._alternatives = 0

    # Operands.

    def _field(self, item: Any, place: str) -> Field:
        if get(item, "type", str, place) != "field":
            raise unsupported(f"an assignment to a {item['type']!r}", item, place)
        return self.expressions.headers.field(item.get("value"), place)

    def _number(self, item: Any, place: str) -> Expr:
        return self.expressions.number(item, place)

    def _header(self, item: Any, place: str) -> Header:
        if get(item, "type", str, place) != "header":
            raise unsupported(f"a header named by a {item['type']!r}", item, place)
        return self.expressions.headers.header(item.get("value"), place)

    def _union(self, item: Any, place: str) -> Union:
        if get(item, "type", str, place) != "header_union":
            raise unsupported(f"a {item['type']!r} where a header union is expected", item, place)
        return self.expressions.headers.union(item.get("value"), place)

    def _each(self, choices: Choices, make: Callable[[Any], list[Statement]]) -> list[Statement]:
        """Return the statements that `make` gives for the alternative, or a choice among several."""
        if len(choices) == 1 and choices[0][0] is None:
            return make(choices[0][1])
        self._alternatives += len(choices)
        if self._alternatives > MAX_ALTERNATIVES:
            raise InvalidProgram("indexes at run time have too many alternatives")
        always = self.expressions.graph.truth(value=True)
        return [Choice(tuple((when or always, tuple(make(what))) for when, what in choices))]

    # Fields.

    def assign(self, args: list[Any], place: str) -> list[Statement]:
        """Translate assign(field, value). A stack's element may be chosen at run time."""
        source = args[1]
        if get(source, "type", str, place) == "field":
            member = self.expressions.places(source, place)[0][1]
            if member.variable:
                return self.assign_variable(args, place)
        value = self._number(source, place)
        return self._each(self.expressions.places(args[0], place), lambda member: self._store(member, value))

    def _store(self, member: Field, value: Expr) -> list[Statement]:
        if member.variable:
            raise InvalidProgram(f"a number is assigned to the variable field {member.header}.{member.name}")
        return [Assign(member, value)]

    def assign_variable(self, args: list[Any], place: str) -> list[Statement]:
        """Translate assign_VL(to, from). The length is copied with the contents."""
        to, source = (self._field(arg, place) for arg in args)
        if not to.variable or not source.variable:
            raise InvalidProgram(f"{place}: a field of fixed length in an assignment of variable fields")
        return [Effect("VL_COPY", (to, source))]

    # Headers.

    def assign_header(self, args: list[Any], place: str) -> list[Statement]:
        """Translate assign_header(to, from)."""
        choices = [self.expressions.header_choices(arg, place) for arg in args]
        if len(choices[0]) * len(choices[1]) > MAX_ALTERNATIVES:
            raise unsupported("an assignment between elements of stacks as large as these", args[0], place)
        guard = self.expressions.both
        pairs: Choices = [(guard(a, b), (to, source)) for (a, to), (b, source) in product(*choices)]
        return self._each(pairs, lambda pair: self._copy(pair[0], pair[1], place))

    def _copy(self, to: Header, source: Header, place: str) -> list[Statement]:
        if to.type_name != source.type_name or to.metadata != source.metadata:
            raise InvalidProgram(f"{place}: headers of different types")
        if not to.metadata:
            return [Effect("HDR_COPY", (to.name, source.name)), *self.hide_others(to, source)]
        result: list[Statement] = []
        for a, b in zip(to.fields.values(), source.fields.values(), strict=True):
            if a.variable:
                result.append(Effect("VL_COPY", (a, b)))
            elif not a.is_valid_bit:
                result.append(Assign(a, self.expressions.load(b)))
        return result

    def hide_others(self, header: Header, source: Header | None = None) -> list[Statement]:
        """Make the other headers of a union invalid if this header (like `source`) becomes valid."""
        union = self.expressions.headers.union_of.get(header.name)
        others = [other.name for other in union.headers if other is not header] if union else []
        hide: tuple[Statement, ...] = tuple(Effect("HDR_HIDE", (name,)) for name in others)
        if not hide or source is None:
            return list(hide)
        return [Choice(((self.expressions.is_valid(source), hide),))]

    def add_header(self, args: list[Any], place: str) -> list[Statement]:
        """Make a header valid; its fields are 0 if it was not."""
        return self._each(
            self.expressions.header_choices(args[0], place),
            lambda header: (
                [] if header.metadata else [Effect("HDR_ADD", (header.name,)), *self.hide_others(header)]
            ),
        )

    def remove_header(self, args: list[Any], place: str) -> list[Statement]:
        """Make a header invalid."""
        return self._each(
            self.expressions.header_choices(args[0], place),
            lambda header: [] if header.metadata else [Effect("HDR_REMOVE", (header.name,))],
        )

    # Unions and stacks.

    def assign_union(self, args: list[Any], place: str) -> list[Statement]:
        """Translate assign_union(to, from)."""
        to, source = (self._union(arg, place) for arg in args)
        if to.type_name != source.type_name:
            raise InvalidProgram(f"{place}: unions of different types")
        pairs = zip(to.headers, source.headers, strict=True)
        return [statement for a, b in pairs for statement in self._copy(a, b, place)]

    def assign_stack(self, args: list[Any], place: str) -> list[Statement]:
        """Translate assign_header_stack(to, from) and assign_union_stack(to, from)."""
        to, source = (self.expressions.stack(arg, place) for arg in args)
        shapes = [[header.type_name for header in stack.elements[0]] for stack in (to, source)]
        if shapes[0] != shapes[1] or len(to.elements) != len(source.elements):
            raise InvalidProgram(f"{place}: stacks of different types")
        return [Effect("STACK_COPY", (to.index, source.index))]

    def shift_stack(self, kind: str, args: list[Any], place: str) -> list[Statement]:
        """Translate push(stack, count) and pop(stack, count)."""
        stack = self.expressions.stack(args[0], place)
        return [Effect(kind, (stack.index,), (self._number(args[1], place),))]
