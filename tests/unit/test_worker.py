# SPDX-License-Identifier: Apache-2.0
"""The worker with the ring as contender over loopback: its timing, its comparisons and its counts."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

import pytest
from free_ports import free_port

from railweave.experiments import worker
from railweave.experiments.contenders import Array, Contender, Job
from railweave.experiments.contenders.ring import Ring
from railweave.experiments.problem import BOTH, SCALES
from railweave.experiments.records import RankResult
from railweave.experiments.scenario import EACH, LAST, Workload
from railweave.experiments.worker import Worker
from railweave.topologies.values import plain

RING = Contender("ring", "ring")


def job_of(ranks: int, out: Path, workload: Workload) -> Job:
    """Return a job with all ranks on loopback."""
    addresses = {"tcp": ("127.0.0.1",) * ranks}
    return Job(RING, ranks, ("tcp",), addresses, str(out), 60.0, plain(workload), series=True)


def run(job: Job, kind: type[Ring] = Ring) -> list[RankResult]:
    """Run all ranks of a job, a thread each."""
    with free_port() as port, ThreadPoolExecutor(job.size) as pool:
        return list(pool.map(partial(one, job, kind, port), range(job.size)))


def one(job: Job, kind: type[Ring], port: int, rank: int) -> RankResult:
    ring = kind(rank, job, port=port)
    try:
        result = Worker(job, rank, ring).run()
        ring.barrier()
        return result
    finally:
        ring.close()


@pytest.mark.parametrize("verify", [LAST, EACH])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("collective", "op"),
    [
        ("all_reduce", "sum"),
        ("all_reduce", "avg"),
        ("reduce_scatter", "max"),
        ("all_gather", "sum"),
        ("broadcast", "sum"),
        (BOTH, "sum"),
    ],
)
def test_every_size_is_timed_and_compared(
    collective: str, op: str, in_place: bool, verify: str, tmp_path: Path
) -> None:
    sizes = (12, 4104, 300_000)
    workload = Workload(
        sizes, collective, "int32", op, warmup=1, iterations=4, in_place=in_place, verify=verify
    )
    verified = (4 if verify == EACH else SCALES) * (2 if collective == BOTH else 1)
    results = run(job_of(3, tmp_path, workload))
    for result in results:
        assert [sample.size_bytes for sample in result.samples] == list(sizes)
        for sample in result.samples:
            assert (len(sample.times_us), sample.verified, sample.wrong) == (4, verified, 0)
            ends = [begin + us / 1e6 for begin, us in zip(sample.starts_s, sample.times_us, strict=True)]
            moments = [result.began_s, *chain(*zip(sample.starts_s, ends, strict=True)), time.monotonic()]
            assert all(one <= other + 1e-6 for one, other in pairwise(moments))
    assert results[0].cpu.total_s >= 0


def test_a_step_of_training_is_timed_as_one(tmp_path: Path) -> None:
    workload = Workload(messages=(4096, 400, 4096), warmup=2, iterations=3, compute_s=0.01)
    (sample,) = run(job_of(2, tmp_path, workload))[1].samples
    assert (sample.size_bytes, sample.verified, sample.wrong) == (8592, 9, 0)
    assert min(sample.times_us) > 10_000


def test_time_bounds_the_calls_alike_on_all_ranks(tmp_path: Path) -> None:
    results = run(job_of(2, tmp_path, Workload((4096,), warmup=1, iterations=10**9, seconds=0.05)))
    counts = {len(result.samples[0].times_us) for result in results}
    assert len(counts) == 1
    assert counts.pop() >= 3


@pytest.mark.parametrize("verify", [LAST, EACH])
def test_missing_results_are_counted(verify: str, tmp_path: Path) -> None:
    class Lazy(Ring):
        def all_reduce(self, given: Array, out: Array, op: str) -> None:
            if out.size == 1:  # a call of the worker itself
                super().all_reduce(given, out, op)

    work = Workload((4096,), warmup=1, iterations=3, verify=verify)
    for result in run(job_of(2, tmp_path, work), Lazy):
        assert result.samples[0].wrong > 1000


def test_results_of_earlier_calls_are_counted(tmp_path: Path) -> None:
    class Stale(Ring):
        calls = 0

        def all_reduce(self, given: Array, out: Array, op: str) -> None:
            self.calls += out.size > 1
            if self.calls == 1:
                super().all_reduce(given, out, op)
                self.first = out.copy()
            elif out.size > 1:
                out[:] = self.first
            else:
                super().all_reduce(given, out, op)

    work = Workload((4096,), warmup=1, iterations=3, verify=LAST)
    for result in run(job_of(2, tmp_path, work), Stale):
        assert result.samples[0].wrong > 0.9 * (SCALES - 1) * 1024


@pytest.mark.parametrize(("verify", "wrong"), [(LAST, 0), (EACH, 1)])
def test_only_each_finds_one_wrong_call(verify: str, wrong: int, tmp_path: Path) -> None:
    class Once(Ring):
        calls = 0

        def all_reduce(self, given: Array, out: Array, op: str) -> None:
            super().all_reduce(given, out, op)
            self.calls += out.size > 1
            if self.calls == 3 and out.size > 1:
                out[7] += 1

    work = Workload((4096,), warmup=0, iterations=5, verify=verify)
    for result in run(job_of(2, tmp_path, work), Once):
        assert result.samples[0].wrong == wrong


@pytest.mark.parametrize("in_place", [False, True])
def test_all_calls_use_the_same_memory(in_place: bool, tmp_path: Path) -> None:
    class Noting(Ring):
        def all_reduce(self, given: Array, out: Array, op: str) -> None:
            if out.size > 1:
                seen.add(tuple(array.__array_interface__["data"][0] for array in (given, out)))
            super().all_reduce(given, out, op)

    seen: set[tuple[int, ...]] = set()
    work = Workload((4096,), warmup=3, iterations=5, in_place=in_place, verify=EACH)
    run(job_of(2, tmp_path, work), Noting)
    assert len(seen) == 2  # one pair per rank
    assert all((given == out) == in_place for given, out in seen)


@pytest.mark.parametrize("factor", [0, 2])
def test_a_contender_whose_sums_are_wrong_says_so(factor: int, tmp_path: Path) -> None:
    class Wrong(Ring):
        def all_reduce(self, given: Array, out: Array, op: str) -> None:
            super().all_reduce(given, out, op)
            out *= factor

    with pytest.raises(ValueError, match=r"a sum of \d+ and zeros is \d+: expected"):
        run(job_of(2, tmp_path, Workload((4096,), warmup=1, iterations=3)), Wrong)


def test_of_two_calls_at_once_both_are_compared(tmp_path: Path) -> None:
    class Lazy(Ring):
        def all_gather_and_reduce_scatter(
            self, shard: Array, gathered: Array, tensor: Array, own: Array, op: str
        ) -> None:
            self.all_gather(shard, gathered)

    work = Workload((4096,), BOTH, warmup=1, iterations=3, verify=EACH)
    for result in run(job_of(2, tmp_path, work), Lazy):
        assert result.samples[0].wrong == 3 * 512


@pytest.mark.parametrize("hot_after", [1000, 10**9])
def test_warm_up_leaves_calls_alone_while_something_is_to_be_learnt(
    hot_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MOST_WARMUP_S", 60.0 if hot_after == 1000 else 0.05)
    runs: list[list[int]] = []  # by rank: calls between two calls of the worker itself

    class Learning(Ring):
        def all_reduce(self, given: Array, out: Array, op: str) -> None:
            super().all_reduce(given, out, op)
            if out.size == 1:
                self.runs.append(0)
            else:
                self.runs[-1] += 1

        def hot(self, size_bytes: int, collective: str, dtype: str, op: str) -> bool:
            return sum(self.runs) >= hot_after

        def close(self) -> None:
            runs.append(self.runs)
            super().close()

        def __init__(self, rank: int, job: Job, *, port: int) -> None:
            super().__init__(rank, job, port=port)
            self.runs = [0]

    results = run(job_of(2, tmp_path, Workload((4096,), warmup=2, iterations=3)), Learning)
    assert runs[0] == runs[1]
    assert max(runs[0]) == worker.LEARNING_CALLS
    assert [result.samples[0].hot for result in results] == [hot_after == 1000] * 2
