# SPDX-License-Identifier: Apache-2.0
"""One rank of one run of any contender: `python -m railweave.experiments.worker JOB.json RANK`.

For each size: warm-up calls until times are steady and nothing is left to learn, then timed calls, every
result of which is compared element by element. Writes a `RankResult`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from railweave.experiments import statistics
from railweave.experiments.contenders import Array, Endpoint, Job
from railweave.experiments.cpu import CpuTimes, cpu_times, resident_bytes
from railweave.experiments.messages import emit, run_worker
from railweave.experiments.problem import ITEM, SCALES, SHARDED, Problem, problem, shard_elements
from railweave.experiments.records import RankResult, Sample
from railweave.experiments.scenario import Workload
from railweave.topologies.values import build

BATCH_BYTES = 64 << 20  # results kept before they are checked
BATCH_CALLS, BATCH_S = 10, 0.05  # at least, and about, where `seconds` bounds the calls: then it is looked at
LEAST_CALLS = 3
STEADY_CALLS = 5  # two medians of so many calls differ by less than
STEADY = 0.25
MOST_WARMUP, MOST_WARMUP_S = 40, 2.0  # calls beyond those asked for, and seconds: whichever ends later
LEARNING_CALLS, LEARNING_S = 640, 0.5  # calls between looks whether all is learnt: at most, and about
BIN_S = 0.01  # of series
NEWS_S = 5.0  # between signs of life


class Worker:
    """One rank's run."""

    def __init__(self, job: Job, rank: int, endpoint: Endpoint) -> None:
        """Nothing is called yet."""
        self._job = job
        self._rank = rank
        self._endpoint = endpoint
        self._work = build(Workload, job.workload, "workload")
        self._token = np.zeros(1, np.int32)
        self._carried: dict[str, Counter[str]] = {}
        self._series: dict[str, Counter[int]] = defaultdict(Counter)  # bytes by rail and bin
        self._by_call: dict[str, list[Counter[str]]] = {}  # bytes by size, call and rail
        self._cpu = CpuTimes()
        self._start_s = 0.0  # of the first timed call, CLOCK_MONOTONIC
        self._news_s = time.monotonic()

    def run(self) -> RankResult:
        """Measure all sizes, or the steps of training."""
        work = self._work
        steps = [work.messages] if work.messages else [(size,) for size in work.sizes]
        samples = tuple(self._measure(step) for step in steps)
        extra = (
            {"bin_s": BIN_S, "series": self._binned(), "carried": self._by_call} if self._job.series else {}
        )
        return RankResult(
            samples,
            self._carried,
            self._endpoint.counters(),
            self._endpoint.versions(),
            extra,
            self._cpu,
            self._start_s,
        )

    def _measure(self, step: Sequence[int]) -> Sample:
        """Measure calls of these sizes, one after the other, as one."""
        calls = _Step(self._job, self._work, self._rank, step)
        warm = self._warm_up(calls)
        self._endpoint.slices()
        self._start_s = self._start_s or time.monotonic()
        emit("begin", rank=self._rank, size_bytes=calls.size_bytes, at=self._start_s)
        sample = Sample(calls.size_bytes, (), (), 0, 0, hot=self._hot(step))
        deadline = time.monotonic() + (self._work.seconds or float("inf"))
        carried: Counter[str] = Counter()
        while batch := self._sum(self._next_batch(sample, deadline) if self._rank == 0 else 0):
            begin = warm + len(sample.times_us)
            for first in range(begin, begin + batch, calls.batch):
                numbers = range(first, min(first + calls.batch, begin + batch))
                sample = self._batch(calls, sample, numbers)
                self._take_slices(carried, sample)
        if carried:
            self._carried[str(calls.size_bytes)] = carried
        return sample

    def _warm_up(self, calls: _Step) -> int:
        """Return how many calls it took; none are made if none are asked for."""
        seconds: list[float] = []
        while several := self._sum(self._next_warm_up(calls, seconds) if self._rank == 0 else 0):
            end = len(seconds) + several
            while len(seconds) < end:  # each in memory of its own, as timed calls
                numbers = range(len(seconds), min(end, len(seconds) + calls.batch))
                calls.prepare(numbers)
                made = [calls.made(self._endpoint, number, place) for place, number in enumerate(numbers)]
                for step in made:
                    begin = time.monotonic()
                    for call in step:
                        call()
                    seconds.append(time.monotonic() - begin)
                    self._tell(size_bytes=calls.size_bytes, calls=len(seconds), warm_up=True)
        return len(seconds)

    def _batch(self, calls: _Step, sample: Sample, numbers: Sequence[int]) -> Sample:
        """Time calls that follow each other without a pause; compare their results then."""
        calls.prepare(numbers)
        made = [calls.made(self._endpoint, number, place) for place, number in enumerate(numbers)]
        begins, ends = [], []
        compute_s, together = self._work.compute_s, self._work.collective == "broadcast"
        self._endpoint.barrier()
        before, processor = cpu_times(self._job.services), time.process_time()
        # As little as can be between two calls: the other ranks wait for it.
        for step in made:
            if together:  # in a broadcast nobody waits for those behind: calls would overlap
                self._endpoint.barrier()
            begins.append(time.monotonic())
            if compute_s:
                time.sleep(compute_s)
            for call in step:
                call()
            ends.append(time.monotonic())
            if ends[-1] - self._news_s > NEWS_S:
                done = len(sample.times_us) + len(ends)
                self._tell(size_bytes=calls.size_bytes, calls=done, warm_up=False)
        processor = time.process_time() - processor
        self._cpu += cpu_times(self._job.services) - before
        times = [round((end - begin) * 1e6, 1) for begin, end in zip(begins, ends, strict=True)]
        return replace(
            sample,
            times_us=(*sample.times_us, *times),
            starts_s=(*sample.starts_s, *begins),
            verified=sample.verified + len(numbers) * len(calls.parts),
            wrong=sample.wrong + calls.wrong(numbers),
            cpu_s=sample.cpu_s + processor,
            memory_bytes=resident_bytes(os.getpid()),
        )

    def _next_warm_up(self, calls: _Step, seconds: Sequence[float]) -> int:
        """Return how many calls to make until it is looked again whether all is warm; 0: it is.

        Where something is left to learn these are many: other calls in between, as those that agree on this
        number, hide which way of short calls is the quickest.
        """
        asked, done = self._work.warmup, len(seconds)
        if done < asked or not asked:
            return asked
        hot = self._hot(calls.sizes)
        if (hot and _steady(seconds)) or (done >= asked + MOST_WARMUP and sum(seconds) >= MOST_WARMUP_S):
            return 0
        lately = statistics.median(seconds[-STEADY_CALLS:])
        return STEADY_CALLS if hot else min(max(STEADY_CALLS, int(LEARNING_S / lately)), LEARNING_CALLS)

    def _hot(self, step: Sequence[int]) -> bool:
        work = self._work
        return all(
            self._endpoint.hot(size, work.collective, work.dtype, work.op) for size in dict.fromkeys(step)
        )

    def _next_batch(self, sample: Sample, deadline: float) -> int:
        """Return how many calls to make until ranks agree again whether to go on; 0: none.

        The first and the last of a batch are slower: ranks come to them, and leave, one by one.
        """
        done, work = len(sample.times_us), self._work
        if done >= LEAST_CALLS and time.monotonic() >= deadline:
            return 0
        several = BATCH_CALLS
        if done and work.seconds:
            several = max(several, int(BATCH_S * 1e6 / statistics.median(sample.times_us)))
        return min(several if work.seconds else work.iterations, work.iterations - done)

    def _sum(self, value: int) -> int:
        """Return the sum of the ranks' values."""
        self._token[0] = value
        self._endpoint.all_reduce(self._token.copy(), self._token, "sum")
        return int(self._token[0])

    def _take_slices(self, carried: Counter[str], sample: Sample) -> None:
        by_call = self._by_call.setdefault(str(sample.size_bytes), []) if self._job.series else []
        by_call += [Counter() for _ in sample.starts_s[len(by_call) :]]
        for piece in self._endpoint.slices():
            carried[piece.rail] += piece.bytes
            if self._job.series:
                self._series[piece.rail][int((piece.end_s - self._start_s) / BIN_S)] += piece.bytes
                call = bisect_right(sample.starts_s, piece.start_s) - 1
                by_call[max(call, 0)][piece.rail] += piece.bytes

    def _binned(self) -> dict[str, list[int]]:
        last = max((max(bins) for bins in self._series.values()), default=-1)
        return {rail: [bins[place] for place in range(last + 1)] for rail, bins in self._series.items()}

    def _tell(self, **values: object) -> None:
        """Give a sign of life now and then."""
        if self._rank == 0 and time.monotonic() - self._news_s > NEWS_S:
            self._news_s = time.monotonic()
            emit("progress", rank=self._rank, **values)


class _Step:
    """What is timed as one: a call, or the calls of one step of training; with room for their results."""

    def __init__(self, job: Job, work: Workload, rank: int, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self._work = work
        self._tasks: dict[tuple[int, str], Problem] = {}
        self._collectives = work.collective.split("+")
        self.parts = [(size, collective) for size in sizes for collective in self._collectives]
        self.size_bytes = 0
        for size in sizes:
            count = shard_elements(work.collective, size, job.size)
            self.size_bytes += ITEM * count * (job.size if work.collective in SHARDED else 1)
            for collective in self._collectives:
                if (size, collective) not in self._tasks:
                    self._tasks[size, collective] = problem(
                        count, work.dtype, work.op, rank, job.size, job.seed, collective, work.root, job.lanes
                    )
        self._error_bound = job.contender.implementation().error_bound(job.size)
        self._inputs = {part: task.inputs() for part, task in self._tasks.items()}
        self._results: list[list[Array]] = []  # by place and part
        self._copied = work.collective == "all_reduce" or (
            work.collective == "broadcast" and rank == work.root
        )
        elements = sum(self._tasks[part].total.size for part in self.parts)
        self.batch = max(1, BATCH_BYTES // (ITEM * elements))

    def prepare(self, numbers: Sequence[int]) -> None:
        """Fill the results of these calls with what is wrong, or with the input where that is expected."""
        while len(self._results) < len(numbers):
            self._results.append([self._new(part) for part in self.parts])
        for number, results in zip(numbers, self._results, strict=False):
            for part, result in zip(self.parts, results, strict=True):
                if self._copied:
                    np.copyto(result, self._inputs[part][number % SCALES])
                else:
                    result.fill(-1)

    def made(self, endpoint: Endpoint, number: int, place: int) -> list[Callable[[], None]]:
        """Return the calls of one step, ready to be made."""
        work = self._work
        method = getattr(endpoint, work.collective.replace("+", "_and_"))
        last = {"all_gather": (), "broadcast": (work.root,)}.get(work.collective, (work.op,))
        arrays: list[Array] = []
        for part, out in zip(self.parts, self._results[place], strict=True):
            given = () if work.collective == "broadcast" else (self._inputs[part][number % SCALES],)
            arrays += (*given, out)
        each = len(arrays) // len(self.sizes)
        calls = (arrays[begin : begin + each] for begin in range(0, len(arrays), each))
        return [partial(method, *call, *last) for call in calls]

    def wrong(self, numbers: Sequence[int]) -> int:
        """Return how many elements of these calls' results are wrong."""
        return sum(
            self._tasks[part].wrong(number, result, self._error_bound)
            for number, results in zip(numbers, self._results, strict=False)
            for part, result in zip(self.parts, results, strict=True)
        )

    def _new(self, part: tuple[int, str]) -> Any:
        task = self._tasks[part]
        return np.full(task.total.size, -1, task.base.dtype)  # touched: no page fault is timed


def _steady(seconds: Sequence[float]) -> bool:
    if len(seconds) < 2 * STEADY_CALLS:
        return False
    before = statistics.median(seconds[-2 * STEADY_CALLS : -STEADY_CALLS])
    return abs(statistics.median(seconds[-STEADY_CALLS:]) - before) < STEADY * before


def work() -> None:
    """Read the job, join, measure, write."""
    path, rank = Path(sys.argv[1]), int(sys.argv[2])
    job = build(Job, json.loads(path.read_text()), "job")
    endpoint = job.contender.implementation().connect(job, rank)
    try:
        result = Worker(job, rank, endpoint).run()
        endpoint.barrier()
    finally:
        endpoint.close()
    result.write(job.result_of(rank))


if __name__ == "__main__":
    sys.exit(run_worker(work))
