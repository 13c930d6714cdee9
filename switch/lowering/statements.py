# SPDX-License-Identifier: Apache-2.0
"""Actions as lists of statements: BMv2's primitives, one reader each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.actions import Assign, Effect, Jump, RegisterRead, RegisterWrite, Statement
from railweave.switch.lowering.declarations import Declarations
from railweave.switch.lowering.header_primitives import HeaderPrimitives
from railweave.switch.lowering.messages import places
from railweave.switch.lowering.read import ExpressionReader
from railweave.switch.lowering.source import check, get, hexstr, unsupported, where


class PrimitiveReader(HeaderPrimitives):
    """Turns one primitive call into statements."""

    def __init__(self, expressions: ExpressionReader, declared: Declarations) -> None:
        """Read expressions with `expressions`; find arrays and calculations in `declared`."""
        super().__init__(expressions)
        self.declared = declared
        self.messages: list[str] = []  # of log_msg and assertions, by number

    def read(self, item: Any, place: str) -> list[Statement]:
        """Return the statements of a call; UnsupportedConstruct for an unknown primitive."""
        op = get(item, "op", str, place)
        arguments = get(item, "parameters", list, place)
        reader = _READERS.get(op)
        if reader is None:
            raise unsupported(f"the primitive {op!r}", item, place)
        count, read = reader
        place = where(item, f"{place}, {op}")
        if len(arguments) != count:
            raise InvalidProgram(f"{place}: {op} with {len(arguments)} arguments", str(count))
        return read(self, arguments, place)

    def _object(self, item: Any, kind: str, table: dict[str, Any], place: str) -> Any:
        if get(item, "type", str, place) != kind:
            raise InvalidProgram(f"{place}: a {item['type']!r}", f"a {kind}")
        name = get(item, "value", str, place)
        if name not in table:
            raise InvalidProgram(f"{place}: no {kind} {name!r}")
        return table[name]

    def mark_to_drop(self, args: list[Any], place: str) -> list[Statement]:
        """Translate mark_to_drop(header): egress_spec = 511, and no multicast."""
        header = self._header(args[0], place)
        if "egress_spec" not in header.fields:
            raise InvalidProgram(f"{place}: header {header.name!r} has no egress_spec")
        graph = self.expressions.graph
        dropped: list[Statement] = [Assign(header.fields["egress_spec"], graph.const(511))]
        if "mcast_grp" in header.fields:
            dropped.append(Assign(header.fields["mcast_grp"], graph.const(0)))
        return dropped

    def arithmetic(self, op: str, args: list[Any], place: str) -> list[Statement]:
        """Translate field = a op b."""
        a, b = (self._number(arg, place) for arg in args[1:])
        return [Assign(self._field(args[0], place), self.expressions.graph.binary(op, a, b))]

    def drop(self, args: list[Any], place: str) -> list[Statement]:
        """Translate P4_14's drop()."""
        return self.mark_to_drop([{"type": "header", "value": "standard_metadata"}], place)

    def register_read(self, args: list[Any], place: str) -> list[Statement]:
        """Translate register_read(field, array, index)."""
        array = self._object(args[1], "register_array", self.declared.registers, place)
        return [RegisterRead(self._field(args[0], place), array, self._number(args[2], place))]

    def register_write(self, args: list[Any], place: str) -> list[Statement]:
        """Translate register_write(array, index, value)."""
        array = self._object(args[0], "register_array", self.declared.registers, place)
        return [RegisterWrite(array, self._number(args[1], place), self._number(args[2], place))]

    def count(self, args: list[Any], place: str) -> list[Statement]:
        """Translate count(counter array, index)."""
        counter = self._object(args[0], "counter_array", self.declared.counters, place)
        return [Effect("COUNT", (counter.index,), (self._number(args[1], place),))]

    def execute_meter(self, args: list[Any], place: str) -> list[Statement]:
        """Translate execute_meter(meter array, index, field)."""
        indirect = {name: meter for name, meter in self.declared.meters.items() if meter.table is None}
        meter = self._object(args[0], "meter_array", indirect, place)
        index = self._number(args[1], place)
        return [Effect("METER", (meter.index,), (index,), self._field(args[2], place))]

    def random(self, args: list[Any], place: str) -> list[Statement]:
        """Translate modify_field_rng_uniform(field, low, high)."""
        low, high = (self._number(arg, place) for arg in args[1:])
        return [Effect("RANDOM", (), (low, high), self._field(args[0], place))]

    def hash(self, args: list[Any], place: str) -> list[Statement]:
        """Translate modify_field_with_hash_based_offset(field, base, calculation, size)."""
        calculation = self._object(args[2], "calculation", self.declared.calculation_numbers, place)
        base, size = self._number(args[1], place), self._number(args[3], place)
        return [Effect("HASH", (calculation,), (base, size), self._field(args[0], place))]

    def digest(self, args: list[Any], place: str) -> list[Statement]:
        """Translate generate_digest(receiver, list). BMv2 ignores the receiver."""
        return [Effect("DIGEST", (), (self._number(args[1], place),))]

    def jump(self, args: list[Any], place: str) -> list[Statement]:
        """Translate _jump(index)."""
        return [Jump(self._target(args[0], place), None)]

    def jump_if_zero(self, args: list[Any], place: str) -> list[Statement]:
        """Translate _jump_if_zero(value, index)."""
        condition = self.expressions.graph.to_bool(self.expressions.value(args[0], place))
        return [Jump(self._target(args[1], place), condition)]

    @staticmethod
    def _target(item: Any, place: str) -> int:
        if get(item, "type", str, place) != "hexstr":
            raise unsupported("a jump to a computed place", item, place)
        return hexstr(item.get("value"), place)

    def log(self, args: list[Any], place: str) -> list[Statement]:
        """Translate log_msg(format, values)."""
        text = check(get(args[0], "value", str, place), str, place)
        content = args[1].get("value") or []  # p4c writes an empty list as {}
        values = tuple(self._number(value, place) for value in check(content, list, place))
        try:
            taken = places(text)
        except ValueError as error:
            raise InvalidProgram(f"{place}: {error}") from None
        if taken != len(values):
            raise InvalidProgram(f"{place}: the message {text!r:.60} takes {taken} values, not {len(values)}")
        return [Effect("LOG", (self._message(text),), values)]

    def assertion(self, args: list[Any], place: str) -> list[Statement]:
        """Translate assert(condition) and assume(condition).

        BMv2 ends if the condition is false; this switch drops the packet.
        """
        number = self._message(f"assertion failed: {place}".replace("{", "(").replace("}", ")"))
        return [Effect("ASSERT", (number,), (self._number(args[0], place),))]

    def _message(self, text: str) -> int:
        self.messages.append(text)
        return len(self.messages) - 1


_Reader = Callable[[PrimitiveReader, list[Any], str], list[Statement]]


def _effect(kind: str) -> _Reader:
    """Return a reader of a primitive that takes only numbers."""
    return lambda reader, args, place: [
        Effect(kind, (), tuple(reader.expressions.number(arg, place) for arg in args))
    ]


_ARITHMETIC = {
    "add": "+",
    "subtract": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}


def _computed(op: str) -> _Reader:
    """Return a reader of field = a op b, as P4_14 has it."""
    return lambda reader, args, place: reader.arithmetic(op, args, place)


def _in_place(op: str) -> _Reader:
    """Return a reader of field = field op a."""
    return lambda reader, args, place: reader.arithmetic(op, [args[0], *args], place)


_READERS: dict[str, tuple[int, _Reader]] = {
    "assign": (2, PrimitiveReader.assign),
    "modify_field": (2, PrimitiveReader.assign),
    "assign_header": (2, PrimitiveReader.assign_header),
    "set": (2, PrimitiveReader.assign),  # what p4c calls an assignment in the deparser
    "assign_VL": (2, PrimitiveReader.assign_variable),
    "copy_header": (2, PrimitiveReader.assign_header),
    "assign_union": (2, PrimitiveReader.assign_union),
    "assign_header_stack": (2, PrimitiveReader.assign_stack),
    "assign_union_stack": (2, PrimitiveReader.assign_stack),
    "add_to_field": (2, _in_place("+")),
    "subtract_from_field": (2, _in_place("-")),
    **{name: (3, _computed(op)) for name, op in _ARITHMETIC.items()},
    "add_header": (1, PrimitiveReader.add_header),
    "remove_header": (1, PrimitiveReader.remove_header),
    "push": (2, lambda reader, args, place: reader.shift_stack("STACK_PUSH", args, place)),
    "pop": (2, lambda reader, args, place: reader.shift_stack("STACK_POP", args, place)),
    "mark_to_drop": (1, PrimitiveReader.mark_to_drop),
    "drop": (0, PrimitiveReader.drop),
    "no_op": (0, lambda reader, args, place: []),
    "exit": (0, _effect("EXIT")),
    "register_read": (3, PrimitiveReader.register_read),
    "register_write": (3, PrimitiveReader.register_write),
    "count": (2, PrimitiveReader.count),
    "execute_meter": (3, PrimitiveReader.execute_meter),
    "modify_field_rng_uniform": (3, PrimitiveReader.random),
    "modify_field_with_hash_based_offset": (4, PrimitiveReader.hash),
    "clone_ingress_pkt_to_egress": (2, _effect("CLONE")),
    "clone_egress_pkt_to_egress": (2, _effect("CLONE")),
    "generate_digest": (2, PrimitiveReader.digest),
    "resubmit": (1, _effect("RESUBMIT")),
    "recirculate": (1, _effect("RECIRCULATE")),
    "truncate": (1, _effect("TRUNCATE")),
    "_jump": (1, PrimitiveReader.jump),
    "_jump_if_zero": (2, PrimitiveReader.jump_if_zero),
    "log_msg": (2, PrimitiveReader.log),
    "assert": (1, PrimitiveReader.assertion),
    "assume": (1, PrimitiveReader.assertion),
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
            if statement.target >= len(starts):
                raise InvalidProgram(f"{place}: a jump to primitive {statement.target}")
            statements[position] = Jump(starts[statement.target], statement.condition)
    return statements
