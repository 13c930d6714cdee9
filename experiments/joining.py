# SPDX-License-Identifier: Apache-2.0
"""Join the results of a run's ranks into its record, and find the bottleneck of the run."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from railweave.experiments.contenders import Job
from railweave.experiments.cpu import CpuTimes
from railweave.experiments.errors import OptionError
from railweave.experiments.records import CPU, LINKS, UNKNOWN, Cpu, RankResult, Record, Sample

NO_IDLE = 0.05  # share of all cores' time; below this share, cores count as never idle
TWICE = 1.6  # a call that takes this factor longer at half the rate counts as twice as long
CONTROLLED_BYTES = 64 << 10  # smaller calls take about as long at any rate


@dataclass
class Outcome:
    """The data of a run that has ended."""

    job: Job
    results: Sequence[RankResult] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    events: Sequence[tuple[float, str]] = ()  # faults and repairs, in seconds after the first timed call
    wires: Mapping[str, Counter[str]] = field(default_factory=dict)  # the kernel's counts, by plane
    cpu: CpuTimes = field(default_factory=CpuTimes)  # of the machine, from the ranks' start to their end
    wall_s: float = 0.0
    run_queue: float = 0.0


def joined(record: Record, outcome: Outcome) -> Record:
    """Return the record with the ranks' results. Raise OptionError if they do not fit together."""
    results = outcome.results
    sizes = {tuple((s.size_bytes, len(s.times_us)) for s in result.samples) for result in results}
    if len(sizes) != 1:
        raise OptionError(
            f"ranks have measured different calls: {sorted(sizes)}",
            "the same calls on all ranks",
            "correct the contender's worker",
        )
    if any(len(s.starts_s) != len(s.times_us) for result in results for s in result.samples):
        raise OptionError(
            "a rank's result has no starts_s",
            "the start of each call, by CLOCK_MONOTONIC",
            "correct the contender's worker",
        )
    began_s = min(result.began_s for result in results)
    of_sizes = zip(*(result.samples for result in results), strict=True)
    samples = tuple(_sample(of_ranks, began_s) for of_ranks in of_sizes)
    return replace(
        record,
        samples=samples,
        shares=_shares(outcome),
        counters=_counters(outcome),
        extra=_extra(outcome),
        hot=all(sample.hot for sample in samples),
        cpu=_cpu(outcome, samples),
        versions={**record.versions, **results[0].versions},
    )


def bottleneck(record: Record, control: Record | None) -> str:
    """Return the bottleneck of a run.

    It is `cpu` if cores were never idle, or if calls hardly took longer at half the rate.
    """
    if record.cpu is not None and record.cpu.idle < NO_IDLE:
        return CPU
    largest = max(record.samples, key=lambda sample: sample.size_bytes)
    slower = control.sample(largest.size_bytes) if control is not None else None
    if slower is None or largest.size_bytes < CONTROLLED_BYTES:
        return UNKNOWN
    return LINKS if slower.median_us >= TWICE * largest.median_us else CPU


def _sample(of_ranks: Sequence[Sample], began_s: float) -> Sample:
    """Return the calls of all ranks. The ranks run on one machine, and share a clock.

    A call's time begins when the last rank starts. The wait of an earlier rank for a later one does not
    count. It is already part of the call before, if calls follow each other.
    """
    starts_s = np.array([sample.starts_s for sample in of_ranks])
    ends_s = starts_s + np.array([sample.times_us for sample in of_ranks]) / 1e6
    last_starts_s = starts_s.max(0)
    times_us = (ends_s.max(0) - last_starts_s) * 1e6
    return Sample(
        size_bytes=of_ranks[0].size_bytes,
        times_us=tuple(times_us.round(1).tolist()),
        verified=sum(sample.verified for sample in of_ranks),
        wrong=sum(sample.wrong for sample in of_ranks),
        cpu_s=sum(sample.cpu_s for sample in of_ranks),
        memory_bytes=max(sample.memory_bytes for sample in of_ranks),
        hot=all(sample.hot for sample in of_ranks),
        starts_s=tuple((last_starts_s - began_s).round(6).tolist()),
        carried=of_ranks[0].carried,
    )


def _shares(outcome: Outcome) -> dict[str, dict[str, float]]:
    """Return each rail's share of the bytes, by size; 0 for a rail that carried nothing."""
    carried = _sums([result.carried for result in outcome.results])
    return {
        size: {rail: of_rails[rail] / of_rails.total() for rail in outcome.job.planes}
        for size, of_rails in carried.items()
    }


def _counters(outcome: Outcome) -> dict[str, dict[str, float]]:
    counters = _sums([outcome.wires, *(result.counters for result in outcome.results)])
    return {rail: dict(counts) for rail, counts in counters.items()}


def _sums(tables: Iterable[Mapping[str, Mapping[str, float]]]) -> dict[str, Counter[str]]:
    """Return the sums of tables, by row and column."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for table in tables:
        for name, row in table.items():
            sums[name].update(row)
    return sums


def _extra(outcome: Outcome) -> dict[str, Any]:
    extra = {**outcome.results[0].extra, **outcome.extra}
    if outcome.job.series:
        series = [result.extra["series"] for result in outcome.results]
        extra["events"] = [list(event) for event in outcome.events]
        extra["series"] = {
            rail: [sum(bins) for bins in zip_longest(*(s.get(rail, ()) for s in series), fillvalue=0)]
            for rail in dict.fromkeys(rail for of_rank in series for rail in of_rank)
        }
    return extra


def _cpu(outcome: Outcome, samples: Sequence[Sample]) -> Cpu:
    """Return the CPU times of a run.

    They are those of the timed calls if rank 0 has counted them, and those of the whole run otherwise.
    """
    counts = outcome.results[0].cpu if outcome.results[0].cpu.total_s else outcome.cpu
    gigabytes = sum(sample.size_bytes * len(sample.times_us) for sample in samples) / 1e9
    return Cpu(
        wall_s=outcome.wall_s,
        idle=counts.idle_s / counts.total_s if counts.total_s else 1.0,
        stolen=counts.stolen_s / counts.total_s if counts.total_s else 0.0,
        run_queue=outcome.run_queue,
        cores=os.cpu_count() or 1,
        cpu_s_per_gb={
            "hosts": sum(sample.cpu_s for sample in samples) / outcome.job.size / gigabytes,
            "switches": counts.services_s / gigabytes,
        },
    )
