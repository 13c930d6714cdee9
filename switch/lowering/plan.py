# SPDX-License-Identifier: Apache-2.0
"""The plan as bytes: its format is that of the structs in native/engine/plan.hpp."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from railweave._native import engine
from railweave._native.engine import NONE, OPS
from railweave.switch.lowering.blocks import Blocks
from railweave.switch.lowering.code import Code, Constant, Label, Operand
from railweave.switch.lowering.control import TableNode
from railweave.switch.lowering.declarations import Declarations
from railweave.switch.lowering.emit import ActionBody
from railweave.switch.lowering.expr import mask
from railweave.switch.lowering.fields import Field, Header, Stack
from railweave.switch.lowering.layout import Layout
from railweave.switch.lowering.parser import as_table
from railweave.switch.program import MatchType

SIGNATURES: dict[int, str] = dict(OPS.values())

INTRINSICS: list[tuple[str, str]] = [tuple(name.split(".")) for name in engine.INTRINSICS]
ENGINE_READS = {
    ("standard_metadata", "egress_spec"),
    ("standard_metadata", "instance_type"),
    ("intrinsic_metadata", "mcast_grp"),
    ("intrinsic_metadata", "egress_rid"),
    ("intrinsic_metadata", "priority"),
}
REQUIRED = 5  # the first of INTRINSICS: without them simple_switch loads no program


# Where the parser, the code after it, ingress, egress and the code before the deparser begin.
Starts = tuple[Label, Label, Label, Label, Label]


def _pack(layout: Any, value: Any) -> bytes:
    """Pack a value as `PLAN_LAYOUT` describes it; KeyError or ValueError for other fields or sizes."""
    if isinstance(layout, str):
        return struct.pack(f"<{layout}", value)
    if isinstance(layout, dict):
        if layout.keys() != value.keys():
            raise KeyError(layout.keys() ^ value.keys())
        return b"".join([_pack(kind, value[name]) for name, kind in layout.items()])
    if isinstance(layout, list):
        return b"".join([struct.pack("<I", len(value)), *(_pack(layout[0], item) for item in value)])
    kind, size = layout
    return b"".join([_pack(kind, item) for _, item in zip(range(size), value, strict=True)])


def _pc(label: Label | None) -> int:
    if label is None:
        return NONE
    assert label.pc is not None, "a label that was never placed"  # noqa: S101
    return label.pc


def assemble(
    out: Code,
    starts: Starts,
    declared: Declarations,
    blocks: Blocks,
    bodies: dict[int, ActionBody],
    intrinsics: list[Field | None],
) -> bytes:
    """Return the bytes of the plan; `bodies` of actions by id."""
    layout, headers = out.layout, declared.headers
    inputs = [_inputs(out, layout, inputs) for _, inputs in declared.calculations]  # adds constants
    learn_lists = [_inputs(out, layout, inputs) for inputs in declared.learn_lists]
    pipelines = (blocks.ingress, blocks.egress)
    tables = [
        (node, *pipeline.following(node)) for pipeline in pipelines for node in pipeline.tables.values()
    ]
    tables += [(as_table(info), [], None, blocks.parser.end) for info in blocks.parser.value_sets.values()]
    key_words = max((node.info.key_words for node, *_ in tables), default=0)
    code = [_instruction(out, number, operands) for number, operands in out.code]
    parser, parsed, ingress, egress, deparser = (_pc(label) for label in starts)
    plan = {
        "phv_bytes": layout.size,
        "metadata_bytes": layout.metadata_bytes,
        "registers": len(out.constants) + out.registers,
        "wides": out.wides,
        "limbs": out.limbs,
        "vectors": out.vectors,
        "vector_length": out.vector_length,
        "key_words": key_words + out.limbs,
        "parameter_words": out.parameter_words + out.limbs,
        "parser": parser,
        "parsed": parsed,
        "ingress": ingress,
        "egress": egress,
        "deparser": deparser,
        "intrinsics": [_native(layout, member) for member in intrinsics],
        "errors": [declared.errors.get(name, number) for number, name in enumerate(engine.CORE_ERRORS)],
        "constants": out.constants,
        "wide_constants": out.wide_constants,
        "headers": [_header(layout, header) for header in headers.packet_headers],
        "variables": [
            {"offset": layout.offsets[member], "bytes": member.width // 8} for member in layout.variables
        ],
        "stacks": [_stack(layout, stack) for stack in headers.all_stacks],
        "order": [headers.by_name[name].index for name in blocks.order],
        "banks": [_named("rows words", layout.bank_shape(bank)) for bank in range(len(layout.banks))],
        "arrays": [
            _named("bank word size width", (*layout.bank_position(register), register.size, register.width))
            for register in declared.registers.values()
        ],
        "slices": [_named("bank word length bytes", row) for row in out.slices],
        "counters": [counter.size for counter in declared.counters.values()],
        "meters": [
            {"size": meter.size, "rates": meter.rates, "bytes": meter.unit == "bytes"}
            for meter in declared.meters.values()
        ],
        "tables": [_table(layout, bodies, *table) for table in tables],
        "calculations": [
            {"algorithm": algorithm, "inputs": pieces}
            for (algorithm, _), pieces in zip(declared.calculations, inputs, strict=True)
        ],
        "field_lists": [_field_list(layout, members) for members in declared.field_lists],
        "learn_lists": learn_lists,
        "code": code,
    }
    return struct.pack("<I", engine.PLAN_MAGIC) + _pack(engine.PLAN_LAYOUT, plan)


def _named(names: str, numbers: Sequence[int]) -> dict[str, int]:
    return dict(zip(names.split(), numbers, strict=True))


def _instruction(out: Code, number: int, operands: list[Operand]) -> dict[str, int]:
    values = {"op": number}
    for name, kind, operand in zip("dabc", SIGNATURES[number], operands, strict=True):
        if isinstance(operand, Constant):
            values[name] = operand.index
        elif isinstance(operand, Label):
            values[name] = _pc(operand)
        elif kind in "rR":
            values[name] = len(out.constants) + operand
        else:
            values[name] = operand
    return values


def _header(layout: Layout, header: Header) -> dict[str, int]:
    member = header.variable
    return {
        "image": layout.images[header.name],
        "bytes": header.bits // 8,
        "valid": layout.validity[header.name],
        "variable": NONE if member is None else layout.variables[member],
        "split": 0 if member is None else member.position,
    }


def _stack(layout: Layout, stack: Stack) -> dict[str, Any]:
    return {
        "next": layout.stack_next[stack.name],
        "width": len(stack.elements[0]),
        "of_unions": bool(stack.members),
        "headers": [header.index for element in stack.elements for header in element],
    }


def _native(layout: Layout, member: Field | None) -> dict[str, int]:
    return _named("offset width", (0, 0) if member is None else (layout.offsets[member], member.width))


def _table(
    layout: Layout,
    bodies: dict[int, ActionBody],
    table: TableNode,
    nexts: list[Label],
    hit: Label | None,
    miss: Label,
) -> dict[str, Any]:
    kinds = {part.match for part in table.info.key}
    ternary = kinds & {MatchType.TERNARY, MatchType.RANGE}
    meter, result = table.meter or (NONE, None)
    bits = None if result is None or (result.metadata and result.width <= 64) else result
    return {
        "kind": engine.MATCH_KINDS.index(
            "ternary" if ternary else "lpm" if MatchType.LPM in kinds else "exact"
        ),
        "words": table.info.key_words,
        "size": table.info.size,
        "hit": _pc(hit),
        "miss": _pc(miss),
        "meter": meter,
        "meter_result": _native(layout, result if bits is None else None),
        "meter_bits": _named(
            "position bits", (0, 0) if bits is None else (layout.bit_position(bits), bits.width)
        ),
        "selector": NONE if table.selector is None else table.selector,
        "timeouts": table.info.idle_timeouts,
        "actions": [_pc(bodies[number].entry) for number in table.action_ids],
        "next": [_pc(label) for label in nexts],
    }


def _inputs(out: Code, layout: Layout, inputs: list[tuple[str, Any]]) -> list[dict[str, int]]:
    rows: list[tuple[str, int, int, int]] = []
    for kind, valid, offset, width in _pieces(out, layout, inputs):
        last = rows[-1] if rows else ("", 0, 0, 0)
        if kind == "bits" and last[:2] == (kind, valid) and last[2] + last[3] == offset:
            rows[-1] = (kind, valid, last[2], last[3] + width)  # neighbours in a header are one run
        else:
            rows.append((kind, valid, offset, width))
    names = "kind valid offset width"
    return [_named(names, (engine.INPUT_KINDS.index(kind), *numbers)) for kind, *numbers in rows]


def _pieces(out: Code, layout: Layout, inputs: list[tuple[str, Any]]) -> Iterator[tuple[str, int, int, int]]:
    """Yield kind, validity, offset and width of each input.

    A field of a header counts only while the header is valid, unless it is sampled for a digest.
    """
    for kind, what in inputs:
        if kind == "payload":
            yield "payload", NONE, 0, 0
        elif kind == "constant":
            value, width = what
            if width:
                yield "constant", NONE, out.wide_constant(value & mask(width), width), width
        elif what.variable:
            valid = NONE if what.metadata else layout.validity[what.header]
            yield "variable", valid, layout.variables[what], 0
        elif what.is_valid_bit:
            yield "bits", NONE, layout.validity[what.header] * 8 + 7, 1
        elif what.width and what.metadata and what.width <= 64:
            yield "native", NONE, layout.offsets[what], what.width
        elif what.width:
            valid = NONE if kind == "sample" or what.metadata else layout.validity[what.header]
            yield "bits", valid, layout.bit_position(what), what.width


def _field_list(layout: Layout, members: list[Field]) -> list[dict[str, int]]:
    return [
        {"position": layout.offsets[member] * 8, "bits": layout.stored_bytes(member) * 8}
        if member.metadata
        else {"position": layout.bit_position(member), "bits": member.width}
        for member in members
    ]
