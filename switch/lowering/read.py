# SPDX-License-Identifier: Apache-2.0
"""BMv2's "type value objects" and expressions, read into graph nodes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.expr import BOOLEANS, CASTS, UNARY, Expr, Graph
from railweave.switch.lowering.fields import Field, Header, Headers, Stack
from railweave.switch.lowering.source import MAX_BITS, check, get, hexstr, natural, pair, unsupported, where
from railweave.switch.program import Parameter

Elements = list[tuple[Expr | None, tuple[Header, ...]]]  # of a stack, each with its guard

MAX_DEPTH = 200  # of nested expressions; p4c's stay far below
MAX_CHAIN = 32  # alternatives in one chain of selects
PLACES = {"field", "stack_field", "union_stack_field", "expression"}  # what `places` reads
BINARY = set("+-*/%&|^") | {"<<", ">>", "<", "<=", ">", ">=", "==", "!=", "and", "or"}
AGGREGATES = {"dereference_header_stack", "dereference_stack", "access_union_header"}


def _unwrapped(item: Any, place: str) -> Any:
    """Return an operand without the expressions that wrap it, as p4c does with parameters of primitives."""
    for _ in range(MAX_DEPTH):
        content = item.get("value") if isinstance(item, dict) and item.get("type") == "expression" else None
        if not isinstance(content, dict) or "op" in content or "type" not in content:
            return item
        item = content
    raise InvalidProgram(f"{place}: expressions nested too deeply")


def _names_element(content: Any) -> bool:
    """Return whether a field's header is an element that is chosen at run time."""
    return isinstance(content, list) and len(content) == 2 and isinstance(content[0], dict)


class ExpressionReader:
    """Reads expressions in the scope of one action's parameters."""

    def __init__(self, graph: Graph, headers: Headers) -> None:
        """Look up names in `headers`."""
        self.graph = graph
        self.headers = headers
        self.parameters: tuple[Parameter, ...] = ()  # of the action that is being read

    def load(self, member: Field) -> Expr:
        """Return the value of a field."""
        if member.is_valid_bit and member.metadata:
            return self.graph.const(1)
        if member.variable:
            return self.graph.leaf("variable", member, member.width)
        return self.graph.leaf("field", member, member.width, member.signed)

    def value(self, item: Any, place: str, depth: int = 0) -> Expr:
        """Read a number or a truth value."""
        if depth > MAX_DEPTH:
            raise InvalidProgram(f"{place}: expressions nested too deeply")
        item = _unwrapped(item, place)
        kind = get(item, "type", str, place)
        content = item.get("value")
        if kind == "expression" and check(content, dict, place).get("op") != "access_field":
            return self._operation(content, place, depth + 1)
        if kind == "field" and not _names_element(content):
            return self.load(self.headers.field(content, place))
        if kind == "hexstr":
            return self.graph.const(hexstr(content, place))
        if kind == "bool":
            return self.graph.truth(check(content, bool, place))
        if kind in {"runtime_data", "local"}:
            index = check(content, int, place)
            if not 0 <= index < len(self.parameters):
                parameters = f"an action that has {len(self.parameters)}"
                raise InvalidProgram(f"{place}: parameter {index} of {parameters}")
            return self.graph.leaf("param", self.parameters[index], self.parameters[index].bitwidth)
        if kind in PLACES:
            return self._chosen([(when, self.load(member)) for when, member in self.places(item, place)])
        raise unsupported(f"an operand of type {kind!r}", item, place)

    def _operation(self, item: dict[str, Any], place: str, depth: int) -> Expr:  # noqa: PLR0911 - one case after the other
        op = get(item, "op", str, place)
        graph = self.graph

        def left() -> Expr:
            return self.value(item.get("left"), place, depth)

        def right() -> Expr:
            return self.value(item.get("right"), place, depth)

        if op in {"+", "-"} and item.get("left") is None:
            return graph.binary(op, graph.const(0), right())
        if op in {"==", "!="} and self._is_aggregate(item.get("left")):
            equal = self._equal_aggregates(item.get("left"), item.get("right"), place)
            return equal if op == "==" else graph.negate(equal)
        if op in BINARY:
            return graph.binary(op, left(), right())
        if op in UNARY:
            return UNARY[op](graph, right())
        if op == "?":
            return graph.select(self.value(item.get("cond"), place, depth), left(), right())
        if op in CASTS:
            value, width = left(), right()
            if width.op != "const" or not 1 <= width.leaf <= MAX_BITS:
                raise InvalidProgram(f"{place}: {op} needs a constant width")
            return graph.cast(op, value, width.leaf)
        if op == "valid":
            choices = self.header_choices(item.get("right"), place)
            return self._any((when, self.is_valid(header)) for when, header in choices)
        if op == "valid_union":
            union = self.headers.union(get(item.get("right"), "value", str, place), place)
            return self._any((None, self.is_valid(header)) for header in union.headers)
        if op == "size_stack":
            return self._count(self.stack(item.get("right"), place))
        if op == "last_stack_index":
            # One less than the count of extracted elements, in 64 bits without sign as in BMv2.
            count = self._count(self.stack(item.get("right"), place))
            return graph.wrap(graph.binary("-", count, graph.const(1)), 64, signed=False)
        raise unsupported(f"the operation {op!r}", item, place)

    def is_valid(self, header: Header) -> Expr:
        """Return the truth value that a header is valid."""
        return self.graph.to_bool(self.load(header.valid))

    def _count(self, stack: Stack) -> Expr:
        return self.graph.leaf("stack_count", stack.name, 32)

    def _any(self, conditions: Iterable[tuple[Expr | None, Expr]]) -> Expr:
        """Return the truth value that any value holds together with its guard."""
        found: Expr | None = None
        for when, value in conditions:
            term = value if when is None else self.graph.binary("and", when, value)
            found = term if found is None else self.graph.binary("or", found, term)
        return found if found is not None else self.graph.truth(value=False)

    def _chosen(self, choices: list[tuple[Expr | None, Expr]]) -> Expr:
        """Return the value whose guard holds; 0 if no guard holds (BMv2 ends there)."""
        if len(choices) > MAX_CHAIN:  # halves, or the expression would become too deep
            halves = (choices[: len(choices) // 2], choices[len(choices) // 2 :])
            return self.graph.binary("|", *(self._chosen(half) for half in halves))
        result = self.graph.const(0)
        for when, value in reversed(choices):
            result = value if when is None else self.graph.select(when, value, result)
        return result

    # References that an index decides at run time: alternatives, each with its guard (None: always).

    def stack(self, item: Any, place: str) -> Stack:
        """Return the stack of headers or of unions that an operand names."""
        kind, name = get(item, "type", str, place), item.get("value")
        if kind == "header_union_stack":
            return self.headers.union_stack(name, place)
        if kind != "header_stack":
            raise unsupported(f"a {kind!r} where a header stack is expected", item, place)
        return self.headers.stack(name, place)

    def _elements(self, stack: Stack, index: Expr, first: int = 0) -> Elements:
        """Return a stack's elements with guards: `index` is the element's number, counted from `first`."""
        equal = (self.graph.binary("==", index, self.graph.const(n)) for n in itertools.count(first))
        return list(zip(equal, stack.elements, strict=False))

    def _last_element(self, stack: Stack) -> Elements:
        return self._elements(stack, self._count(stack), first=1)

    def _element_choices(self, item: Any, place: str, depth: int) -> Elements:
        """Return the elements that a dereference of a stack can mean."""
        stack = self.stack(get(item, "left", dict, place), place)
        return self._elements(stack, self.value(item.get("right"), place, depth))

    def header_choices(self, item: Any, place: str, depth: int = 0) -> list[tuple[Expr | None, Header]]:
        """Return the headers that a reference to a header can mean."""
        if depth > MAX_DEPTH:
            raise InvalidProgram(f"{place}: expressions nested too deeply")
        item = _unwrapped(item, place)
        kind, content = get(item, "type", str, place), item.get("value")
        if kind == "header":
            return [(None, self.headers.header(content, place))]
        if kind == "stack_field" and isinstance(content, list) and content[1:] == ["last"]:
            elements = self._last_element(self.headers.stack(content[0], place))
            return [(when, element[0]) for when, element in elements]
        if kind != "expression" or not isinstance(content, dict):
            raise unsupported(f"a header named by a {kind!r}", item, place)
        op = get(content, "op", str, place)
        if op in {"dereference_header_stack", "dereference_stack"}:
            return [(when, element[0]) for when, element in self._element_choices(content, place, depth + 1)]
        if op == "access_union_header":
            return self._union_header_choices(content, place, depth + 1)
        raise unsupported(f"a header named by {op!r}", item, place)

    def _union_header_choices(self, item: Any, place: str, depth: int) -> list[tuple[Expr | None, Header]]:
        inner = get(item.get("left"), "value", dict, place)
        if inner.get("op") != "dereference_union_stack":
            raise unsupported(f"a header union named by {inner.get('op')!r}", item, place)
        elements = self._element_choices(inner, place, depth)
        number = natural(item, "right", place, len(elements[0][1]))
        return [(when, element[number]) for when, element in elements]

    def places(self, item: Any, place: str) -> list[tuple[Expr | None, Field]]:
        """Return the fields that a reference to a field can mean."""
        kind, content = get(item, "type", str, place), item.get("value")
        if kind == "field":
            if not _names_element(content):
                return [(None, self.headers.field(content, place))]
            element, name = check(content, list, place)
            headers = self.header_choices({"type": "expression", "value": element}, place)
        elif kind == "stack_field":
            stack_name, name = pair(content, place)
            elements = self._last_element(self.headers.stack(stack_name, place))
            headers = [(when, element[0]) for when, element in elements]
        elif kind == "union_stack_field":
            headers, name = self._last_of_unions(content, place)
        else:
            return self._accessed_field(item, place)
        return [(when, self.headers.field([header.name, name], place)) for when, header in headers]

    def _last_of_unions(self, content: Any, place: str) -> tuple[list[tuple[Expr | None, Header]], str]:
        parts = check(content, list, place)
        if len(parts) != 3 or not all(isinstance(part, str) for part in parts):
            raise InvalidProgram(f"{place}: {parts!r:.60}", "[stack, header, field]")
        stack = self.headers.union_stack(parts[0], place)
        number = stack.member(parts[1], place)
        return [(when, element[number]) for when, element in self._last_element(stack)], parts[2]

    def _accessed_field(self, item: Any, place: str) -> list[tuple[Expr | None, Field]]:
        content = get(_unwrapped(item, place), "value", dict, place)
        if content.get("op") != "access_field":
            raise unsupported(f"an assignment to {content.get('op', content.get('type'))!r}", item, place)
        headers = self.header_choices(content.get("left"), place)
        names = [name for name, member in headers[0][1].fields.items() if not member.is_valid_bit]
        name = names[natural(content, "right", place, len(names))]
        return [(when, header.fields[name]) for when, header in headers]

    # Comparison of headers and unions.

    def _is_aggregate(self, item: Any) -> bool:
        """Return whether an operand is a header or a union."""
        item = _unwrapped(item, "expression")
        if not isinstance(item, dict):
            return False
        content = item.get("value")
        if item.get("type") == "expression" and isinstance(content, dict):
            return str(content.get("op")) in AGGREGATES
        return str(item.get("type")) in {"header", "header_union"}

    def _equal_aggregates(self, left: Any, right: Any, place: str) -> Expr:
        if get(left, "type", str, place) == "header_union":
            first, second = (self.headers.union(get(x, "value", str, place), place) for x in (left, right))
            if first.type_name != second.type_name:
                raise InvalidProgram(f"{place}: unions of different types are compared")
            pairs = zip(first.headers, second.headers, strict=True)
            return self._any((None, self._equal_headers(a, b, place)) for a, b in pairs)
        return self._any(
            (self.both(when, also), self._equal_headers(a, b, place))
            for when, a in self.header_choices(left, place)
            for also, b in self.header_choices(right, place)
        )

    def both(self, a: Expr | None, b: Expr | None) -> Expr | None:
        """Return the guard that both guards hold."""
        return b if a is None else a if b is None else self.graph.binary("and", a, b)

    def _equal_headers(self, a: Header, b: Header, place: str) -> Expr:
        if a.type_name != b.type_name or a.metadata != b.metadata:
            raise InvalidProgram(f"{place}: headers of different types are compared")
        if not a.metadata:
            return self.graph.header_equal(a.name, b.name)
        result = self.graph.truth(value=True)
        for name, member in a.fields.items():
            equal = self.graph.binary("==", self.load(member), self.load(b.fields[name]))
            result = self.graph.binary("and", result, equal)
        return result

    def condition(self, item: Any, place: str) -> Expr:
        """Read a truth value."""
        result = self.value(item, where(item, place))
        if not result.is_bool:
            raise InvalidProgram(f"{place}: a number", "a condition")
        return result

    def number(self, item: Any, place: str) -> Expr:
        """Read a number."""
        result = self.value(item, place)
        return self.graph.to_data(result) if result.op in BOOLEANS or result.is_bool else result
