# SPDX-License-Identifier: Apache-2.0
"""BMv2's "type value objects" and expressions, read into graph nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.expr import BOOLEANS, Expr, Graph
from railweave.switch.lowering.fields import Field, Headers, Register, Stack
from railweave.switch.lowering.source import MAX_BITS, check, get, hexstr, pair, unsupported, where

MAX_DEPTH = 200  # of nested expressions; p4c's stay far below


@dataclass(frozen=True)
class RuntimeParameter:
    """A parameter of the action that is being read."""

    word: int
    width: int


class ExpressionReader:
    """Reads expressions in the scope of one action's parameters."""

    def __init__(self, graph: Graph, headers: Headers, registers: dict[str, Register]) -> None:
        """Names are looked up in `headers` and `registers`."""
        self.graph = graph
        self.headers = headers
        self.registers = registers
        self.parameters: tuple[RuntimeParameter, ...] = ()
        # What a field holds at this point of the program; symbolic execution replaces it.
        self.load: Callable[[Field], Expr] = self.initial

    def initial(self, member: Field) -> Expr:
        """The field as it is before the code that is being read."""
        if member.is_valid_bit and member.metadata:
            return self.graph.const(1)
        return self.graph.leaf("field", member, member.width, member.signed)

    def value(self, item: Any, place: str, depth: int = 0) -> Expr:  # noqa: PLR0911 - one case after the other
        """A number, or a truth value."""
        if depth > MAX_DEPTH:
            raise InvalidProgram(f"{place}: expressions nested too deeply")
        kind = get(item, "type", str, place)
        content = item.get("value")
        if kind == "expression":
            if isinstance(content, dict) and "op" not in content and "type" in content:
                return self.value(content, place, depth + 1)  # parameters of primitives are wrapped once more
            return self._operation(check(content, dict, place), place, depth + 1)
        if kind == "field":
            return self.load(self.headers.field(content, place))
        if kind == "hexstr":
            return self.graph.const(hexstr(content, place))
        if kind == "bool":
            return self.graph.binary(
                "==", self.graph.const(1), self.graph.const(int(check(content, bool, place)))
            )
        if kind in {"runtime_data", "local"}:
            return self._parameter(content, place)
        if kind == "stack_field":
            stack_name, field_name = pair(content, place)
            stack = self.headers.stack(stack_name, place)
            return self._element(stack, self._last_index(stack), field_name, place)
        raise unsupported(f"an operand of type {kind!r}", item, place)

    def _parameter(self, content: Any, place: str) -> Expr:
        index = check(content, int, place)
        if not 0 <= index < len(self.parameters):
            raise InvalidProgram(f"{place}: parameter {index} of an action that has {len(self.parameters)}")
        parameter = self.parameters[index]
        return self.graph.leaf("param", parameter, parameter.width)

    def _operation(self, item: dict[str, Any], place: str, depth: int) -> Expr:  # noqa: PLR0911 - one case after the other
        op = get(item, "op", str, place)
        graph = self.graph

        def left() -> Expr:
            return self.value(item.get("left"), place, depth)

        def right() -> Expr:
            return self.value(item.get("right"), place, depth)

        if op in {"+", "-"} and item.get("left") is None:
            return graph.binary(op, graph.const(0), right())
        if op in {"==", "!="} and self._type(item.get("left")) == "header":
            names = [get(item[side], "value", str, place) for side in ("left", "right")]
            a, b = (self.headers.header(name, place) for name in names)
            equal = graph.header_equal(a.name, b.name)
            return equal if op == "==" else graph.negate(equal)
        if op in {"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!="}:
            return graph.binary(op, left(), right())
        if op in {"and", "or"}:
            return graph.logic(op, left(), right())
        if op == "not":
            return graph.negate(right())
        if op == "~":
            return graph.invert(right())
        if op == "d2b":
            return graph.to_bool(right())
        if op == "b2d":
            return graph.to_data(right())
        if op == "?":
            return graph.select(self.value(item.get("cond"), place, depth), left(), right())
        if op in {"two_comp_mod", "sat_cast", "usat_cast"}:
            return self._cast(op, left(), right(), place)
        if op == "valid":
            header = self.headers.header(get(item.get("right"), "value", str, place), place)
            return graph.to_bool(self.load(header.fields["$valid$"]))
        if op in {"access_field", "last_stack_index", "size_stack"}:
            return self._stack_operation(op, item, place, depth)
        raise unsupported(f"the operation {op!r}", item, place)

    @staticmethod
    def _type(item: Any) -> str | None:
        return item.get("type") if isinstance(item, dict) else None

    def _cast(self, op: str, value: Expr, width: Expr, place: str) -> Expr:
        if width.op != "const" or not 1 <= width.leaf <= MAX_BITS:
            raise InvalidProgram(f"{place}: {op} needs a constant width")
        if op == "two_comp_mod":
            return self.graph.wrap(value, width.leaf, signed=True)
        return self.graph.saturate(value, width.leaf, signed=op == "sat_cast")

    def _last_index(self, stack: Stack) -> Expr:
        # One less than the count of extracted headers: of an empty stack -1, as in BMv2.
        count = self.graph.leaf("stack_count", stack.name, 32)
        return self.graph.binary("-", count, self.graph.const(1))

    def _stack_operation(self, op: str, item: dict[str, Any], place: str, depth: int) -> Expr:
        if op == "access_field":
            inner = get(item.get("left"), "value", dict, place)
            if inner.get("op") not in {"dereference_header_stack", "dereference_stack"}:
                raise unsupported(f"access_field on {inner.get('op')!r}", item, place)
            stack = self.headers.stack(get(inner.get("left"), "value", str, place), place)
            names = list(stack.headers[0].fields)
            number = check(item.get("right"), int, place)
            if not 0 <= number < len(names) - 1:
                raise InvalidProgram(f"{place}: no field {number} in a header of stack {stack.name!r}")
            return self._element(stack, self.value(inner.get("right"), place, depth), names[number], place)
        stack = self.headers.stack(get(item.get("right"), "value", str, place), place)
        last = self._last_index(stack)
        return last if op == "last_stack_index" else self.graph.binary("+", last, self.graph.const(1))

    def _element(self, stack: Stack, index: Expr, field_name: str, place: str) -> Expr:
        """A field of the element that `index` names at run time: of the last one if it names none."""
        if field_name not in stack.headers[0].fields:
            raise InvalidProgram(f"{place}: headers of stack {stack.name!r} have no field {field_name!r}")
        members = [self.load(header.fields[field_name]) for header in stack.headers]
        result = members[-1]
        for position in range(len(members) - 2, -1, -1):
            here = self.graph.binary("==", index, self.graph.const(position))
            result = self.graph.select(here, members[position], result)
        return result

    def condition(self, item: Any, place: str) -> Expr:
        """A truth value."""
        result = self.value(item, where(item, place))
        if not result.is_bool:
            raise InvalidProgram(f"{place}: a condition is expected, not a number")
        return result

    def number(self, item: Any, place: str) -> Expr:
        """A number."""
        result = self.value(item, place)
        return self.graph.to_data(result) if result.op in BOOLEANS or result.is_bool else result
