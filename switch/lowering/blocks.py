# SPDX-License-Identifier: Apache-2.0
"""The program's code, block by block, as expressions and statements."""

from __future__ import annotations

from dataclasses import dataclass

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.actions import Statement, reads
from railweave.switch.lowering.checksums import Checksum, read_checksums
from railweave.switch.lowering.control import Pipeline, TableReader, find_pipelines
from railweave.switch.lowering.declarations import Declarations
from railweave.switch.lowering.expr import Expr, Graph
from railweave.switch.lowering.parser import Parser, read_parser
from railweave.switch.lowering.read import ExpressionReader
from railweave.switch.lowering.source import (
    MAX_BITS,
    Json,
    check,
    get,
    name_of,
    natural,
    objects,
    unsupported,
    where,
)
from railweave.switch.lowering.stale_fields import StaleFields
from railweave.switch.lowering.statements import PrimitiveReader, read_action
from railweave.switch.program import Action, Parameter


@dataclass(frozen=True)
class Blocks:
    """v1model's programmable blocks."""

    graph: Graph  # of all expressions
    actions: dict[int, tuple[Action, list[Statement]]]  # by id
    parser: Parser
    checksums: list[Checksum]
    ingress: Pipeline
    egress: Pipeline
    deparser: list[Statement]
    order: list[str]  # in which headers are deparsed
    messages: tuple[str, ...]  # of log_msg and assertions, by number

    def reads(self) -> list[Expr]:
        """Return every expression outside the actions."""
        nodes = [*self.parser.reads(), *self.ingress.reads(), *self.egress.reads()]
        nodes += [node for sum_ in self.checksums for node in (sum_.condition, sum_.held) if node]
        nodes += [node for statement in self.deparser for node in reads(statement)]
        return nodes


def read_blocks(root: Json, declared: Declarations) -> Blocks:
    """Read all code."""
    graph = Graph()
    expressions = ExpressionReader(graph, declared.headers)
    primitives = PrimitiveReader(expressions, declared)
    checksums = read_checksums(root, expressions, declared.calculation_numbers)
    deparser, order = _read_deparser(root, primitives)
    actions = _read_actions(root, primitives)
    descriptions = {number: action for number, (action, _) in actions.items()}
    tables = TableReader(expressions, declared, descriptions, StaleFields(root))
    ingress, egress = find_pipelines(root, tables)
    parser = read_parser(root, primitives, len(ingress.tables) + len(egress.tables))
    messages = tuple(primitives.messages)
    return Blocks(graph, actions, parser, checksums, ingress, egress, deparser, order, messages)


def _read_actions(root: Json, primitives: PrimitiveReader) -> dict[int, tuple[Action, list[Statement]]]:
    result = {}
    for item in objects(root, "actions"):
        name = name_of(item, "action")
        place = where(item, f"action {name!r}")
        parameters, word = [], 0
        for parameter in objects(item, "runtime_data"):
            width = natural(parameter, "bitwidth", place, MAX_BITS)
            parameters.append(Parameter(name_of(parameter, place), width, word))
            word += max(1, -(-width // 64))
        primitives.expressions.parameters = tuple(parameters)
        statements = read_action(primitives, get(item, "primitives", list, place), f"action {name!r}")
        primitives.expressions.parameters = ()
        number = natural(item, "id", place)
        if number in result:
            raise InvalidProgram(f"{place}: two actions with id {number}")
        result[number] = Action(name, tuple(parameters)), statements
    return result


def _read_deparser(root: Json, primitives: PrimitiveReader) -> tuple[list[Statement], list[str]]:
    """Return the deparser's statements, and the headers in the order in which they are emitted."""
    deparsers = objects(root, "deparsers")
    if len(deparsers) != 1:
        raise unsupported(f"a program with {len(deparsers)} deparsers", None, "deparsers")
    calls = check(deparsers[0].get("primitives", []), list, "deparser")
    statements = read_action(primitives, calls, "deparser")
    find = primitives.expressions.headers.header
    order = [find(name, "deparser") for name in get(deparsers[0], "order", list, "deparser")]
    if any(header.metadata for header in order):
        raise InvalidProgram("deparser: metadata cannot be emitted")
    return statements, [header.name for header in order]
