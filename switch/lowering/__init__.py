# SPDX-License-Identifier: Apache-2.0
"""Lowering: a BMv2 JSON program, as p4c emits it for v1model, to a plan that the native engine runs.

`_lower` calls the stages in order. Unknown constructs are refused by name.
"""

from __future__ import annotations

from dataclasses import replace

from railweave.switch.errors import InvalidProgram
from railweave.switch.lowering.actions import reads
from railweave.switch.lowering.blocks import Blocks, read_blocks
from railweave.switch.lowering.checksums import emit_update, emit_verify
from railweave.switch.lowering.code import Code, Label, Note
from railweave.switch.lowering.declarations import Declarations, declare
from railweave.switch.lowering.emit import ActionBody, emit_action, emit_statements
from railweave.switch.lowering.fields import Field, Headers
from railweave.switch.lowering.layout import Layout, lay_out
from railweave.switch.lowering.notes import note_validity
from railweave.switch.lowering.parser import emit_parser
from railweave.switch.lowering.plan import ENGINE_READS, INTRINSICS, REQUIRED, Starts, assemble
from railweave.switch.lowering.source import Json, parse_document, parts
from railweave.switch.lowering.symbolic import Piece, fields_in, summarise
from railweave.switch.lowering.vectors import Fused, Refusal, fuse
from railweave.switch.program import Fusion, Program


def lower(text: bytes) -> tuple[Program, bytes]:
    """Return the program's description and its plan; InvalidProgram or UnsupportedConstruct."""
    return _lower(text, None)


def lower_noting(text: bytes) -> tuple[bytes, tuple[Note, ...]]:
    """Return a plan that also records trace notes, and the descriptions of its notes."""
    notes: list[Note] = []
    return _lower(text, notes)[1], tuple(notes)


def _lower(text: bytes, notes: list[Note] | None) -> tuple[Program, bytes]:
    try:
        root = parse_document(text)
        declared = declare(root)
        blocks = read_blocks(root, declared)
        actions = {
            number: summarise(blocks.graph, statements) for number, (_, statements) in blocks.actions.items()
        }
        read = _fields_read(declared, blocks, actions)
        intrinsics = _intrinsics(root, declared.headers, read)
        pruned = _prune(actions, {*read, *intrinsics})
        fused, refused, rows = fuse(pruned)
        layout = lay_out(declared.headers, declared.registers.values(), rows)
        bodies = {number: ActionBody(blocks.actions[number][0], pieces) for number, pieces in fused.items()}
        code, starts = _emit(declared, blocks, bodies, layout, notes)
        plan = assemble(code, starts, declared, blocks, bodies, intrinsics)
        return _describe(root, declared, blocks, bodies, refused), plan
    except RecursionError:
        raise InvalidProgram("the program nests too deeply") from None


def _fields_read(declared: Declarations, blocks: Blocks, actions: dict[int, list[Piece]]) -> set[Field]:
    """Return the fields whose value may be read after an action has ended."""
    nodes = blocks.reads()
    read = {member for members in declared.field_lists for member in members}
    read |= {what for inputs in declared.learn_lists for kind, what in inputs if kind == "sample"}
    read |= {what for _, inputs in declared.calculations for kind, what in inputs if kind == "field"}
    for piece in (piece for pieces in actions.values() for piece in pieces):
        if piece.summary is not None:
            read |= piece.summary.leaves()
        else:
            nodes += [node for statement in piece.statements for node in reads(statement)]
    return read | fields_in(nodes)


def _intrinsics(root: Json, headers: Headers, read: set[Field]) -> list[Field | None]:
    """Return metadata that the engine reads or writes, in the plan's order; None if it has no effect."""
    members = [headers.find(*reference) for reference in INTRINSICS]
    for (header, name), member in zip(INTRINSICS, members[:REQUIRED], strict=False):
        if member is None:
            raise InvalidProgram(f"the program lacks {header}.{name}, which simple_switch needs")
    for member in members:
        if member is not None and (not member.metadata or member.width > 64):
            raise InvalidProgram(f"{member.header}.{member.name} is not metadata of up to 64 bits")
    code = [root.get(key) for key in ("actions", "parsers", "field_lists")]
    if not any(isinstance(part, list) and len(part) == 2 and part[1] == "priority" for part in parts(code)):
        members[-1] = None  # always 0, so it need not be set
    return [
        member if member in read or reference in ENGINE_READS else None
        for reference, member in zip(INTRINSICS, members, strict=True)
    ]


def _prune(actions: dict[int, list[Piece]], read: set[Field | None]) -> dict[int, list[Piece]]:
    """Drop stores of temporaries that are never read before they are written."""

    def pruned(piece: Piece) -> Piece:
        if piece.summary is None:
            return piece
        kept = {m: value for m, value in piece.summary.fields.items() if not m.metadata or m in read}
        return replace(piece, summary=replace(piece.summary, fields=kept))

    return {number: [pruned(piece) for piece in pieces] for number, pieces in actions.items()}


def _emit(
    declared: Declarations,
    blocks: Blocks,
    bodies: dict[int, ActionBody],
    layout: Layout,
    notes: list[Note] | None,
) -> tuple[Code, Starts]:
    out = Code(blocks.graph, declared.headers, layout, notes=notes)
    out.names = {"COUNT": list(declared.counters), "METER": list(declared.meters)}
    parameters = [p for body in bodies.values() for p in body.description.parameters]
    out.parameter_words = 1 + max((p.word + -(-p.bitwidth // 64) for p in parameters), default=0)
    for body in bodies.values():
        out.place(body.entry)
        emit_action(out, body)
        out.op("RET")
    parser, parsed, update = emit_parser(out, blocks.parser), blocks.parser.end, Label()
    out.place(parsed)
    emit_verify(out, blocks.checksums)
    out.op("END")
    ingress, egress = (pipeline.emit(out, bodies) for pipeline in (blocks.ingress, blocks.egress))
    out.place(update)
    emit_update(out, blocks.checksums)
    emit_statements(out, blocks.deparser)
    note_validity(out, blocks.order)
    out.op("END")
    return out, (parser, parsed, ingress, egress, update)


def _describe(
    root: Json,
    declared: Declarations,
    blocks: Blocks,
    bodies: dict[int, ActionBody],
    refused: dict[int, list[Refusal]],
) -> Program:
    fusions = []
    for number, body in bodies.items():
        stores = [store for piece in body.pieces if isinstance(piece, Fused) for store in piece.vectors]
        if stores or refused[number]:
            vectors = tuple((store.value.op, len(store.targets)) for store in stores)
            scalar = tuple(map(str, refused[number]))
            fusions.append(Fusion(body.description.name, vectors, scalar))
    return Program(
        name=str(root.get("program", "")),
        tables={t.info.name: t.info for p in (blocks.ingress, blocks.egress) for t in p.tables.values()},
        actions={body.description.name: body.description for body in bodies.values()},
        counters=declared.counters,
        registers=declared.registers,
        meters=declared.meters,
        fusions=tuple(fusions),
        value_sets=blocks.parser.value_sets,
        messages=blocks.messages,
        profiles={name: info for name, (info, _) in declared.profiles.items()},
        digests=declared.digests,
        errors=declared.errors,
    )
