# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of every subject. No schedule may fail, and for every mutant one must fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from protocol import (
    atp_schedules,
    composed_schedules,
    recovery_mutants,
    recovery_schedules,
    ring_mutants,
    ring_schedules,
    schedules,
    spread_schedules,
    sum_schedules,
    switch_mutants,
)
from protocol.seeds import Make, caught, explore, run_seed

PARTS = 4  # the seeds are split into parts, so that a test is short


@dataclass(frozen=True)
class Subject:
    """Schedules of one kind, the names that each part must count, and a condition on these counts."""

    make: Make
    seeds: int
    counted: str
    holds: Callable[[Counter[str]], bool] = lambda counts: True


SUBJECTS = {
    "ina": Subject(schedules.Schedule, 800, "engine move restart halt cut death packets"),
    "atp": Subject(atp_schedules.Schedule, 400, "results sum collision drain alone duplicate result"),
    "composed": Subject(composed_schedules.Schedule, 400, "halt death loss"),
    "recovery": Subject(recovery_schedules.Schedule, 300, "datagrams", lambda counts: counts["epochs"] > 75),
    # Most rings survive a switch that has lost its state.
    "ring": Subject(ring_schedules.Schedule, 600, "packets", lambda counts: counts["gave_up"] < 15),
    "spread": Subject(
        spread_schedules.Schedule, 1000, "sleep halt move received", lambda counts: counts["fetched"] > 1000
    ),
    "sums": Subject(
        *(sum_schedules.Schedule, 400, "halt end death mismatch loss outage levels"),
        lambda counts: counts["summed"] > 100,
    ),
}


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", SUBJECTS)
def test_no_schedule_fails(name: str, part: int) -> None:
    subject = SUBJECTS[name]
    counts = explore(subject.make, range(part, subject.seeds, PARTS))
    assert set(subject.counted.split()) <= set(counts)
    assert subject.holds(counts), counts


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_seed_repeats_itself(name: str) -> None:
    first, second = (run_seed(SUBJECTS[name].make, 3) for _ in range(2))
    assert first == second
    assert first.counts


MUTANTS: dict[str, tuple[Make, int]] = {
    **{f"ina: {name}": (make, 400) for name, make in switch_mutants.MUTANTS.items()},
    **{f"recovery: {name}": (make, 300) for name, make in recovery_mutants.MUTANTS.items()},
    **{f"ring: {name}": (make, 1500) for name, make in ring_mutants.MUTANTS.items()},
    **{f"atp: {name}": (make, 400) for name, make in ring_mutants.ATP_MUTANTS.items()},
}


@pytest.fixture
def _fresh_switches() -> Iterator[None]:
    """Drop all switches afterwards, because some have a mutated program."""
    yield
    ring_schedules.loaded_fabric.cache_clear()
    atp_schedules.loaded_switch.cache_clear()


@pytest.mark.usefixtures("_fresh_switches")
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str) -> None:
    make, seeds = MUTANTS[name]
    assert caught(make, range(seeds))


@pytest.mark.usefixtures("_fresh_switches")
def test_a_program_that_is_loaded_as_a_mutant_is_not_caught() -> None:
    assert not caught(ring_mutants.UNCHANGED, range(60))


def test_the_model_itself_is_not_caught() -> None:
    assert not caught(switch_mutants.UNCHANGED, range(60))
