# SPDX-License-Identifier: Apache-2.0
"""Runs of seeded schedules: some of them in a test, or many on all CPUs as a command."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from typing import Any

RunSeed = Callable[[int], Any]
"""Runs a seed's schedule; its outcome is a dataclass of `failure`, and of numbers and counters."""


def total(run_seed: RunSeed, seeds: Iterable[int]) -> Counter[str]:
    """Run seeds and add up what their outcomes count; AssertionError for the first failure."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        outcome = run_seed(seed)
        assert not outcome.failure, _complaint(run_seed, seed, outcome.failure)
        counts += _counts(outcome)
    return counts


def main(run_seed: RunSeed, about: str) -> int:
    """Run the seeds that the command line gives; the exit status is 1 if one failed."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", default="0:1000", help="FIRST:END")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    seeds = range(*map(int, options.seeds.split(":")))
    begin, failed = time.perf_counter(), 0
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(options.workers) as pool:
        outcomes = pool.map(run_seed, seeds, chunksize=max(1, min(50, len(seeds))))
        for seed, outcome in zip(seeds, outcomes, strict=True):
            counts += _counts(outcome)
            if outcome.failure:
                failed += 1
                print(_complaint(run_seed, seed, outcome.failure))
    told = "".join(f", {count} {name}" for name, count in counts.items())
    print(f"{len(seeds)} schedules{told}: {failed} failed ({time.perf_counter() - begin:.1f} s)")
    return int(failed > 0)


def _counts(outcome: Any) -> Counter[str]:
    counts: Counter[str] = Counter()
    for each in fields(outcome):
        value = getattr(outcome, each.name)
        if each.name != "failure":
            counts.update(value if isinstance(value, Counter) else {each.name: value})
    return counts


def _complaint(run_seed: RunSeed, seed: int, failure: str) -> str:
    spec = sys.modules[run_seed.__module__].__spec__  # of `python -m`, where the module is __main__
    name = spec.name if spec else run_seed.__module__
    replay = f"cd tests && python -m {name} --seeds {seed}:{seed + 1}"
    return f"seed {seed}: {failure[:2000]}\n  replay: {replay}"
