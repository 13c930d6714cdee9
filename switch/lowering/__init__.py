# SPDX-License-Identifier: Apache-2.0
"""Lowering: a BMv2 JSON program, as p4c emits it for v1model, to a plan that the native engine runs.

`lower` reads the whole program into expressions and statements, summarises actions symbolically, fuses
lanes, lays out metadata and registers, and emits instructions. Unknown constructs are refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from railweave._native.engine import ALGORITHMS
from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.actions import Effect, Statement, reads
from railweave.switch.lowering.code import Label
from railweave.switch.lowering.control import ActionCode, Pipeline, TableReader, find_pipelines
from railweave.switch.lowering.emit import Emitter
from railweave.switch.lowering.emit_lanes import emit_fused
from railweave.switch.lowering.expr import Expr, Graph
from railweave.switch.lowering.externs import mentions, read_field_lists, read_learn_lists, read_profiles
from railweave.switch.lowering.fields import Field, Headers, Register, read_headers
from railweave.switch.lowering.lanes import Fused, Fuser
from railweave.switch.lowering.layout import Layout
from railweave.switch.lowering.notes import Note
from railweave.switch.lowering.parser import ChecksumLowering, ParserLowering, read_calculations
from railweave.switch.lowering.plan import ENGINE_READS, INTRINSICS, REQUIRED, PlanParts, assemble
from railweave.switch.lowering.read import ExpressionReader, RuntimeParameter
from railweave.switch.lowering.source import (
    MAX_BITS,
    Json,
    check,
    distinct,
    get,
    name_of,
    natural,
    objects,
    parse_document,
    unsupported,
    where,
)
from railweave.switch.lowering.statements import Names, PrimitiveReader, read_action
from railweave.switch.lowering.symbolic import Summary, fields_in, split, summarise
from railweave.switch.lowering.validity import Leftovers
from railweave.switch.lowering.value_sets import as_table
from railweave.switch.program import Action, ArrayInfo, Fusion, MeterInfo, Parameter, ProfileInfo, Program

MAX_ARRAY = 1 << 26


def lower(text: bytes) -> tuple[Program, bytes]:
    """The program's description and its plan; InvalidProgram or UnsupportedConstruct."""
    try:
        return _Lowering(parse_document(text)).run()
    except RecursionError:
        raise InvalidProgram("the program nests too deeply") from None


def lower_noting(text: bytes) -> tuple[bytes, tuple[Note, ...]]:
    """A plan with the same behaviour and state that records trace notes, and the notes' descriptions."""
    notes: list[Note] = []
    return _Lowering(parse_document(text), notes).run()[1], tuple(notes)


@dataclass
class _Piece:
    """A part of an action: fused, or statement by statement."""

    statements: list[Statement]
    summary: Summary | None = None
    fused: Fused | None = None


@dataclass
class _ActionBody:
    description: Action
    pieces: list[_Piece]
    exits: bool
    code: ActionCode = field(init=False)


class _Lowering:
    def __init__(self, root: Json, notes: list[Note] | None = None) -> None:
        self.root = root
        self.notes = notes
        self.graph = Graph()
        self.headers: Headers = read_headers(root)
        self.layout = Layout()
        self.registers = {r.name: r for r in self._registers()}
        self.counters = {c.name: c for c in self._counters()}
        self.meters = {m.name: m for m in self._meters()}
        self.expressions = ExpressionReader(self.graph, self.headers, self.registers)
        calculations = read_calculations(root, self.expressions, list(ALGORITHMS))
        self.calculations = list(calculations.values())
        calculation_numbers = {name: number for number, name in enumerate(calculations)}
        names = Names(
            self.registers,
            {c.name: c.index for c in self.counters.values()},
            {m.name: m.index for m in self.meters.values() if m.table is None},
            calculation_numbers,
        )
        self.primitives = PrimitiveReader(self.expressions, names)
        self.parser = ParserLowering(root, self.expressions, self.primitives)
        self.checksums = ChecksumLowering(root, self.expressions, calculation_numbers)
        self.field_lists = read_field_lists(root, self.headers)
        self.learn_lists, self.digests = read_learn_lists(root, self.headers)
        self.profiles = self._profiles()
        self.order = self._deparser()
        self.actions = self._actions()
        self.intrinsics = [self.headers.find(*reference) for reference in INTRINSICS]
        self._check_intrinsics()
        for item in objects(root, "extern_instances"):
            raise unsupported(f"an extern of type {item.get('type')!r}", item, f"extern {item.get('name')!r}")

    # Reading.

    def _registers(self) -> list[Register]:
        result = []
        for index, item in enumerate(distinct(objects(self.root, "register_arrays"), "register array")):
            name = name_of(item, "register array")
            place = where(item, f"register array {name!r}")
            width = natural(item, "bitwidth", place, MAX_BITS)
            if width == 0:
                raise InvalidProgram(f"{place}: 0 bits")
            result.append(Register(name, index, natural(item, "size", place, MAX_ARRAY), width))
        return result

    def _counters(self) -> list[ArrayInfo]:
        result: list[ArrayInfo] = []
        for item in distinct(objects(self.root, "counter_arrays"), "counter array"):
            name = name_of(item, "counter array")
            if not item.get("is_direct", False):
                size = natural(item, "size", where(item, f"counter array {name!r}"), MAX_ARRAY)
                result.append(ArrayInfo(name, len(result), size))
        return result

    def _meters(self) -> list[MeterInfo]:
        result: list[MeterInfo] = []
        for item in distinct(objects(self.root, "meter_arrays"), "meter array"):
            name = name_of(item, "meter array")
            place = where(item, f"meter array {name!r}")
            unit = get(item, "type", str, place)
            if unit not in {"bytes", "packets"}:
                raise InvalidProgram(f"{place}: a meter of {unit!r}")
            rates = natural(item, "rate_count", place, 9)
            table = get(item, "binding", str, place) if item.get("is_direct", False) else None
            size = self._table_size(table) if table else natural(item, "size", place, MAX_ARRAY)
            result.append(MeterInfo(name, len(result), size, rates, unit, table))
        return result

    def _table_size(self, name: str) -> int:
        for pipeline in objects(self.root, "pipelines"):
            for table in objects(pipeline, "tables"):
                if table.get("name") == name:
                    entries = table.get("entries")
                    size = natural(table, "max_size", f"table {name!r}", MAX_ARRAY)
                    return max(size, len(entries) if isinstance(entries, list) else 0)
        raise InvalidProgram(f"a direct meter is bound to table {name!r}, which does not exist")

    def _direct_meters(self) -> dict[str, tuple[int, Field]]:
        result = {}
        for item in objects(self.root, "meter_arrays"):
            if item.get("is_direct", False):
                place = where(item, f"meter array {item['name']!r}")
                target = self.headers.field(item.get("result_target"), place)
                if not target.metadata or target.width > 32:
                    raise unsupported("a direct meter with a result outside the metadata", item, place)
                result[item["name"]] = (self.meters[item["name"]].index, target)
        return result

    def _profiles(self) -> dict[str, tuple[ProfileInfo, int | None]]:
        """Action profiles; calculations of selectors go behind those that the program names."""
        result: dict[str, tuple[ProfileInfo, int | None]] = {}
        found = read_profiles(self.root, self.expressions, list(ALGORITHMS))
        for name, (info, calculation) in found.items():
            result[name] = info, None
            if calculation is not None:
                result[name] = info, len(self.calculations)
                self.calculations.append(calculation)
        return result

    def _deparser(self) -> list[str]:
        deparsers = objects(self.root, "deparsers")
        if len(deparsers) != 1:
            raise unsupported(f"a program with {len(deparsers)} deparsers", None, "deparsers")
        primitives = check(deparsers[0].get("primitives", []), list, "deparser")
        self.deparser_statements = read_action(self.primitives, primitives, "deparser")
        order = [
            self.headers.header(name, "deparser") for name in get(deparsers[0], "order", list, "deparser")
        ]
        if any(header.metadata for header in order):
            raise InvalidProgram("deparser: metadata cannot be emitted")
        return [header.name for header in order]

    def _check_intrinsics(self) -> None:
        for (header, name), member in zip(INTRINSICS[:REQUIRED], self.intrinsics, strict=False):
            if member is None:
                raise InvalidProgram(f"the program lacks {header}.{name}, which simple_switch needs")
        for member in self.intrinsics:
            if member is not None and (not member.metadata or member.width > 64):
                raise InvalidProgram(f"{member.header}.{member.name} is not metadata of up to 64 bits")

    def _actions(self) -> dict[int, _ActionBody]:
        result = {}
        for item in objects(self.root, "actions"):
            name = name_of(item, "action")
            place = where(item, f"action {name!r}")
            parameters, word = [], 0
            for parameter in objects(item, "runtime_data"):
                width = natural(parameter, "bitwidth", place, MAX_BITS)
                parameters.append(Parameter(name_of(parameter, place), width, word))
                word += max(1, -(-width // 64))
            self.expressions.parameters = tuple(
                RuntimeParameter(p.word, max(p.bitwidth, 1)) for p in parameters
            )
            statements = read_action(
                self.primitives, get(item, "primitives", list, place), f"action {name!r}"
            )
            self.expressions.parameters = ()
            pieces = [
                _Piece(block, summarise(self.graph, block) if pure and len(block) > 1 else None)
                for pure, block in split(statements)
            ]
            exits = any(isinstance(s, Effect) and s.kind == "EXIT" for s in statements)
            body = _ActionBody(Action(name, tuple(parameters)), pieces, exits)
            body.code = ActionCode(partial(self._emit_body, body), exits)
            number = natural(item, "id", place)
            if number in result:
                raise InvalidProgram(f"{place}: two actions with id {number}")
            result[number] = body
        return result

    # Analysis.

    def _fields_read(self, pipelines: tuple[Pipeline, Pipeline]) -> set[Field]:
        """Fields whose value somebody may look at after an action has ended."""
        nodes = [*self.parser.reads(), *self.checksums.reads()]
        nodes += [node for statement in self.deparser_statements for node in reads(statement)]
        for pipeline in pipelines:
            nodes += pipeline.reads()
        read: set[Field] = {member for members in self.field_lists for member in members}
        read |= {what for inputs in self.learn_lists for kind, what in inputs if kind == "sample"}
        for _, inputs in self.calculations:
            read |= {what for kind, what in inputs if kind == "field"}
        for body in self.actions.values():
            for piece in body.pieces:
                if piece.summary is not None:
                    read |= piece.summary.leaves()
                else:
                    nodes += [node for statement in piece.statements for node in reads(statement)]
        return read | fields_in(nodes)

    def _fuse(self, read: set[Field]) -> None:
        fuser = Fuser(self.layout)
        for body in self.actions.values():
            for piece in body.pieces:
                if piece.summary is None:
                    continue
                # A temporary that is only ever read where it was written before needs no storing.
                for member in [m for m in piece.summary.fields if m.metadata and m not in read]:
                    del piece.summary.fields[member]
                piece.fused = fuser.fuse(piece.summary)

    # Emission.

    def _emit_body(self, body: _ActionBody, out: Emitter) -> None:
        out.where = f"action {body.description.name!r}"
        out.scope()
        out.note("action", body.description.name, self._parameters(body.description))
        for piece in body.pieces:
            if piece.fused is None or piece.summary is None or out.notes is not None:
                out.statements(piece.statements)
                continue
            fallback, done = Label(), Label()
            out.scope()
            emit_fused(out, piece.fused, list(piece.summary.indexes), fallback)
            if piece.summary.indexes:
                out.op("JMP", 0, done)
                out.place(fallback)
                out.statements(piece.statements)
            else:
                out.place(fallback)
            out.place(done)
            out.scope()

    def _parameters(self, action: Action) -> list[tuple[str, Expr]]:
        return [
            (p.name, self.graph.leaf("param", RuntimeParameter(p.word, p.bitwidth), p.bitwidth))
            for p in action.parameters
            if p.bitwidth
        ]

    def run(self) -> tuple[Program, bytes]:
        descriptions = {number: body.description for number, body in self.actions.items()}
        leftovers = Leftovers(self.root)
        reader = TableReader(self.expressions, descriptions, self._direct_meters(), self.profiles, leftovers)
        ingress, egress = find_pipelines(self.root, reader)
        read = self._fields_read((ingress, egress))
        if not mentions([self.root.get(key) for key in ("actions", "parsers", "field_lists")], "priority"):
            self.intrinsics[-1] = None  # always 0: nothing to look at
        # What the engine only tells the program, and the program does not look at, costs nothing.
        self.intrinsics = [
            member if member in read or reference in ENGINE_READS else None
            for reference, member in zip(INTRINSICS, self.intrinsics, strict=True)
        ]
        self._fuse(read | {member for member in self.intrinsics if member is not None})
        self.layout.finish(self.headers, list(self.registers.values()))

        out = Emitter(self.graph, self.headers, self.layout, notes=self.notes)
        out.names = {"COUNT": list(self.counters), "METER": [m.name for m in self.meters.values()]}
        out.parameter_words = 1 + max(
            (
                p.word + -(-p.bitwidth // 64)
                for body in self.actions.values()
                for p in body.description.parameters
            ),
            default=0,
        )
        codes = {number: body.code for number, body in self.actions.items()}
        for body in self.actions.values():
            out.place(body.code.entry)
            self._emit_body(body, out)
            out.op("RET")
        parsed = Label()
        value_sets = self.parser.value_sets
        value_sets.first_index = len(ingress.tables) + len(egress.tables)
        parser = self.parser.emit(out, parsed)
        out.place(parsed)
        self.checksums.emit_verify(out)
        out.op("END")
        starts = (parser, parsed, ingress.emit(out, codes), egress.emit(out, codes), Label())
        out.place(starts[-1])
        self.checksums.emit_update(out)
        out.statements(self.deparser_statements)
        out.note_validity(self.order)
        out.op("END")
        parts = self._parts(starts, ingress, egress)
        for info in value_sets.found.values():
            parts.tables.append(as_table(info))
            parts.nodes[info.index] = ([], None, parsed)
        return self._program(ingress, egress), assemble(out, parts)

    def _parts(self, starts: Any, ingress: Pipeline, egress: Pipeline) -> PlanParts:
        parts = PlanParts(
            headers=self.headers,
            layout=self.layout,
            registers=list(self.registers.values()),
            counters=[counter.size for counter in self.counters.values()],
            meters=[(m.size, m.rates, int(m.unit == "bytes")) for m in self.meters.values()],
            tables=[*ingress.tables.values(), *egress.tables.values()],
            entries={number: body.code.entry for number, body in self.actions.items()},
            calculations=self.calculations,
            field_lists=self.field_lists,
            learn_lists=self.learn_lists,
            order=self.order,
            errors=self._errors(),
            intrinsics=self.intrinsics,
            starts=starts,
        )
        for pipeline in (ingress, egress):
            for table in pipeline.tables.values():
                miss = pipeline.label(table.on_miss)
                hit = pipeline.label(table.on_hit) if table.by_hit else None
                nexts = [pipeline.label(table.next_by_action.get(i)) for i in range(len(table.action_ids))]
                parts.nodes[table.info.index] = (nexts, hit, miss)
        return parts

    def _errors(self) -> dict[str, int]:
        result = {}
        for item in check(self.root.get("errors", []), list, "errors"):
            if not isinstance(item, list) or len(item) != 2 or not isinstance(item[1], int):
                raise InvalidProgram("errors: [name, number] is expected")
            result[str(item[0])] = item[1] & 0xFFFFFFFF
        return result

    def _program(self, ingress: Pipeline, egress: Pipeline) -> Program:
        tables = {t.info.name: t.info for p in (ingress, egress) for t in p.tables.values()}
        fusions = []
        for body in self.actions.values():
            vectors = tuple(
                (store.value.op, len(store.targets))
                for piece in body.pieces
                if piece.fused
                for store in piece.fused.vectors
            )
            if vectors:
                fusions.append(Fusion(body.description.name, vectors))
        return Program(
            name=str(self.root.get("program", "")),
            tables=tables,
            actions={body.description.name: body.description for body in self.actions.values()},
            counters=dict(self.counters),
            registers={r.name: ArrayInfo(r.name, r.index, r.size, r.width) for r in self.registers.values()},
            meters=dict(self.meters),
            fusions=tuple(fusions),
            value_sets=dict(self.parser.value_sets.found),
            messages=tuple(self.primitives.messages.texts),
            profiles={name: info for name, (info, _) in self.profiles.items()},
            digests=dict(self.digests),
            errors=self._errors(),
        )
