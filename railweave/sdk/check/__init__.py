# SPDX-License-Identifier: Apache-2.0
"""The conformance suite of algorithms: seeded schedules in virtual time, with the compiled program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from railweave.sdk.check.schedules import Conditions, Schedule
from railweave.sdk.errors import place
from railweave.sdk.library import Algorithm

MOST_STEPS = 200  # tries to make a failing schedule simpler


@dataclass(frozen=True)
class Outcome:
    """One schedule: its failure, empty if it passed, and its counts of packets, bytes and results."""

    seed: int
    conditions: Conditions
    failure: str
    counts: Counter[str]
    worst: float  # greatest error of a float32 result, as a share of the bound


def explore(algorithm: Algorithm, seeds: Iterable[int], lanes: int = 0) -> Iterator[Outcome]:
    """Run the schedule of each seed. By default, packets have the fewest lanes that the manifest names."""
    lanes = lanes or min(algorithm.manifest.lanes)
    for seed in seeds:
        yield run(algorithm, Conditions.draw(algorithm, seed, lanes), seed, lanes)


def run(algorithm: Algorithm, conditions: Conditions, seed: int, lanes: int) -> Outcome:
    """Run one schedule. Any error of the algorithm's code is a failure."""
    schedule = None
    try:
        schedule = Schedule(algorithm, conditions, seed, lanes)
        schedule.run()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}{place(error, algorithm.folder)}"
    else:
        failure = ""
    if schedule is None:
        return Outcome(seed, conditions, failure, Counter(), 0.0)
    return Outcome(seed, conditions, failure, schedule.counts, schedule.worst)


def simplified(algorithm: Algorithm, outcome: Outcome, lanes: int = 0) -> Outcome:
    """Return a failing schedule with conditions that cannot be made simpler one by one.

    All conditions stay within the limits of the manifest.
    """
    lanes = lanes or min(algorithm.manifest.lanes)
    steps, smaller = MOST_STEPS, True
    while smaller and steps:
        smaller = False
        for conditions in outcome.conditions.simpler():
            if not conditions.within(algorithm.manifest):
                continue
            steps -= 1
            found = run(algorithm, conditions, outcome.seed, lanes)
            if found.failure:
                outcome, smaller = found, True
                break
            if not steps:
                break
    return outcome
