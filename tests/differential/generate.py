# SPDX-License-Identifier: Apache-2.0
"""A random v1model program, its entries and packets, all from one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from differential.expressions import Variable, some_width
from differential.parsers import ParserGenerator
from differential.shape import PORTS, Shape
from differential.statements import Array, Block, Writer, nested
from differential.tables import Action, Table
from vectors.steps import Call, Packet, Step

CHECKSUM = "verify_checksum(h.a.isValid(), {{ {} }}, h.a.ck, HashAlgorithm.csum16);"
UPDATE = "update_checksum({}, {{ {} }}, h.a.ck, HashAlgorithm.{});"


@dataclass(frozen=True)
class Program:
    """A program with its packets. The control plane does `setup` first and `reads` last."""

    seed: int
    shape: Shape
    text: str
    setup: tuple[Step, ...]
    reads: tuple[Step, ...]

    def packets(self) -> Iterator[Packet]:
        """Yield packets without end. A seed always gives the same packets."""
        rng = random.Random(f"packets {self.seed}")
        while True:
            yield Packet(rng.randrange(PORTS), self.shape.packet(rng).hex())


def generate(seed: int, without: frozenset[str] = frozenset()) -> Program:
    """Return the program of a seed. `without` names features to leave out."""
    rng = random.Random(seed)
    shape = Shape.some(rng, without)
    parser = ParserGenerator(shape, rng)
    ingress, egress = Control(shape, rng, "ingress"), Control(shape, rng, "egress")
    text = "#include <core.p4>\n#include <v1model.p4>\n" + shape.declarations() + parser.text()
    text += _checksums(shape, rng) + ingress.text() + egress.text()
    emits = "".join(f"p.emit({name}); " for name in shape.emits())
    text += f"control D(packet_out p, in H h) {{ apply {{ {emits}}} }}\n"
    text += "V1Switch(P(), V(), I(), E(), C(), D()) main;\n"
    entries = [*ingress.entries(), *egress.entries()]
    setup = [*_replication(rng), *entries]
    reads = [*ingress.reads(entries), *egress.reads(entries)]
    return Program(seed, shape, text, tuple(setup), tuple(reads))


class Control:
    """One of the two match-action controls."""

    def __init__(self, shape: Shape, rng: random.Random, place: str) -> None:
        self.shape = shape
        self.rng = rng
        self.place = place
        self.letter = place[0].upper()
        features = shape.features
        widths = [some_width(rng) for _ in range(rng.randint(1, 3))] if features.registers else []
        size = PORTS if place == "egress" else rng.choice((1, 4, 16))
        self.arrays = tuple(Array(f"r{self.letter}{i}", width, size) for i, width in enumerate(widths))
        self.counters = (f"c{self.letter}",) if features.counters else ()
        self.scope = shape.scope(rng, place)
        self.writer = Writer(shape, self.scope, place, self.arrays, self.counters)
        self.actions = tuple(self._action(number) for number in range(rng.randint(2, 4)))
        self.tables = [
            Table.some(shape, self.writer, f"t{self.letter}{i}", self.actions)
            for i in range(rng.randint(1, 3))
        ]
        self.apply = self._apply()

    def _action(self, number: int) -> Action:
        params = tuple(
            Variable(f"p{i}", some_width(self.rng), writable=False) for i in range(self.rng.randrange(3))
        )
        scope = self.scope.plus(*params)
        writer = Writer(self.shape, scope, self.place, self.arrays, self.counters, in_action=True)
        return Action(f"act{self.letter}{number}", params, writer.block(self.rng.randrange(2)))

    def _apply(self) -> Block:
        block: Block = []
        if self.place == "ingress":
            block.append("if (!h.a.isValid()) { mark_to_drop(s); return; }")
            block.append("s.egress_spec = (bit<9>)(h.a.kind & 7);")
        for table in self.tables:
            block += [*self.writer.block(2, 3), self._application(table)]
        block += self.writer.block(2, 3)
        if self.rng.random() < 0.2:
            block.append(f"if ({self.scope.condition(1)}) {{ exit; }}")
        for variable in self.shape.metadata:  # the output must show all metadata
            into = self.rng.choice(self.shape.first)
            text = f"(bit<{variable.width}>){variable.name}"
            block.append(f"{into.name} = {into.name} ^ (bit<{into.width}>)({text});")
        return block

    def _application(self, table: Table) -> str:
        kind = self.rng.random()
        if kind < 0.5:
            return f"{table.name}.apply();"
        blocks = [self.writer.block(1, 2), self.writer.block(1, 2)]
        if kind < 0.8 or table.profile:
            return nested(f"if ({table.name}.apply().{self.rng.choice(('hit', 'miss'))})", *blocks)
        head = f"switch ({table.name}.apply().action_run) {{ {table.actions[0].name}:"
        return nested(head, *blocks, middle="default:", tail="}")

    def text(self) -> str:
        """Return the control as P4."""
        head = "inout H h, inout M m, inout standard_metadata_t s"
        text = f"control {self.letter}({head}) {{\n"
        for array in self.arrays:
            text += f"    register<bit<{array.width}>>({array.size}) {array.name};\n"
        for counter in self.counters:
            text += f"    counter(8, CounterType.packets_and_bytes) {counter};\n"
        for action in self.actions:
            params = ", ".join(f"bit<{p.width}> {p.name}" for p in action.params)
            text += nested(f"action {action.name}({params})", action.body) + "\n"
        whole_bytes = [v.name for v in self.shape.first if v.width % 8 == 0]
        selector = self.rng.sample(whole_bytes, self.rng.randint(1, 2))
        text += "".join(table.text(selector) for table in self.tables)
        return text + nested("apply", self.apply) + "\n}\n"

    # The control plane.

    def entries(self) -> Iterator[Step]:
        """Yield the entries that are written before the first packet."""
        for table in self.tables:
            yield from table.entries(self.rng)

    def reads(self, entries: list[Step]) -> Iterator[Step]:
        """Yield the reads that follow the last packet."""
        for counter in self.counters:
            yield from (Call("counter", {"name": counter, "index": index}) for index in range(8))
        for table in self.tables:
            of_table = [e for e in entries if isinstance(e, Call) and e.arguments.get("table") == table.name]
            yield from table.counters(of_table)


def _checksums(shape: Shape, rng: random.Random) -> str:
    verify, update = "", ""
    if shape.features.checksum:
        covered = ", ".join(v.name for v in shape.first if v.name != "h.a.ck" and v.width % 8 == 0)
        condition = rng.choice(("true", "h.a.isValid()", "h.a.kind != 3"))
        verify = CHECKSUM.format(covered)
        update = UPDATE.format(condition, covered, rng.choice(("csum16", "crc16", "xor16")))
        if rng.random() < 0.3:
            update = update.replace("update_checksum", "update_checksum_with_payload")
    return (
        f"control V(inout H h, inout M m) {{ apply {{ {verify} }} }}\n"
        f"control C(inout H h, inout M m) {{ apply {{ {update} }} }}\n"
    )


def _replication(rng: random.Random) -> Iterator[Step]:
    """Yield multicast groups 1 and 2 and clone sessions 1 and 2. Numbers 0 and 3 do not exist."""
    for number in (1, 2):
        ports = rng.sample(range(PORTS), rng.randint(1, 3))
        yield Call("multicast", {"group": number, "replicas": [(port, rng.randrange(3)) for port in ports]})
        yield Call("clonesession", {"session": number, "replicas": [(rng.randrange(PORTS), 0)]})
