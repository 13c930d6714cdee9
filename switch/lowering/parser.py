# SPDX-License-Identifier: Apache-2.0
"""The parser, and the checksums that are verified behind it and updated in front of the deparser."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.actions import Assign, reads
from railweave.switch.lowering.code import Label, Operand
from railweave.switch.lowering.emit import Emitter
from railweave.switch.lowering.expr import Expr, mask
from railweave.switch.lowering.fields import Header
from railweave.switch.lowering.read import ExpressionReader
from railweave.switch.lowering.source import (
    MAX_BITS,
    Json,
    check,
    distinct,
    get,
    hexstr,
    name_of,
    natural,
    objects,
    pair,
    unsupported,
    where,
)
from railweave.switch.lowering.statements import PrimitiveReader, read_action
from railweave.switch.lowering.value_sets import ValueSets

OPERATIONS = {  # and the number of their arguments
    "extract": 1,
    "extract_VL": 2,
    "set": 2,
    "verify": 2,
    "advance": 1,
    "shift": 1,
    "primitive": 1,
}


class ParserLowering:
    """Reads the program's one parser, then emits it."""

    def __init__(self, root: Json, expressions: ExpressionReader, primitives: PrimitiveReader) -> None:
        """Check that there is one parser and find its states."""
        self.expressions = expressions
        self.primitives = primitives
        self.graph = expressions.graph
        parsers = objects(root, "parsers")
        if len(parsers) != 1:
            raise unsupported(f"a program with {len(parsers)} parsers", None, "parsers")
        self.value_sets = ValueSets(root)
        self.initial = parsers[0].get("init_state")
        self.states = {name_of(state, "parse state"): state for state in objects(parsers[0], "parse_states")}
        self.labels = {name: Label() for name in self.states}

    def reads(self) -> list[Expr]:
        """Every expression, for the analysis of what fields are read."""
        nodes: list[Expr] = []
        for name, state in self.states.items():
            place = f"parser state {name!r}"
            for item in get(state, "parser_ops", list, place):
                op = get(item, "op", str, place)
                params = get(item, "parameters", list, place)
                if op in {"set", "verify", "advance", "extract_VL"}:
                    values = params[op in {"set", "extract_VL"} :]
                    nodes += [self._value(param, place) for param in values if isinstance(param, dict)]
                elif op == "primitive" and params:
                    statements = read_action(self.primitives, [params[0]], place)
                    nodes += [node for statement in statements for node in reads(statement)]
            nodes += [node for node, _ in self._key(state, place)]
        return nodes

    def emit(self, out: Emitter, done: Label) -> Label:
        """All states; the label of the first. `done`: where parsing ends."""
        start = Label()
        out.place(start)
        first = self.labels.get(self.initial) if isinstance(self.initial, str) else None
        if first is None:
            raise InvalidProgram(f"the parser has no state {self.initial!r}")
        out.op("JMP", 0, first)
        for name, state in self.states.items():
            out.where = f"parser state {name!r}"
            out.place(self.labels[name])
            out.note("state", name)
            for item in state["parser_ops"]:
                out.scope()
                self._operation(out, item, where(item, out.where))
            out.scope()
            self._transitions(out, state, out.where, done)
        out.scope()
        return start

    # Operations.

    def _operation(self, out: Emitter, item: Json, place: str) -> None:
        op = get(item, "op", str, place)
        params = get(item, "parameters", list, place)
        if op not in OPERATIONS:
            raise unsupported(f"the parser operation {op!r}", item, place)
        if len(params) != OPERATIONS[op]:
            raise InvalidProgram(f"{place}: {op} with {len(params)} arguments")
        if op == "extract":
            self._extract(out, params[0], None, place)
        elif op == "extract_VL":
            self._extract(out, params[0], self._value(params[1], place), place)
        elif op == "set":
            self._set(out, params, place)
        elif op == "verify":
            self._verify(out, params, place)
        elif op == "primitive":
            out.statements(read_action(self.primitives, [params[0]], place))
        else:
            bits = (
                self.graph.const(8 * natural({"bytes": params[0]}, "bytes", place))
                if op == "shift"
                else self._value(params[0], place)
            )
            out.op("ADVANCE", 0, self._size(out, bits, place))

    def _size(self, out: Emitter, bits: Expr, place: str) -> Operand:
        """A number of bits; it is compared with what a packet has, so it must be exact."""
        if not bits.fits_unsigned64:
            raise unsupported("a size that may be negative or of more than 64 bits", None, place)
        return out.number(bits)

    def _extract(self, out: Emitter, param: Any, bits: Expr | None, place: str) -> None:
        """`bits`: the length of the header's variable field."""
        kind = get(param, "type", str, place)
        headers = self.expressions.headers
        if kind == "regular":
            self._extract_header(out, headers.header(param.get("value"), place), bits, place)
            return
        if kind == "stack":
            stack, member = headers.stack(param.get("value"), place), 0
        elif kind == "union_stack":
            name, member_name = pair(param.get("value"), place)
            stack = headers.union_stack(name, place)
            member = stack.member(member_name, place)
        else:
            raise unsupported(f"an extraction to a {kind!r}", param, place)
        self._check_variable(stack.elements[0][member], bits, place)
        if bits is None:
            out.op("EXTRACT_NEXT", 0, stack.index, member)
        else:
            out.op("EXTRACT_NEXT_VL", self._size(out, bits, place), stack.index, member)
        out.note("extract", f"{param['value'] if kind == 'stack' else param['value'][0]}.next")

    def _extract_header(self, out: Emitter, header: Header, bits: Expr | None, place: str) -> None:
        if header.metadata:
            raise InvalidProgram(f"{place}: metadata {header.name!r} cannot be extracted")
        self._check_variable(header, bits, place)
        if bits is None:
            out.op("EXTRACT", 0, header.index)
        else:
            out.op("EXTRACT_VL", 0, header.index, self._size(out, bits, place))
        out.note("extract", header.name)
        out.statements(self.primitives.hide_others(header))

    @staticmethod
    def _check_variable(header: Header, bits: Expr | None, place: str) -> None:
        if (header.variable is None) != (bits is None):
            has = "has no" if header.variable is None else "has a"
            raise InvalidProgram(f"{place}: header {header.name!r} {has} variable-length field")

    def _set(self, out: Emitter, params: list[Any], place: str) -> None:
        if get(params[1], "type", str, place) == "lookahead":
            value = self._value(params[1], place)
            out.statements([Assign(self.expressions.headers.field(params[0].get("value"), place), value)])
        else:
            out.statements(self.primitives.assign(params, place))

    def _verify(self, out: Emitter, params: list[Any], place: str) -> None:
        good = Label()
        condition = self.graph.to_bool(self._value(params[0], place))
        out.branch(condition, good, when=True)
        error = params[1]  # old programs give the bare number
        code = self.graph.const(error) if isinstance(error, int) else self._value(error, place)
        out.op("PARSE_ERROR", 0, out.number(code))
        out.place(good)

    def _value(self, item: Any, place: str) -> Expr:
        if get(item, "type", str, place) != "lookahead":
            return self.expressions.value(item, place)
        window = check(item.get("value"), list, place)
        if (
            len(window) != 2
            or not all(isinstance(n, int) and 0 <= n <= MAX_BITS for n in window)
            or not window[1]
        ):
            raise InvalidProgram(f"{place}: lookahead is [offset, width], not {window!r:.60}")
        return self.graph.leaf("lookahead", tuple(window), window[1])

    # Transitions.

    def _key(self, state: Json, place: str) -> list[tuple[Expr, int]]:
        """Values that the state selects on, and their widths in bits."""
        key = []
        for item in get(state, "transition_key", list, place):
            node = self._value(item, place)
            width = node.high.bit_length() if node.high is not None else 0
            if node.op == "field":
                width = node.leaf.width
                node = self.graph.wrap(node, width, signed=False)
            key.append((node, width if node.op == "const" else max(width, 1)))  # const: a field of no bits
        return key

    def _transitions(self, out: Emitter, state: Json, place: str, done: Label) -> None:
        key = self._key(state, place)
        default = done
        for position, item in enumerate(objects(state, "transitions")):
            following = item.get("next_state")
            if following is not None and (not isinstance(following, str) or following not in self.labels):
                raise InvalidProgram(f"{place}: no state {following!r}")
            target = done if following is None else self.labels[following]
            kind = check(item.get("type", "hexstr"), str, place)
            if kind == "default" or item.get("value") == "default":
                default = target
            elif kind not in {"hexstr", "parse_vset"}:
                raise unsupported(f"a transition on a {kind!r}", item, place)
            else:  # what the first case loads stays known; the others' temporaries are done with behind them
                with out.apart() if position else nullcontext():
                    case = self._case if kind == "hexstr" else self.value_sets.emit
                    case(out, key, item, target, place)
        out.op("JMP", 0, default)

    def _case(self, out: Emitter, key: list[tuple[Expr, int]], item: Json, target: Label, place: str) -> None:
        """Every field of the key is padded to bytes in the value and the mask."""
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
            condition = equal if condition is None else self.graph.logic("and", condition, equal)
        if condition is None:
            raise InvalidProgram(f"{place}: a value, but no key")
        out.branch(condition, target, when=True)


class ChecksumLowering:
    """Calculated fields: verified after parsing, updated before deparsing."""

    def __init__(self, root: Json, expressions: ExpressionReader, calculations: dict[str, int]) -> None:
        """Read them all."""
        self.graph = expressions.graph
        self.expressions = expressions
        self.items = []
        for item in objects(root, "checksums"):
            place = where(item, f"checksum {item.get('name')!r}")
            if get(item, "type", str, place) != "generic":
                raise unsupported(f"a checksum of type {item['type']!r}", item, place)
            calculation = get(item, "calculation", str, place)
            if calculation not in calculations:
                raise InvalidProgram(f"{place}: no calculation {calculation!r}")
            target = expressions.headers.field(item.get("target"), place)
            condition = item.get("if_cond")
            node = None if condition is None else expressions.condition(condition, place)
            roles = (item.get("verify", True), item.get("update", True))
            self.items.append((target, calculations[calculation], node, roles))

    def reads(self) -> list[Expr]:
        """Every expression."""
        return [
            node
            for target, _, condition, _ in self.items
            for node in (condition, self._initial(target))
            if node
        ]

    def _initial(self, target: Any) -> Expr:
        return self.graph.wrap(self.expressions.initial(target), target.width, signed=False)

    def emit_verify(self, out: Emitter) -> None:
        """A wrong one sets standard_metadata.checksum_error."""
        error = self.expressions.headers.find("standard_metadata", "checksum_error")
        for target, calculation, condition, (verify, _) in self.items:
            if not verify:
                continue
            out.scope()
            skip = Label()
            header = self.expressions.headers.by_name[target.header]
            valid = self.graph.to_bool(self.expressions.initial(header.fields["$valid$"]))
            out.branch(valid, skip, when=False)
            if condition is not None:
                out.branch(condition, skip, when=False)
            computed, equal = out.fresh(), out.fresh()
            out.op("CHECKSUM", computed, calculation)
            out.op("EQ", equal, computed, out.number(self._initial(target)))
            out.op("JNZ", equal, skip)
            if error is not None:
                out.store(error, self.graph.const(1))
            out.place(skip)

    def emit_update(self, out: Emitter) -> None:
        """Writes the fields anew."""
        for target, calculation, condition, (_, update) in self.items:
            if not update:
                continue
            out.scope()
            skip = Label()
            if condition is not None:
                out.branch(condition, skip, when=False)
            computed = out.fresh()
            out.op("CHECKSUM", computed, calculation)
            out.store_register(target, computed)
            out.note_field("checksum", target)
            out.place(skip)


def read_calculations(root: Json, expressions: ExpressionReader, algorithms: list[str]) -> dict[str, Any]:
    """Calculations by name: (algorithm, inputs); an input is (kind, what it is)."""
    result: dict[str, Any] = {}
    for item in distinct(objects(root, "calculations"), "calculation"):
        name = name_of(item, "calculation")
        result[name] = read_calculation(item, expressions, algorithms, where(item, f"calculation {name!r}"))
    return result


def read_calculation(
    item: Json, expressions: ExpressionReader, algorithms: list[str], place: str
) -> tuple[int, list[tuple[str, Any]]]:
    """One calculation, as it stands among them or as an action selector's."""
    algorithm = get(item, "algo", str, place)
    if algorithm not in algorithms:
        raise unsupported(f"the hash algorithm {algorithm!r}", item, place)
    inputs: list[tuple[str, Any]] = []
    for piece in get(item, "input", list, place):
        kind = get(piece, "type", str, place)
        if kind == "field":
            inputs.append(("field", expressions.headers.field(piece.get("value"), place)))
        elif kind == "header":
            header = expressions.headers.header(piece.get("value"), place)
            inputs += [("field", f) for f in header.fields.values() if not f.is_valid_bit]
        elif kind == "hexstr":
            width = natural(piece, "bitwidth", place, MAX_BITS)
            inputs.append(("constant", (hexstr(piece.get("value"), place) & mask(width), width)))
        elif kind == "payload":
            inputs.append(("payload", None))
        else:
            raise unsupported(f"a {kind!r} in the input of a calculation", piece, place)
    return algorithms.index(algorithm), inputs
