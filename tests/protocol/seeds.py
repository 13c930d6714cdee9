# SPDX-License-Identifier: Apache-2.0
"""Explorer of seeded schedules: a test runs a few schedules, a command runs many on all CPUs.

A schedule is made from a seed. Its run fails with an exception. The same seed gives the same run again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol


class Seeded(Protocol):
    """One run, drawn from a seed."""

    counts: Counter[str]
    """Faults, packets and results of the run."""

    def run(self) -> object:
        """Run to the end. An exception is a failure."""


Make = Callable[[int], Seeded]


@dataclass(frozen=True)
class Outcome:
    """The result of one seed."""

    failure: str
    counts: Counter[str]


def run_seed(make: Make, seed: int) -> Outcome:
    """Run the schedule of one seed."""
    schedule = make(seed)
    try:
        schedule.run()
    except (AssertionError, ValueError, RuntimeError) as error:
        return Outcome(f"{type(error).__name__}: {error}", schedule.counts)
    return Outcome("", schedule.counts)


def explore(make: Make, seeds: Iterable[int]) -> Counter[str]:
    """Run seeds and add up their counts. Raise AssertionError for the first failure."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_seed(make, seed)
        assert not outcome.failure, _complaint(make, seed, outcome.failure)
        counts += outcome.counts
    return counts


def caught(make: Make, seeds: Iterable[int]) -> bool:
    """Return whether some seed fails. For a mutant, one must."""
    return any(run_seed(make, seed).failure for seed in seeds)


def main(make: Make, about: str | None) -> int:
    """Run the seeds that the command line gives. Return exit status 1 if one failed."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="0:1000", help="FIRST:END")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    seeds = range(*map(int, options.seeds.split(":")))
    begin, failed = time.perf_counter(), 0
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(options.workers) as pool:
        outcomes = pool.map(partial(run_seed, make), seeds, chunksize=max(1, min(50, len(seeds))))
        for seed, outcome in zip(seeds, outcomes, strict=True):
            counts += outcome.counts
            if outcome.failure:
                failed += 1
                print(_complaint(make, seed, outcome.failure))
    told = "".join(f", {count} {name}" for name, count in counts.items())
    print(f"{len(seeds)} schedules{told}: {failed} failed ({time.perf_counter() - begin:.1f} s)")
    return int(failed > 0)


def _complaint(make: Any, seed: int, failure: str) -> str:
    spec = sys.modules[make.__module__].__spec__  # has the real name if `python -m` runs the module
    name = spec.name if spec else make.__module__
    replay = f"cd tests && python -m {name} --seeds {seed}:{seed + 1}"
    return f"seed {seed}: {failure[:2000]}\n  replay: {replay}"
