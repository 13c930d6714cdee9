# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of RDMA rings; and mutants of program and hosts, which some schedule must catch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from protocol.ring_schedules import HangError, Mutation, Schedule, loaded_fabric, run_seed
from protocol.seeds import total

SEEDS = range(600)
MUTANT_SEEDS = range(1500)

Json = dict[str, Any]


@pytest.mark.parametrize("part", range(4))
def test_schedules(part: int, record_property: Callable[[str, object], None]) -> None:
    gave_up = total(run_seed, SEEDS[part::4])["gave_up"]
    assert gave_up < len(SEEDS) // 40, "most rings outlive a switch that has lost its state"


def test_a_seed_repeats_itself() -> None:
    first, second = run_seed(3), run_seed(3)
    assert first == second
    assert first.packets > 0


# --- mutants of the program, made of its JSON ---


def action(program: Json, name: str) -> Json:
    [found] = [a for a in program["actions"] if a["name"].split(".")[-1] == name]
    return dict(found)


def decides(old: str, new: str, program: Json) -> None:
    """One action of the table `decide` in the place of another."""
    [table] = [t for pipe in program["pipelines"] for t in pipe["tables"] if t["name"] == "decide"]
    for entry in table["entries"]:
        if entry["action_entry"]["action_id"] == action(program, old)["id"]:
            entry["action_entry"]["action_id"] = action(program, new)["id"]


def adds_again(program: Json) -> None:
    """A packet that is sent again counts again."""
    for each in program["actions"]:
        if each["name"].endswith("Sums.read"):
            donor = action(program, "add")
            each["primitives"], each["runtime_data"] = donor["primitives"], donor["runtime_data"]


def without(register: str, program: Json) -> None:
    """Nothing is written to a register."""
    for each in program["actions"]:
        each["primitives"] = [
            p
            for p in each["primitives"]
            if p["op"] != "register_write" or p["parameters"][0]["value"] != register
        ]


def stale_is_same(program: Json) -> None:
    """Packets of earlier rounds are taken for those of the slot's."""
    changed = 0
    for each in program["actions"]:
        for p in each["primitives"]:
            age = p["op"] == "assign" and "age" in p["parameters"][0]["value"][-1].split(".")[-1]
            if age and p["parameters"][1]["value"] == "0x00":
                p["parameters"][1]["value"] = "0x01"
                changed += 1
    assert changed == 1


def stage_sets(field: str, program: Json) -> None:
    """What Reduce itself writes to a field of the metadata is not written."""
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
    """A slot is used again while receivers may still lack its sum."""

    @staticmethod
    def slots_for(window: int, longest: int) -> int:
        return max(2, Schedule.slots_for(window, longest) // 4)


class SameEpoch(Schedule):
    """A ring takes over slots of an earlier one as if it were the same."""

    def _ring(self, number: int) -> Any:
        job = super()._ring(number)
        job.ring = replace(job.ring, epoch=1)
        return job


HOSTS = {"a wide window": WideWindow, "too few slots": HalfTheSlots, "the same epoch": SameEpoch}


def caught(schedule: type[Schedule], seed: int, mutation: Mutation | None = None) -> bool:
    """Whether this seed's schedule shows the mutant."""
    try:
        schedule(seed, mutation).run()
    except (AssertionError, HangError):
        return True
    return False


@pytest.mark.parametrize("name", PROGRAMS)
def test_mutants_of_the_program_are_caught(name: str) -> None:
    try:
        assert any(caught(Schedule, seed, PROGRAMS[name]) for seed in MUTANT_SEEDS)
    finally:
        loaded_fabric.cache_clear()


@pytest.mark.parametrize("name", HOSTS)
def test_mutants_of_hosts_are_caught(name: str) -> None:
    try:
        assert any(caught(HOSTS[name], seed) for seed in MUTANT_SEEDS)
    finally:
        loaded_fabric.cache_clear()


def test_the_program_itself_is_not_caught() -> None:
    same: Mutation = lambda program: json.dumps(program) and None  # noqa: E731
    assert not any(caught(Schedule, seed, same) for seed in range(60))
