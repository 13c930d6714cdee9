# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of every subject. No schedule may fail, and for every mutant one must fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from protocol import (
    composed_schedules,
    recovery_schedules,
    schedules,
    spread_schedules,
    sum_schedules,
)
from protocol.seeds import Make, caught, explore, run_seed
from protocol.virtual_time import MILLISECOND, SECOND

from railweave._rigs import recovery


@dataclass(frozen=True)
class Subject:
    """Schedules of one kind, the names that they must count, and a condition on these counts."""

    make: Make
    seeds: int
    counted: str
    holds: Callable[[Counter[str]], bool] = lambda counts: True


SUBJECTS = {
    "ina": Subject(schedules.Schedule, 300, "move restart halt cut death packets"),
    "composed": Subject(composed_schedules.Schedule, 100, "halt death loss"),
    "recovery": Subject(recovery_schedules.Schedule, 150, "datagrams", lambda counts: counts["epochs"] > 75),
    "spread": Subject(
        spread_schedules.Schedule, 200, "sleep halt move received", lambda counts: counts["fetched"] > 1000
    ),
    "sums": Subject(
        *(sum_schedules.Schedule, 100, "halt end death mismatch loss outage levels"),
        lambda counts: counts["summed"] > 100,
    ),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_schedule_fails(name: str) -> None:
    subject = SUBJECTS[name]
    counts = explore(subject.make, range(subject.seeds))
    assert set(subject.counted.split()) <= set(counts)
    assert subject.holds(counts), counts


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_seed_repeats_itself(name: str) -> None:
    first, second = (run_seed(SUBJECTS[name].make, 3) for _ in range(2))
    assert first == second
    assert first.counts


class OwnMark(schedules.Schedule):
    """Each rank restarts at its own next chunk."""

    def restart_one(self, job: schedules.Job, rank: int, base: int, calls: range, at_once: bool) -> None:
        own = self.network.endpoints[rank].next_chunk()
        super().restart_one(job, rank, own, calls, at_once)


class SameStart(schedules.Schedule):
    """A group takes over a slot range, and reuses serial numbers of the earlier group."""

    def leave(self, job: schedules.Job) -> None:
        start = job.start
        super().leave(job)
        job.start = start


DEFAULT = recovery.Options(rank=0, world_size=2, rails=1)


def patience(silence: int) -> Make:
    """Make ranks that exclude a rail after this silence."""
    return partial(recovery_schedules.Schedule, least_silence=silence, most_silence=silence)


MUTANTS: dict[str, Make] = {
    "ina: resume from the own position": partial(schedules.Schedule, resume_from=list),
    "ina: resume from the position of one": partial(
        schedules.Schedule, resume_from=lambda positions: [positions[0]] * len(positions)
    ),
    "ina: restart at the own mark": OwnMark,
    "ina: the same start again": SameStart,
    "sums: too few slots": partial(sum_schedules.Schedule, windows=1),
    "sums: the same epoch": partial(sum_schedules.Schedule, epoch=sum_schedules.EARLIER),
    "recovery: no hold": partial(recovery_schedules.Schedule, hold=MILLISECOND),
    "recovery: patience without end": patience(SECOND),
    "recovery: no patience": patience(DEFAULT.heartbeat),
    "recovery: lateness means nothing": partial(recovery_schedules.BusyMachine, most_leeway=0),
    "recovery: busy and impatient": partial(
        recovery_schedules.BusyMachine, most_silence=DEFAULT.least_silence, most_leeway=0
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str) -> None:
    """As many seeds must suffice as `test_no_schedule_fails` runs."""
    assert caught(MUTANTS[name], range(100))
