# SPDX-License-Identifier: Apache-2.0
"""Mutants of the programs that sum RDMA rings and ATP's gradients, and of their hosts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from protocol import atp_schedules
from protocol.ring_schedules import Mutation, Schedule
from protocol.seeds import Make
from protocol.virtual_time import SECOND

Program = dict[str, Any]

# --- mutants of the program's JSON ---


def action(program: Program, name: str) -> Program:
    [found] = [a for a in program["actions"] if a["name"].split(".")[-1] == name]
    return dict(found)


def decides(old: str, new: str, program: Program) -> None:
    """Replace one action of the table `decide` by another."""
    [table] = [t for pipe in program["pipelines"] for t in pipe["tables"] if t["name"] == "decide"]
    for entry in table["entries"]:
        if entry["action_entry"]["action_id"] == action(program, old)["id"]:
            entry["action_entry"]["action_id"] = action(program, new)["id"]


def adds_again(program: Program) -> None:
    """Add a resent packet to the sum again."""
    for each in program["actions"]:
        if each["name"].endswith("Sums.read"):
            donor = action(program, "add")
            each["primitives"], each["runtime_data"] = donor["primitives"], donor["runtime_data"]


def without(register: str, program: Program) -> None:
    """Write nothing to a register."""
    for each in program["actions"]:
        each["primitives"] = [
            p
            for p in each["primitives"]
            if p["op"] != "register_write" or p["parameters"][0]["value"] != register
        ]


def stale_is_same(program: Program) -> None:
    """Treat packets of earlier rounds as packets of the slot's round."""
    changed = 0
    for each in program["actions"]:
        for p in each["primitives"]:
            age = p["op"] == "assign" and "age" in p["parameters"][0]["value"][-1].split(".")[-1]
            if age and p["parameters"][1]["value"] == "0x00":
                p["parameters"][1]["value"] = "0x01"
                changed += 1
    assert changed == 1


def stage_sets(field: str, program: Program) -> None:
    """Omit the value that the control Reduce writes to a metadata field."""
    changed = 0
    for each in program["actions"]:
        for p in each["primitives"] if each["name"].startswith("main") else ():
            if p["op"] == "assign" and p["parameters"][0]["value"][-1] == f"metadata_t.{field}":
                each["primitives"] = []
                changed += 1
    assert changed == 1


PROGRAMS: dict[str, Mutation] = {
    "a repetition counts again": adds_again,
    "a lost sum is not sent again": partial(decides, "repeat", "duplicate"),
    "an older packet goes nowhere": partial(decides, "acknowledge", "duplicate"),
    "an older packet is taken for the slot's": stale_is_same,
    "an incomplete sum is sent again": partial(decides, "duplicate", "repeat"),
    "RETHs are not kept": partial(without, "kept_reth"),
    "immediate data are not kept": partial(without, "kept_immediate"),
    "groups before are not told apart": partial(without, "slot_epoch"),
    "a leaf's sum is not sent up again": partial(decides, "forward_up_again", "duplicate"),
    "the sum of all is added to the leaf's": partial(stage_sets, "age"),
    "a member's packet is added to the sum of all": partial(stage_sets, "again"),
}


# --- mutants of hosts and controller ---


class WideWindow(Schedule):
    """Hosts send two windows ahead."""

    window_factor = 2


class HalfTheSlots(Schedule):
    """Hosts reuse a slot while receivers may still miss its sum."""

    @staticmethod
    def slots_for(window: int, longest: int) -> int:
        return max(2, Schedule.slots_for(window, longest) // 4)


class SameEpoch(Schedule):
    """A ring takes over the slots of an earlier ring under the same epoch."""

    def _ring(self, number: int) -> Any:
        job = super()._ring(number)
        job.ring = replace(job.ring, epoch=1)
        return job


MUTANTS: dict[str, Make] = {
    **{name: partial(Schedule, mutation=mutation) for name, mutation in PROGRAMS.items()},
    "a wide window": WideWindow,
    "too few slots": HalfTheSlots,
    "the same epoch": SameEpoch,
}


def unchanged(_program: Program) -> None:
    """Change nothing."""


UNCHANGED: Make = partial(Schedule, mutation=unchanged)

# --- ATP ---

ATP_PROGRAMS: dict[str, Mutation] = {
    "a repetition counts again": adds_again,
    "owners are not kept": partial(without, "aggregator_owner"),
    "ranks are not kept": partial(without, "aggregator_ranks"),
    "a collision is dropped": partial(decides, "collision", "absorb"),
    "what is drained goes nowhere": partial(decides, "drain", "absorb"),
    "a lone repetition goes nowhere": partial(decides, "alone", "absorb"),
    "a sum goes nowhere": partial(decides, "sum", "absorb"),
    "results go nowhere": partial(decides, "result", "absorb"),
}
ATP_MUTANTS: dict[str, Make] = {
    name: partial(atp_schedules.Schedule, mutation=mutation, bound=300 * SECOND)
    for name, mutation in ATP_PROGRAMS.items()
}
