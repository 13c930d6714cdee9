# SPDX-License-Identifier: Apache-2.0
"""One rank of one run of any contender: `python -m railweave.experiments.worker JOB.json RANK`.

For each size, the rank makes warm-up calls until times are steady and nothing is left to learn. Then it makes
timed calls. All calls of a size use the same memory, as training reuses its buckets. The rank checks results
outside the timed part. It checks the results of all calls, or, as in nccl-tests, those of further calls with
other inputs. It writes a `RankResult`.
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

import numpy as np

from railweave.experiments import statistics
from railweave.experiments.contenders import Array, Endpoint, Job
from railweave.experiments.cpu import CpuTimes, cpu_times, resident_bytes
from railweave.experiments.messages import emit, run_worker
from railweave.experiments.problem import ITEM, SCALES, SHARDED, Problem, problem, shard_elements
from railweave.experiments.records import RankResult, Sample
from railweave.experiments.scenario import EACH, Workload
from railweave.topologies.values import build

BATCH_CALLS, BATCH_S = 10, 0.05  # least calls, and about the time, between checks of the limit `seconds`
LEAST_CALLS = 3
STEADY_CALLS = 5  # times are steady if the medians of two successive groups of this size
STEADY = 0.25  # differ by less than this share
MOST_WARMUP, MOST_WARMUP_S = 40, 2.0  # extra calls, and seconds: after both, the warm-up ends in any case
LEARNING_CALLS, LEARNING_S = 640, 0.5  # most calls, and about the time, between checks whether all is learnt
BIN_S = 0.01  # width of a bin of a series
NEWS_S = 5.0  # time between messages that show progress


class Worker:
    """One rank's run."""

    def __init__(self, job: Job, rank: int, endpoint: Endpoint) -> None:
        """Take the job and the rank's endpoint. No call is made yet."""
        self._job = job
        self._rank = rank
        self._endpoint = endpoint
        self._work = build(Workload, job.workload, "workload")
        self._each = self._work.verify == EACH
        self._token = np.zeros(1, np.int32)
        self._carried: dict[str, Counter[str]] = {}
        self._series: dict[str, Counter[int]] = defaultdict(Counter)  # bytes by rail and bin
        self._cpu = CpuTimes()
        self._start_s = 0.0  # start of the first timed call, CLOCK_MONOTONIC
        self._news_s = time.monotonic()

    def run(self) -> RankResult:
        """Measure all sizes, or the steps of training."""
        work = self._work
        steps = [work.messages] if work.messages else [(size,) for size in work.sizes]
        samples = tuple(self._measure(step) for step in steps)
        extra = {"bin_s": BIN_S, "series": self._binned()} if self._job.series else {}
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
        """Measure calls of these sizes, one after the other, as one call."""
        calls = _Step(self._job, self._work, self._rank, self._endpoint, step)
        warm = self._warm_up(calls)
        self._endpoint.slices()
        self._start_s = self._start_s or time.monotonic()
        emit("begin", rank=self._rank, size_bytes=calls.size_bytes, at=self._start_s)
        sample = Sample(calls.size_bytes, hot=self._hot(step))
        deadline = time.monotonic() + (self._work.seconds or float("inf"))
        carried: Counter[str] = Counter()
        by_call: list[Counter[str]] = []
        while batch := self._sum(self._next_batch(sample, deadline) if self._rank == 0 else 0):
            begin = warm + len(sample.times_us)
            sample = self._batch(calls, sample, range(begin, begin + batch))
            self._take_slices(carried, by_call, sample.starts_s)
        if carried:
            self._carried[str(calls.size_bytes)] = carried
        sample = replace(sample, carried=tuple(by_call) if self._job.series else ())
        return sample if self._each else self._verified(calls, sample)

    def _warm_up(self, calls: _Step) -> int:
        """Make the warm-up calls, and return their number. It is 0 if the workload has no warm-up."""
        seconds: list[float] = []
        while several := self._sum(self._next_warm_up(calls, seconds) if self._rank == 0 else 0):
            for number in range(len(seconds), len(seconds) + several):
                calls.prepare(number, fresh=self._each)
                begin = time.monotonic()
                calls.make()
                seconds.append(time.monotonic() - begin)
                self._tell(size_bytes=calls.size_bytes, calls=len(seconds), warm_up=True)
        return len(seconds)

    def _batch(self, calls: _Step, sample: Sample, numbers: Sequence[int]) -> Sample:
        """Time calls. Inputs are written and results are checked between the timed parts."""
        begins: list[float] = []
        ends: list[float] = []
        wrong, aside_s = 0, 0.0
        together = self._work.collective == "broadcast"
        self._endpoint.barrier()
        before, processor = cpu_times(self._job.services), time.process_time()
        for number in numbers:
            aside = time.thread_time()
            calls.prepare(number, fresh=self._each)
            aside_s += time.thread_time() - aside
            if together:  # the root's calls would overlap, because a root does not wait for other ranks
                self._endpoint.barrier()
            begins.append(time.monotonic())
            calls.make()
            ends.append(time.monotonic())
            if self._each:
                aside = time.thread_time()
                wrong += calls.wrong(number)
                aside_s += time.thread_time() - aside
            self._tell(size_bytes=calls.size_bytes, calls=len(sample.times_us) + len(ends), warm_up=False)
        processor = time.process_time() - processor - aside_s
        self._cpu += cpu_times(self._job.services) - before
        times = [round((end - begin) * 1e6, 1) for begin, end in zip(begins, ends, strict=True)]
        return replace(
            sample,
            times_us=(*sample.times_us, *times),
            starts_s=(*sample.starts_s, *begins),
            verified=sample.verified + (len(numbers) * calls.parts if self._each else 0),
            wrong=sample.wrong + wrong,
            cpu_s=sample.cpu_s + processor,
            memory_bytes=resident_bytes(os.getpid()),
        )

    def _verified(self, calls: _Step, sample: Sample) -> Sample:
        """Check the results of the last timed call, and of further calls with other inputs."""
        wrong = calls.wrong(0)
        for number in range(1, SCALES):
            calls.prepare(number, fresh=True)
            calls.make()
            wrong += calls.wrong(number)
        return replace(sample, verified=SCALES * calls.parts, wrong=wrong)

    def _next_warm_up(self, calls: _Step, seconds: Sequence[float]) -> int:
        """Return the number of calls until the next check whether the warm-up is complete; 0: it is complete.

        The number is large while something is left to learn. The ranks agree on this number by a call. Such
        calls disturb the others, and hide the fastest choice for short calls.
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
        """Return the number of calls until the ranks agree again whether to continue; 0: they stop.

        The first and the last call of a batch are slower, because ranks begin and end a batch one by one.
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
        total = int(self._token[0])
        if self._rank == 0 and total != value:
            raise ValueError(
                f"a sum of {value} and zeros is {total}: expected {value}; correct the contender"
            )
        return total

    def _take_slices(
        self, carried: Counter[str], by_call: list[Counter[str]], starts_s: Sequence[float]
    ) -> None:
        """Count the bytes of new slices by rail, and by call and rail if the run has a series."""
        by_call += [Counter() for _ in starts_s[len(by_call) :]]
        for piece in self._endpoint.slices():
            carried[piece.rail] += piece.bytes
            if self._job.series:
                self._series[piece.rail][int((piece.end_s - self._start_s) / BIN_S)] += piece.bytes
                call = bisect_right(starts_s, piece.start_s) - 1
                by_call[max(call, 0)][piece.rail] += piece.bytes

    def _binned(self) -> dict[str, list[int]]:
        last = max((max(bins) for bins in self._series.values()), default=-1)
        return {rail: [bins[place] for place in range(last + 1)] for rail, bins in self._series.items()}

    def _tell(self, **values: object) -> None:
        """Send a message that shows progress, at most every NEWS_S seconds."""
        if self._rank == 0 and time.monotonic() - self._news_s > NEWS_S:
            self._news_s = time.monotonic()
            emit("progress", rank=self._rank, **values)


class _Step:
    """Calls that are timed as one: a single call, or those of a training step. They reuse their memory."""

    def __init__(self, job: Job, work: Workload, rank: int, endpoint: Endpoint, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.size_bytes = 0
        self._compute_s = work.compute_s
        self._error_bound = job.contender.implementation().error_bound(job.size)
        self._buffers: list[_Buffers] = []
        self._calls: list[Callable[[], None]] = []
        method = getattr(endpoint, work.collective.replace("+", "_and_"))
        last = {"all_gather": (), "broadcast": (work.root,)}.get(work.collective, (work.op,))
        tasks: dict[tuple[int, str], Problem] = {}
        for size in sizes:
            count = shard_elements(work.collective, size, job.size)
            self.size_bytes += ITEM * count * (job.size if work.collective in SHARDED else 1)
            arrays: list[Array] = []
            for collective in work.collective.split("+"):
                if (count, collective) not in tasks:
                    about = count, work.dtype, work.op, rank, job.size, job.seed, collective, work.root
                    tasks[count, collective] = problem(*about, density=work.density)
                buffers = _Buffers(tasks[count, collective], collective, rank, work)
                self._buffers.append(buffers)
                arrays += [buffers.out] if collective == "broadcast" else [buffers.given, buffers.out]
            self._calls.append(partial(method, *arrays, *last))
        self.parts = len(self._buffers)
        self.prepare(0, fresh=True)

    def prepare(self, number: int, *, fresh: bool) -> None:
        """Write the inputs of call `number` if `fresh`, else those of call 0 again."""
        for buffers in self._buffers:
            buffers.prepare(number if fresh else 0, fresh=fresh)

    def make(self) -> None:
        """Wait for the computation time of a step, then make the calls."""
        if self._compute_s:
            time.sleep(self._compute_s)
        for call in self._calls:
            call()

    def wrong(self, number: int) -> int:
        """Return the number of wrong elements in the results of call `number`."""
        return sum(each.task.wrong(number, each.out, self._error_bound) for each in self._buffers)


class _Buffers:
    """The input and the output of one collective, allocated once."""

    def __init__(self, task: Problem, collective: str, rank: int, work: Workload) -> None:
        self.task = task
        self._never = np.nan if work.dtype == "float32" else np.iinfo(np.int32).min  # never a correct result
        self.out = np.full_like(task.result, self._never)  # written now, so that no call causes a page fault
        self.given = np.full_like(task.base, self._never)
        self._in_place = work.in_place or collective == "broadcast"
        # Some contenders reduce in place. Therefore `out` holds the input of an all_reduce before each call.
        self._copied = collective == "all_reduce"
        if self._in_place and collective == "reduce_scatter":
            self.out = self.given[rank * self.out.size :][: self.out.size]
        elif self._in_place and collective == "all_gather":
            self.given = self.out[rank * self.given.size :][: self.given.size]
        elif self._in_place:
            self.given = self.out
        self._receives = collective == "broadcast" and rank != work.root

    def prepare(self, number: int, *, fresh: bool) -> None:
        """Write the input if the last call has overwritten it. If `fresh`, also erase the last result."""
        if fresh:
            self.out.fill(self._never)
        if self._receives:
            return
        if fresh or self._in_place:
            self.task.fill(number, self.given)
        if self._copied and not self._in_place:
            np.copyto(self.out, self.given)


def _steady(seconds: Sequence[float]) -> bool:
    if len(seconds) < 2 * STEADY_CALLS:
        return False
    before = statistics.median(seconds[-2 * STEADY_CALLS : -STEADY_CALLS])
    return abs(statistics.median(seconds[-STEADY_CALLS:]) - before) < STEADY * before


def work() -> None:
    """Read the job, join it, measure, and write the result."""
    path, rank = Path(sys.argv[1]), int(sys.argv[2])
    job = build(Job, json.loads(path.read_text()), "job")
    endpoint = job.contender.implementation().connect(job, rank)
    try:
        result = Worker(job, rank, endpoint).run()
        endpoint.barrier()
    except Exception:
        endpoint.failed = True
        raise
    finally:
        endpoint.close()
    result.write(job.result_of(rank))


if __name__ == "__main__":
    sys.exit(run_worker(work))
