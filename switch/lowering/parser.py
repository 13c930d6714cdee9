# SPDX-License-Identifier: Apache-2.0
"""The parser: states of statements, a key and transitions; and parser value sets."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.actions import Assign, Effect, Jump, Statement, reads
from railweave.switch.lowering.code import Code, Label
from railweave.switch.lowering.control import TableNode, emit_key, pack_key
from railweave.switch.lowering.emit import emit_statements
from railweave.switch.lowering.expr import Expr, mask
from railweave.switch.lowering.fields import Header
from railweave.switch.lowering.notes import note
from railweave.switch.lowering.source import (
    MAX_BITS,
    Json,
    check,
    find,
    get,
    hexstr,
    name_of,
    named,
    natural,
    objects,
    pair,
    unsupported,
    where,
)
from railweave.switch.lowering.statements import PrimitiveReader, read_action
from railweave.switch.lowering.values import branch
from railweave.switch.program import KeyField, MatchType, TableInfo, ValueSetInfo

MAX_MEMBERS = 1 << 20  # of a value set
# Operations, and the number of their arguments.
OPERATIONS = {"extract": 1, "extract_VL": 2, "set": 2, "verify": 2, "advance": 1, "shift": 1, "primitive": 1}


@dataclass(frozen=True)
class State:
    """A parser state: operations, then the first transition that fits.

    A transition fits if its condition is true, or if its value set has the key.
    """

    name: str
    label: Label
    operations: list[list[Statement]]
    key: list[Expr]
    transitions: list[tuple[Expr | ValueSetInfo, Label]]
    default: Label


@dataclass(frozen=True)
class Parser:
    """All states; `end` is where parsing ends."""

    states: list[State]
    initial: Label
    end: Label
    value_sets: dict[str, ValueSetInfo]

    def reads(self) -> list[Expr]:
        """Return every expression."""
        nodes = [node for state in self.states for node in state.key]
        bodies = [body for state in self.states for body in state.operations]
        return nodes + [node for body in bodies for part in body for node in reads(part)]


def emit_parser(out: Code, parser: Parser) -> Label:
    """Emit all states. Return the label where parsing begins."""
    start = Label()
    out.place(start)
    out.op("JMP", 0, parser.initial)
    for state in parser.states:
        out.where = f"parser state {state.name!r}"
        out.place(state.label)
        note(out, "state", state.name)
        for statements in state.operations:
            emit_statements(out, statements)
        out.scope()
        for position, (when, target) in enumerate(state.transitions):
            # Every case runs after the first, so only the temporaries of the first stay known.
            with out.apart() if position else nullcontext():
                if isinstance(when, Expr):
                    branch(out, when, target, when=True)
                else:
                    emit_key(out, state.key, when.key)
                    member = out.fresh()
                    out.op("MEMBER", member, when.index)
                    out.op("JNZ", member, target)
        out.op("JMP", 0, state.default)
    out.scope()
    return start


class ValueSets:
    """All value sets; the parser's states define their members' fields."""

    def __init__(self, root: Json, first_index: int) -> None:
        """Read the program's value sets; the sets that are used are numbered from `first_index`."""
        self._declared: dict[str, Json] = {}
        for name, place, item in named(objects(root, "parse_vsets"), "value set"):
            natural(item, "compressed_bitwidth", place, MAX_BITS + 1)
            self._declared[name] = item
        self.found: dict[str, ValueSetInfo] = {}
        self._first_index = first_index

    def read(self, item: Json, widths: list[int], place: str) -> ValueSetInfo:
        """Return the set that a transition names; `widths` are those of the key's fields, in bits."""
        if item.get("mask") is not None:
            raise unsupported("a value set with a mask", item, place)
        name = get(item, "value", str, place)
        declared = find(self._declared, name, "value set", place)
        if sum(widths) != declared["compressed_bitwidth"]:
            raise InvalidProgram(f"{place}: value set {name!r} has members of another width than {widths}")
        places, words = pack_key(widths)
        key = tuple(
            KeyField(f"{name}.{number}", MatchType.TERNARY, width, word, shift)
            for number, (width, (word, shift)) in enumerate(zip(widths, places, strict=True))
        )
        info = self.found.get(name)
        if info is None:
            size = natural(declared, "max_size", place, MAX_MEMBERS) if "max_size" in declared else 1024
            info = ValueSetInfo(name, self._first_index + len(self.found), key, words, size)
            self.found[name] = info
        elif info.key != key:
            raise InvalidProgram(f"{place}: value set {name!r} is used with keys of different shapes")
        return info


def as_table(info: ValueSetInfo) -> TableNode:
    """Return the value set as the engine's table without actions."""
    size = 2 * info.size  # new members come in before the old ones go
    return TableNode(TableInfo(info.name, info.index, info.key, info.key_words, (), size), [], [])


def read_parser(root: Json, primitives: PrimitiveReader, first_value_set: int) -> Parser:
    """Read the program's parser; value sets are numbered from `first_value_set`."""
    parsers = objects(root, "parsers")
    if len(parsers) != 1:
        raise unsupported(f"a program with {len(parsers)} parsers", None, "parsers")
    states = {name_of(state, "parse state"): state for state in objects(parsers[0], "parse_states")}
    labels = {name: Label() for name in states}
    initial = find(labels, parsers[0].get("init_state"), "state", "parser")
    end, value_sets = Label(), ValueSets(root, first_value_set)
    reader = _StateReader(primitives, labels, end, value_sets)
    read = [reader.read(name, state) for name, state in states.items()]
    return Parser(read, initial, end, value_sets.found)


@dataclass
class _StateReader:
    primitives: PrimitiveReader
    labels: dict[str, Label]
    end: Label
    value_sets: ValueSets

    def __post_init__(self) -> None:
        self.expressions = self.primitives.expressions
        self.graph = self.expressions.graph

    def read(self, name: str, item: Json) -> State:
        place = f"parser state {name!r}"
        operations = [
            self._operation(operation, where(operation, place))
            for operation in get(item, "parser_ops", list, place)
        ]
        key = self._key(item, place)
        transitions: list[tuple[Expr | ValueSetInfo, Label]] = []
        default = self.end
        for transition in objects(item, "transitions"):
            following = transition.get("next_state")
            target = self.end if following is None else find(self.labels, following, "state", place)
            kind = check(transition.get("type", "hexstr"), str, place)
            if kind == "default" or transition.get("value") == "default":
                default = target
            elif kind == "hexstr":
                transitions.append((self._case(key, transition, place), target))
            elif kind == "parse_vset":
                widths = [width for _, width in key]
                transitions.append((self.value_sets.read(transition, widths, place), target))
            else:
                raise unsupported(f"a transition on a {kind!r}", transition, place)
        return State(name, self.labels[name], operations, [node for node, _ in key], transitions, default)

    # Operations.

    def _operation(self, item: Json, place: str) -> list[Statement]:
        op = get(item, "op", str, place)
        params = get(item, "parameters", list, place)
        if op not in OPERATIONS:
            raise unsupported(f"the parser operation {op!r}", item, place)
        if len(params) != OPERATIONS[op]:
            raise InvalidProgram(f"{place}: {op} with {len(params)} arguments")
        match op:
            case "extract" | "extract_VL":
                return self._extract(params[0], tuple(self._size(size, place) for size in params[1:]), place)
            case "set":
                if get(params[1], "type", str, place) != "lookahead":
                    return self.primitives.assign(place, *params)
                target = check(params[0], dict, place).get("value")
                return [Assign(self.expressions.headers.field(target, place), self._value(params[1], place))]
            case "verify":
                fails = self.graph.negate(self.graph.to_bool(self._value(params[0], place)))
                error = params[1]  # old programs give the bare number
                number = self.graph.const(error) if isinstance(error, int) else self._value(error, place)
                return [Jump(2, fails), Effect("PARSE_ERROR", (), (number,))]
            case "primitive":
                return read_action(self.primitives, params, place)
            case "shift":
                bits = self.graph.const(8 * natural({"bytes": params[0]}, "bytes", place))
            case _:
                bits = self._size(params[0], place)
        return [Effect("ADVANCE", (), (bits,))]

    def _size(self, item: Any, place: str) -> Expr:
        """Read a number of bits. It must be exact, because it is compared with the packet's length."""
        bits = self._value(item, place)
        if not bits.fits_unsigned64:
            raise unsupported("a size that may be negative or of more than 64 bits", None, place)
        return bits

    def _extract(self, param: Any, bits: tuple[Expr, ...], place: str) -> list[Statement]:
        """Translate an extraction; `bits` is the length of the header's variable field, if any."""
        kind = get(param, "type", str, place)
        headers, suffix = self.expressions.headers, "_VL" if bits else ""
        if kind == "regular":
            header = headers.header(param.get("value"), place)
            if header.metadata:
                raise InvalidProgram(f"{place}: metadata {header.name!r} cannot be extracted")
            self._check_variable(header, bits, place)
            return [Effect("EXTRACT" + suffix, (header.name,), bits), *self.primitives.hide_others(header)]
        if kind == "stack":
            stack, member = headers.stack(param.get("value"), place), 0
        elif kind == "union_stack":
            name, member_name = pair(param.get("value"), place)
            stack = headers.union_stack(name, place)
            member = stack.member(member_name, place)
        else:
            raise unsupported(f"an extraction to a {kind!r}", param, place)
        self._check_variable(stack.elements[0][member], bits, place)
        return [Effect("EXTRACT_NEXT" + suffix, (stack, member), bits)]

    @staticmethod
    def _check_variable(header: Header, bits: tuple[Expr, ...], place: str) -> None:
        if (header.variable is None) != (not bits):
            has = "has no" if header.variable is None else "has a"
            raise InvalidProgram(f"{place}: header {header.name!r} {has} variable-length field")

    def _value(self, item: Any, place: str) -> Expr:
        if get(item, "type", str, place) != "lookahead":
            return self.expressions.value(item, place)
        window = check(item.get("value"), list, place)
        if (
            len(window) != 2
            or not all(isinstance(n, int) and 0 <= n <= MAX_BITS for n in window)
            or not window[1]
        ):
            raise InvalidProgram(f"{place}: lookahead {window!r:.60}", "[offset, width]")
        return self.graph.leaf("lookahead", tuple(window), window[1])

    # Transitions.

    def _key(self, state: Json, place: str) -> list[tuple[Expr, int]]:
        """Return the values that the state selects on, and their widths in bits."""
        key = []
        for item in get(state, "transition_key", list, place):
            node = self._value(item, place)
            width = node.high.bit_length() if node.high is not None else 0
            if node.op == "field":
                width = node.leaf.width
                node = self.graph.wrap(node, width, signed=False)
            key.append((node, width if node.op == "const" else max(width, 1)))  # const: a field of no bits
        return key

    def _case(self, key: list[tuple[Expr, int]], item: Json, place: str) -> Expr:
        """Return whether the key has a value. Value and mask have each field of the key padded to bytes."""
        value = hexstr(item.get("value"), place)
        masked = None if item.get("mask") is None else hexstr(item["mask"], place)
        condition: Expr | None = None
        shift = sum(-(-width // 8) * 8 for _, width in key)
        if value < 0 or value >> shift:
            raise InvalidProgram(f"{place}: the value {item.get('value')} is wider than the key")
        for node, width in key:
            shift -= -(-width // 8) * 8
            wanted = (value >> shift) & mask(-(-width // 8) * 8)
            if masked is not None:
                kept = (masked >> shift) & mask(width)
                wanted &= kept
                node = self.graph.binary("&", node, self.graph.const(kept))  # noqa: PLW2901
            equal = self.graph.binary("==", node, self.graph.const(wanted))
            condition = equal if condition is None else self.graph.binary("and", condition, equal)
        if condition is None:
            raise InvalidProgram(f"{place}: a value, but no key")
        return condition
