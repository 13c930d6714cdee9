# SPDX-License-Identifier: Apache-2.0
"""Actions as lists of statements: BMv2's primitives, each with its kinds of operands."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.actions import (
    Assign,
    Choice,
    Effect,
    Jump,
    RegisterRead,
    RegisterWrite,
    Statement,
)
from railweave.switch.lowering.declarations import Declarations
from railweave.switch.lowering.expr import Expr
from railweave.switch.lowering.fields import Field, Header, Headers, Stack, Union
from railweave.switch.lowering.messages import places
from railweave.switch.lowering.read import ExpressionReader
from railweave.switch.lowering.source import check, find, get, hexstr, unsupported, where

Choices = list[tuple[Expr | None, Any]]
MAX_ALTERNATIVES = 1 << 16  # of all statements together that an index at run time decides


class PrimitiveReader:
    """Turns one primitive call into statements. A primitive of several statements has a method."""

    def __init__(self, expressions: ExpressionReader, declared: Declarations) -> None:
        """Read expressions with `expressions`; find arrays and calculations in `declared`."""
        self.expressions = expressions
        self.graph = expressions.graph
        self.messages: list[str] = []  # of log_msg and assertions, by number
        self._alternatives = 0
        self._objects: dict[str, dict[str, Any]] = {
            "register_array": declared.registers,
            "counter_array": declared.counters,
            "meter_array": {name: meter for name, meter in declared.meters.items() if meter.table is None},
            "calculation": declared.calculation_numbers,
        }

    def read(self, item: Any, place: str) -> list[Statement]:
        """Return the statements of a call; UnsupportedConstruct for an unknown primitive."""
        op = get(item, "op", str, place)
        arguments = get(item, "parameters", list, place)
        if op not in _SINGLE and op not in _SEVERAL:
            raise unsupported(f"the primitive {op!r}", item, place)
        kinds = (_SINGLE[op] if op in _SINGLE else _SEVERAL[op])[0].split()
        place = where(item, f"{place}, {op}")
        if len(arguments) != len(kinds):
            raise InvalidProgram(f"{place}: {op} with {len(arguments)} arguments", str(len(kinds)))
        operands = [self._operand(*given, place) for given in zip(kinds, arguments, strict=True)]
        return [_SINGLE[op][1](*operands)] if op in _SINGLE else _SEVERAL[op][1](self, place, *operands)

    def _operand(self, kind: str, item: Any, place: str) -> Any:  # noqa: PLR0911 - one case after the other
        """Return an operand: an object of the program, a value, or as it stands in the document (any)."""
        match kind:
            case "any":
                return item
            case "number":
                return self.expressions.number(item, place)
            case "truth":
                return self.graph.to_bool(self.expressions.value(item, place))
            case "headers":
                return self.expressions.header_choices(item, place)
            case "header_stack":
                return self.expressions.stack(item, place)
        given = get(item, "type", str, place)
        if kind in self._objects:
            if given != kind:
                raise InvalidProgram(f"{place}: a {given!r}", f"a {kind}")
            return find(self._objects[kind], item.get("value"), kind, place)
        look_up, otherwise = _NAMED[kind]
        if given != kind:
            raise unsupported(otherwise.format(repr(given)), item, place)
        return look_up(self.expressions.headers, item.get("value"), place)

    # Fields.

    def assign(self, place: str, to: Any, source: Any) -> list[Statement]:
        """Translate assign(field, value). A stack's element may be chosen at run time."""
        if get(source, "type", str, place) == "field":
            member = self.expressions.places(source, place)[0][1]
            if member.variable:
                return self.assign_variable(
                    place, *(self._operand("field", item, place) for item in (to, source))
                )
        value = self.expressions.number(source, place)

        def store(member: Field) -> list[Statement]:
            if member.variable:
                name = f"{member.header}.{member.name}"
                raise InvalidProgram(f"a number is assigned to the variable field {name}")
            return [Assign(member, value)]

        return self._each(self.expressions.places(to, place), store)

    def assign_variable(self, place: str, to: Field, source: Field) -> list[Statement]:
        """Translate assign_VL(to, from). The length is copied with the contents."""
        if not to.variable or not source.variable:
            raise InvalidProgram(f"{place}: a field of fixed length in an assignment of variable fields")
        return [Effect("VL_COPY", (to, source))]

    def mark_to_drop(self, place: str, header: Header | None = None) -> list[Statement]:
        """Translate mark_to_drop(header) and P4_14's drop(): egress_spec = 511, and no multicast."""
        header = header or self.expressions.headers.header("standard_metadata", place)
        if "egress_spec" not in header.fields:
            raise InvalidProgram(f"{place}: header {header.name!r} has no egress_spec")
        dropped: list[Statement] = [Assign(header.fields["egress_spec"], self.graph.const(511))]
        if "mcast_grp" in header.fields:
            dropped.append(Assign(header.fields["mcast_grp"], self.graph.const(0)))
        return dropped

    # Headers, unions and stacks.

    def _each(self, choices: Choices, make: Callable[[Any], list[Statement]]) -> list[Statement]:
        """Return the statements that `make` gives for the alternative, or a choice among several."""
        if len(choices) == 1 and choices[0][0] is None:
            return make(choices[0][1])
        self._alternatives += len(choices)
        if self._alternatives > MAX_ALTERNATIVES:
            raise InvalidProgram("indexes at run time have too many alternatives")
        always = self.graph.truth(value=True)
        return [Choice(tuple((when or always, tuple(make(what))) for when, what in choices))]

    def assign_header(self, place: str, to: Choices, source: Choices) -> list[Statement]:
        """Translate assign_header(to, from)."""
        if len(to) * len(source) > MAX_ALTERNATIVES:
            raise unsupported("an assignment between elements of stacks as large as these", None, place)
        both = self.expressions.both
        pairs: Choices = [(both(when, also), (a, b)) for (when, a), (also, b) in product(to, source)]
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

    def add_header(self, place: str, choices: Choices) -> list[Statement]:
        """Make a header valid; its fields are 0 if it was not."""

        def add(header: Header) -> list[Statement]:
            return [] if header.metadata else [Effect("HDR_ADD", (header.name,)), *self.hide_others(header)]

        return self._each(choices, add)

    def remove_header(self, place: str, choices: Choices) -> list[Statement]:
        """Make a header invalid."""
        return self._each(
            choices, lambda header: [] if header.metadata else [Effect("HDR_REMOVE", (header.name,))]
        )

    def assign_union(self, place: str, to: Union, source: Union) -> list[Statement]:
        """Translate assign_union(to, from)."""
        if to.type_name != source.type_name:
            raise InvalidProgram(f"{place}: unions of different types")
        pairs = zip(to.headers, source.headers, strict=True)
        return [statement for a, b in pairs for statement in self._copy(a, b, place)]

    def assign_stack(self, place: str, to: Stack, source: Stack) -> list[Statement]:
        """Translate assign_header_stack(to, from) and assign_union_stack(to, from)."""
        shapes = [[header.type_name for header in stack.elements[0]] for stack in (to, source)]
        if shapes[0] != shapes[1] or len(to.elements) != len(source.elements):
            raise InvalidProgram(f"{place}: stacks of different types")
        return [Effect("STACK_COPY", (to.index, source.index))]

    # Messages.

    def log(self, place: str, form: Any, given: Any) -> list[Statement]:
        """Translate log_msg(format, values)."""
        text = check(get(form, "value", str, place), str, place)
        content = given.get("value") or []  # p4c writes an empty list as {}
        values = tuple(self.expressions.number(value, place) for value in check(content, list, place))
        try:
            taken = places(text)
        except ValueError as error:
            raise InvalidProgram(f"{place}: {error}") from None
        if taken != len(values):
            raise InvalidProgram(f"{place}: the message {text!r:.60} takes {taken} values, not {len(values)}")
        return [Effect("LOG", (self._message(text),), values)]

    def assertion(self, place: str, holds: Expr) -> list[Statement]:
        """Translate assert(condition) and assume(condition).

        BMv2 ends if the condition is false; this switch drops the packet.
        """
        number = self._message(f"assertion failed: {place}".replace("{", "(").replace("}", ")"))
        return [Effect("ASSERT", (number,), (holds,))]

    def _message(self, text: str) -> int:
        self.messages.append(text)
        return len(self.messages) - 1


# Operands that name an object: where it is found, and the error for an operand of another type.
_NAMED: dict[str, tuple[Callable[..., Any], str]] = {
    "field": (Headers.field, "an assignment to a {}"),
    "header": (Headers.header, "a header named by a {}"),
    "header_union": (Headers.union, "a {} where a header union is expected"),
    "hexstr": (lambda _, value, place: hexstr(value, place), "a jump to a computed place"),
}


def _effect(kind: str) -> Callable[..., Statement]:
    """Return the maker of an effect that takes only numbers."""
    return lambda *values: Effect(kind, (), values)


def _computed(op: str) -> Callable[..., list[Statement]]:
    """Return a reader of field = a op b, or of field = field op b, as P4_14 has them."""

    def read(reader: PrimitiveReader, place: str, target: Field, *values: Expr) -> list[Statement]:
        a, b = (reader.expressions.load(target), *values)[-2:]
        return [Assign(target, reader.graph.binary(op, a, b))]

    return read


# Primitives of one statement: kinds of operands, and a function from operands to the statement.
_SINGLE: dict[str, tuple[str, Callable[..., Statement]]] = {
    "push": ("header_stack number", lambda stack, by: Effect("STACK_PUSH", (stack.index,), (by,))),
    "pop": ("header_stack number", lambda stack, by: Effect("STACK_POP", (stack.index,), (by,))),
    "exit": ("", _effect("EXIT")),
    "register_read": ("field register_array number", RegisterRead),
    "register_write": ("register_array number number", RegisterWrite),
    "count": ("counter_array number", lambda array, index: Effect("COUNT", (array.index,), (index,))),
    "execute_meter": (
        "meter_array number field",
        lambda array, index, target: Effect("METER", (array.index,), (index,), target),
    ),
    "modify_field_rng_uniform": (
        "field number number",
        lambda target, low, high: Effect("RANDOM", (), (low, high), target),
    ),
    "modify_field_with_hash_based_offset": (
        "field number calculation number",
        lambda target, base, calculation, size: Effect("HASH", (calculation,), (base, size), target),
    ),
    "clone_ingress_pkt_to_egress": ("number number", _effect("CLONE")),
    "clone_egress_pkt_to_egress": ("number number", _effect("CLONE")),
    # BMv2 ignores the receiver of a digest.
    "generate_digest": ("any number", lambda receiver, number: Effect("DIGEST", (), (number,))),
    "resubmit": ("number", _effect("RESUBMIT")),
    "recirculate": ("number", _effect("RECIRCULATE")),
    "truncate": ("number", _effect("TRUNCATE")),
    "_jump": ("hexstr", lambda target: Jump(target, None)),
    "_jump_if_zero": ("truth hexstr", lambda condition, target: Jump(target, condition)),
}
# Other primitives: kinds of operands, and the method for them.
_SEVERAL: dict[str, tuple[str, Callable[..., list[Statement]]]] = {
    "assign": ("any any", PrimitiveReader.assign),
    "modify_field": ("any any", PrimitiveReader.assign),
    "set": ("any any", PrimitiveReader.assign),  # what p4c calls an assignment in the deparser
    "assign_VL": ("field field", PrimitiveReader.assign_variable),
    "assign_header": ("headers headers", PrimitiveReader.assign_header),
    "copy_header": ("headers headers", PrimitiveReader.assign_header),
    "assign_union": ("header_union header_union", PrimitiveReader.assign_union),
    "assign_header_stack": ("header_stack header_stack", PrimitiveReader.assign_stack),
    "assign_union_stack": ("header_stack header_stack", PrimitiveReader.assign_stack),
    "add_header": ("headers", PrimitiveReader.add_header),
    "remove_header": ("headers", PrimitiveReader.remove_header),
    "mark_to_drop": ("header", PrimitiveReader.mark_to_drop),
    "drop": ("", PrimitiveReader.mark_to_drop),
    "no_op": ("", lambda reader, place: []),
    "log_msg": ("any any", PrimitiveReader.log),
    "add_to_field": ("field number", _computed("+")),
    "subtract_from_field": ("field number", _computed("-")),
    "add": ("field number number", _computed("+")),
    "subtract": ("field number number", _computed("-")),
    "bit_xor": ("field number number", _computed("^")),
    "bit_or": ("field number number", _computed("|")),
    "bit_and": ("field number number", _computed("&")),
    "shift_left": ("field number number", _computed("<<")),
    "shift_right": ("field number number", _computed(">>")),
    "assert": ("number", PrimitiveReader.assertion),
    "assume": ("number", PrimitiveReader.assertion),
}


def read_action(reader: PrimitiveReader, primitives: list[Any], place: str) -> list[Statement]:
    """Return the statements of an action. Jump targets count statements, not primitives."""
    starts: list[int] = []
    statements: list[Statement] = []
    for primitive in primitives:
        starts.append(len(statements))
        statements += reader.read(primitive, place)
    starts.append(len(statements))
    for position, statement in enumerate(statements):
        if isinstance(statement, Jump):
            if not 0 <= statement.target < len(starts):
                raise InvalidProgram(f"{place}: a jump to primitive {statement.target}")
            statements[position] = Jump(starts[statement.target], statement.condition)
    return statements
