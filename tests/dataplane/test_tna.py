# SPDX-License-Identifier: Apache-2.0
"""The program for Tofino. It must match its sources and work with the same controller."""

from __future__ import annotations

from typing import Any

import pytest
from dataplane.harness import Program
from dataplane.programs import TNA, aggregation
from dataplane.tna import RECORD, sources

INJECTOR = {"injector_ingress", "injector_egress"}
OWN = {
    "admission",
    "other_service",
    "arp",
    "members_of_slot",
    "mark_of_slot",
    "owner_of_slot",
    "again_in_slot",
    "flags_of_slot",
}
"""Tables with constant entries, which choose what a stateful ALU does."""


def test_the_compiled_program_is_of_these_sources() -> None:
    assert RECORD.read_text() == sources(), (
        "the P4 sources have changed: `cd tests && python -m dataplane.tna`"
    )


def interface(table: Any) -> dict[str, Any]:
    """Return the properties of a table that a controller must know."""
    fields = [(field.alias, field.bitwidth, field.match_type) for field in table.match_fields]
    actions = {
        action.alias: [(param.name, param.bitwidth) for param in action.params] for action in table.actions
    }
    return {"fields": fields, "actions": actions, "size": table.size, "counted": bool(table.direct_counter)}


@pytest.mark.parametrize("lanes", [64, 256])
@pytest.mark.parametrize("program", TNA, ids=lambda program: program.name)
def test_tables_that_a_controller_writes_are_the_same(program: Program, lanes: int) -> None:
    theirs = {table.alias: interface(table) for table in aggregation(lanes).schema.tables}
    ours = {table.alias: interface(table) for table in program.schema.tables}
    of_lanes = {f"lane_of_slot_{n:02X}" for n in range(0, program.lanes, program.lanes // 32)}
    assert theirs.keys() - ours.keys() == INJECTOR
    assert ours.keys() - theirs.keys() == OWN | of_lanes
    assert {name: ours[name] for name in theirs.keys() - INJECTOR} == {
        name: theirs[name] for name in theirs.keys() - INJECTOR
    }


@pytest.mark.parametrize("program", TNA, ids=lambda program: program.name)
def test_registers_have_the_same_names_and_sizes(program: Program) -> None:
    names = [f"slot_{name}" for name in ("tag", "seen", "mark", "owner", "flags")]
    names += [f"lane_{n:02X}" for n in range(program.lanes)]
    theirs, ours = aggregation(64).schema.registers, program.schema.registers
    assert [ours[name].size for name in names] == [theirs[name].size for name in names]
