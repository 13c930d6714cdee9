# SPDX-License-Identifier: Apache-2.0
"""Mutants of the compiled programs. Each mutation changes one rule in a program's JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial
from typing import Any

import finsy as fy
from dataplane.harness import Program
from dataplane.inprocess import InProcessSwitch

Mutation = Callable[[dict[str, Any]], None]


def unchanged(_program: dict[str, Any]) -> None:
    """Change nothing."""


@dataclass(frozen=True)
class Mutant(Program):
    """A program whose JSON is changed."""

    mutation: Mutation = unchanged

    @cached_property
    def schema(self) -> fy.P4Schema:
        """The schema of P4Info and the changed JSON."""
        changed = json.loads(self.json.read_text())
        self.mutation(changed)
        return fy.P4Schema(self.p4info, json.dumps(changed).encode())


@lru_cache(maxsize=4)
def mutant(program: Program, mutation: Mutation) -> Mutant:
    """Return a mutant of a program."""
    return Mutant(*(getattr(program, field.name) for field in fields(program)), mutation)


def loaded(program: Program, mutation: Mutation | None = None) -> InProcessSwitch:
    """Return a new switch with a program, mutated if a mutation is given."""
    switch = InProcessSwitch()
    switch.load(mutant(program, mutation) if mutation else program)
    return switch


def action(program: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [a for a in program["actions"] if a["name"].split(".")[-1] == name]
    return dict(found)


def decides(old: str, new: str, program: dict[str, Any]) -> None:
    """Replace one action of the table `decide` by another."""
    [table] = [t for pipe in program["pipelines"] for t in pipe["tables"] if t["name"] == "decide"]
    for entry in table["entries"]:
        if entry["action_entry"]["action_id"] == action(program, old)["id"]:
            entry["action_entry"]["action_id"] = action(program, new)["id"]


def adds_again(program: dict[str, Any]) -> None:
    """Add a resent packet to the sum again."""
    for each in program["actions"]:
        if each["name"].endswith(("Sums.read", "Lanes.read")):
            donor = action(program, "add")
            each["primitives"], each["runtime_data"] = donor["primitives"], donor["runtime_data"]


def without(register: str, program: dict[str, Any]) -> None:
    """Write nothing to a register."""
    for each in program["actions"]:
        each["primitives"] = [
            p
            for p in each["primitives"]
            if p["op"] != "register_write" or p["parameters"][0]["value"] != register
        ]


def stale_is_same(program: dict[str, Any]) -> None:
    """Treat packets of earlier rounds as packets of the slot's round."""
    changed = 0
    for each in program["actions"]:
        for p in each["primitives"]:
            age = p["op"] == "assign" and "age" in p["parameters"][0]["value"][-1].split(".")[-1]
            if age and p["parameters"][1]["value"] == "0x00":
                p["parameters"][1]["value"] = "0x01"
                changed += 1
    assert changed == 1


def sum_is_added(program: dict[str, Any]) -> None:
    """Add the sum of all to a leaf's own sum."""
    [stage] = [
        each
        for each in program["actions"]
        for p in (each["primitives"] if each["name"].startswith("main") else ())
        if p["op"] == "assign" and p["parameters"][0]["value"][-1] == "metadata_t.age"
    ]
    stage["primitives"] = []


NETREDUCE: dict[str, Mutation] = {
    "a repetition counts again": adds_again,
    "a lost sum is not sent again": partial(decides, "repeat", "duplicate"),
    "an older packet is taken for the slot's": stale_is_same,
    "an incomplete sum is sent again": partial(decides, "duplicate", "repeat"),
    "RETHs are not kept": partial(without, "kept_reth"),
    "immediate data are not kept": partial(without, "kept_immediate"),
    "groups before are not told apart": partial(without, "slot_epoch"),
    "a leaf's sum is not sent up again": partial(decides, "forward_up_again", "duplicate"),
    "the sum of all is added to the leaf's": sum_is_added,
}
ATP: dict[str, Mutation] = {
    "a repetition counts again": adds_again,
    "ranks are not kept": partial(without, "aggregator_ranks"),
    "a lone repetition goes nowhere": partial(decides, "alone", "absorb"),
    "results go nowhere": partial(decides, "result", "absorb"),
}
