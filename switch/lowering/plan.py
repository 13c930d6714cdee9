# SPDX-License-Identifier: Apache-2.0
"""The plan as bytes, in the order in which native/engine/plan.cpp reads it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from railweave._native.engine import NONE, OPS, PLAN_MAGIC
from railweave.switch.lowering.code import Constant, Label, Operand
from railweave.switch.lowering.control import TableNode
from railweave.switch.lowering.emit import Emitter
from railweave.switch.lowering.expr import mask
from railweave.switch.lowering.fields import Field, Header, Headers, Register, Stack
from railweave.switch.lowering.layout import Layout
from railweave.switch.program import MatchType

SIGNATURES: dict[int, str] = dict(OPS.values())

INTRINSICS = (  # in the order of `Intrinsic` in plan.hpp
    ("standard_metadata", "ingress_port"),
    ("standard_metadata", "egress_spec"),
    ("standard_metadata", "egress_port"),
    ("standard_metadata", "instance_type"),
    ("standard_metadata", "packet_length"),
    ("intrinsic_metadata", "mcast_grp"),
    ("intrinsic_metadata", "egress_rid"),
    ("intrinsic_metadata", "ingress_global_timestamp"),
    ("intrinsic_metadata", "egress_global_timestamp"),
    ("queueing_metadata", "enq_timestamp"),
    ("queueing_metadata", "enq_qdepth"),
    ("queueing_metadata", "deq_timedelta"),
    ("queueing_metadata", "deq_qdepth"),
    ("standard_metadata", "parser_error"),
    ("standard_metadata", "checksum_error"),
    ("intrinsic_metadata", "priority"),
)
ENGINE_READS = {
    ("standard_metadata", "egress_spec"),
    ("standard_metadata", "instance_type"),
    ("intrinsic_metadata", "mcast_grp"),
    ("intrinsic_metadata", "egress_rid"),
    ("intrinsic_metadata", "priority"),
}
REQUIRED = 5  # the first of these, without which simple_switch does not load a program

CORE_ERRORS = ("NoError", "PacketTooShort", "StackOutOfBounds", "HeaderTooShort", "ParserInvalidArgument")


@dataclass
class PlanParts:
    """What goes into a plan besides the code."""

    headers: Headers
    layout: Layout
    registers: list[Register]
    counters: list[int]  # sizes
    meters: list[tuple[int, int, int]]  # size, rates, whether of bytes
    tables: list[TableNode]
    entries: dict[int, Label]  # of actions, by id
    calculations: list[tuple[int, list[tuple[str, Any]]]]
    field_lists: list[list[Field]]
    learn_lists: list[list[tuple[str, Any]]]  # as calculations' inputs
    order: list[str]
    errors: dict[str, int]
    intrinsics: list[Field | None]
    # Where parser, the code behind it, ingress, egress and the code in front of the deparser begin.
    starts: tuple[Label, Label, Label, Label, Label]
    nodes: dict[int, tuple[list[Label], Label | None, Label]] = field(default_factory=dict)


def _words(values: Iterable[int]) -> bytes:
    data = list(values)
    return struct.pack(f"<{len(data)}I", *data)


def _list(values: Iterable[int]) -> bytes:
    data = list(values)
    return _words([len(data), *data])


def _list64(values: Iterable[int]) -> bytes:
    data = list(values)
    return struct.pack(f"<I{len(data)}Q", len(data), *data)


def _pc(label: Label | None) -> int:
    if label is None:
        return NONE
    assert label.pc is not None, "a label that was never placed"  # noqa: S101
    return label.pc


def assemble(out: Emitter, parts: PlanParts) -> bytes:
    """The bytes of the plan."""
    layout = parts.layout
    calculations = [  # adds constants
        _words([algorithm]) + _inputs(out, parts, inputs) for algorithm, inputs in parts.calculations
    ]
    learn_lists = [_inputs(out, parts, inputs) for inputs in parts.learn_lists]
    key_words = max((table.info.key_words for table in parts.tables), default=0)
    code = b"".join(_instruction(out, number, operands) for number, operands in out.code)
    head = [
        layout.size,
        layout.metadata_bytes,
        len(out.constants) + out.registers,
        out.wides,
        out.limbs,
        out.vectors,
        out.lanes,
        key_words + out.limbs,
        out.parameter_words + out.limbs,
        *(_pc(label) for label in parts.starts),
    ]
    pieces = [
        _words([PLAN_MAGIC, *head]),
        *(_native(layout, member) for member in parts.intrinsics),
        _words(parts.errors.get(name, position) for position, name in enumerate(CORE_ERRORS)),
        _list64(out.constants),
        _words([len(out.wide_constants)]),
        *(_list64(constant) for constant in out.wide_constants),
        _words([len(parts.headers.packet_headers)]),
        *(
            _words([layout.images[h.name], h.bits // 8, layout.validity[h.name], *_variable_part(layout, h)])
            for h in parts.headers.packet_headers
        ),
        _words([len(layout.variables)]),
        *(_words([layout.offsets[member], member.width // 8]) for member in layout.variables),
        _words([len(parts.headers.all_stacks)]),
        *(_stack(layout, stack) for stack in parts.headers.all_stacks),
        _list(parts.headers.by_name[name].index for name in parts.order),
        _storage(out, parts),
        _list(parts.counters),
        _words([len(parts.meters), *(number for meter in parts.meters for number in meter)]),
        _words([len(parts.tables)]),
        *(_table(parts, table) for table in parts.tables),
        _words([len(calculations)]),
        *calculations,
        _words([len(parts.field_lists)]),
        *(_field_list(layout, members) for members in parts.field_lists),
        _words([len(learn_lists)]),
        *learn_lists,
        _words([len(out.code)]),
        code,
    ]
    return b"".join(pieces)


def _instruction(out: Emitter, number: int, operands: list[Operand]) -> bytes:
    values = []
    for kind, operand in zip(SIGNATURES[number], operands, strict=True):
        if isinstance(operand, Constant):
            values.append(operand.index)
        elif isinstance(operand, Label):
            values.append(_pc(operand))
        elif kind in "rR":
            values.append(len(out.constants) + operand)
        else:
            values.append(operand)
    return struct.pack("<HHIII", number, *values)


def _variable_part(layout: Layout, header: Header) -> list[int]:
    member = header.variable
    return [NONE, 0] if member is None else [layout.variables[member], member.position]


def _stack(layout: Layout, stack: Stack) -> bytes:
    indexes = [header.index for element in stack.elements for header in element]
    numbers = [layout.stack_next[stack.name], len(stack.elements[0]), int(bool(stack.members))]
    return _words(numbers) + _list(indexes)


def _native(layout: Layout, member: Field | None) -> bytes:
    return _words([0, 0] if member is None else [layout.offsets[member], member.width])


def _storage(out: Emitter, parts: PlanParts) -> bytes:
    layout = parts.layout
    shapes = [layout.bank_shape(bank) for bank in range(len(layout.banks))]
    arrays = [(*layout.bank_position(r), r.size, r.width) for r in parts.registers]
    return b"".join(
        _words([len(rows), *(number for row in rows for number in row)])
        for rows in (shapes, arrays, list(out.slices))
    )


def _table(parts: PlanParts, table: TableNode) -> bytes:
    kinds = {part.match for part in table.info.key}
    kind = 2 if kinds & {MatchType.TERNARY, MatchType.RANGE} else 1 if MatchType.LPM in kinds else 0
    nexts, hit, miss = parts.nodes[table.info.index]
    meter = NONE if table.meter is None else table.meter[0]
    result = _native(parts.layout, None if table.meter is None else table.meter[1])
    actions = [_pc(parts.entries[number]) for number in table.action_ids]
    numbers = [kind, table.info.key_words, table.info.size, _pc(hit), _pc(miss), meter]
    selector = [NONE if table.selector is None else table.selector, int(table.info.idle_timeouts)]
    return _words(numbers) + result + _words(selector) + _list(actions) + _list(_pc(label) for label in nexts)


def _inputs(out: Emitter, parts: PlanParts, inputs: list[tuple[str, Any]]) -> bytes:
    rows: list[list[int]] = []
    layout = parts.layout
    for kind, what in inputs:
        if kind == "payload":
            rows.append([3, NONE, 0, 0])
        elif kind == "constant":
            value, width = what
            if width:
                rows.append([2, NONE, out.wide_constant(value & mask(width), width), width])
        else:
            _input_field(rows, layout, what, always=kind == "sample")
    return _words([len(rows), *(number for row in rows for number in row)])


def _input_field(rows: list[list[int]], layout: Layout, member: Field, *, always: bool) -> None:
    """A field of a header counts only where the header is valid, unless it is sampled for a digest."""
    if member.variable:
        valid = NONE if member.metadata else layout.validity[member.header]
        rows.append([4, valid, layout.variables[member], 0])
        return
    if member.width == 0:
        return
    if member.metadata and member.width <= 64:
        rows.append([1, NONE, layout.offsets[member], member.width])
        return
    if member.is_valid_bit:
        rows.append([0, NONE, layout.validity[member.header] * 8 + 7, 1])
        return
    valid = NONE if always or member.metadata else layout.validity[member.header]
    position = layout.bit_position(member)
    if rows and rows[-1][:2] == [0, valid] and rows[-1][2] + rows[-1][3] == position:
        rows[-1][3] += member.width  # neighbours in a header are one run
    else:
        rows.append([0, valid, position, member.width])


def _field_list(layout: Layout, members: list[Field]) -> bytes:
    ranges = []
    for member in members:
        if member.metadata:
            ranges += [layout.offsets[member] * 8, layout.stored_bytes(member) * 8]
        else:
            ranges += [layout.bit_position(member), member.width]
    return _words([len(members), *ranges])
