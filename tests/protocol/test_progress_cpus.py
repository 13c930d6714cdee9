# SPDX-License-Identifier: Apache-2.0
"""A communicator that sends and receives on separate CPUs: which thread works there, and which does not."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from protocol.jobs import DEADLINE_S, StaticJob

from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import InvalidOption

CPU = max(os.sched_getaffinity(0))
RANKS = 2
CALLS, COUNT = 20, 1 << 20


def loop_threads() -> list[Path]:
    """Return the folders in /proc of the threads that belong to loops."""
    return [
        task
        for task in Path("/proc/self/task").iterdir()
        if (task / "comm").read_text() == "railweave-loop\n"
    ]


def allowed(task: Path) -> str:
    [line] = [each for each in (task / "status").read_text().splitlines() if "Cpus_allowed_list" in each]
    return line.split()[1]


def on_cpu_s(task: Path) -> float:
    """Return the processor time of a thread, as the scheduler counts it."""
    return int((task / "schedstat").read_text().split()[0]) / 1e9


def sums(comm: Communicator, calls: int = CALLS, count: int = COUNT) -> float:
    """Make calls, and return the processor time of the calling thread."""
    used_s = 0.0
    mine, result = np.empty((2, count), np.float32)  # so that calls allocate and free no memory
    for call in range(calls):
        mine[:] = call + comm.rank
        begin_s = time.thread_time()
        comm.all_reduce(mine, out=result)
        used_s += time.thread_time() - begin_s
        np.testing.assert_array_equal(result, RANKS * call + 1)
    return used_s


EVERYWHERE = allowed(Path("/proc/self"))


@pytest.mark.parametrize("spin_us", [0, 200])
def test_the_loops_thread_works_on_its_cpus_and_the_caller_does_not(spin_us: float) -> None:
    job = StaticJob(RANKS)
    before = threading.Barrier(RANKS)

    def work(comm: Communicator) -> tuple[float, list[str], float]:
        sums(comm, 1)
        assert allowed(Path("/proc/thread-self")) == EVERYWHERE
        begin_s = sum(map(on_cpu_s, loop_threads()))
        before.wait(DEADLINE_S)
        used_s = sums(comm)
        job.meet()
        return (
            used_s,
            [allowed(task) for task in loop_threads()],
            sum(map(on_cpu_s, loop_threads())) - begin_s,
        )

    for used_s, places, loops_s in job.run(work, progress_cpus=(CPU,), spin_us=spin_us):
        assert places == [str(CPU)] * RANKS
        assert used_s < loops_s / RANKS / 4


def test_without_them_the_caller_works() -> None:
    """The caller's processor time shows which thread works, as the test above assumes."""
    used_s = StaticJob(RANKS).run(sums)
    idle_s = StaticJob(RANKS).run(sums, progress_cpus=(CPU,))
    assert max(idle_s) < min(used_s) / 2


@pytest.mark.parametrize("cpus", [(), (CPU,)], ids=["the caller's loop", "a loop's thread"])
def test_who_waits_for_a_late_rank_sleeps_and_nobody_spins_for_ever(cpus: tuple[int, ...]) -> None:
    job = StaticJob(RANKS)

    def work(comm: Communicator) -> tuple[float, float]:
        sums(comm, 200, 3)
        job.meet()
        used_s = loops_s = 0.0
        if comm.rank == 0:
            pending = comm.all_reduce(np.ones(3, np.int32), async_op=True)
            begin_s, loops_s = time.thread_time(), sum(map(on_cpu_s, loop_threads()))
            with pytest.raises(TimeoutError):
                pending.wait(1.0)
            used_s, loops_s = time.thread_time() - begin_s, sum(map(on_cpu_s, loop_threads())) - loops_s
        job.meet()
        assert (pending.wait() if comm.rank == 0 else comm.all_reduce(np.ones(3, np.int32)))[0] == RANKS
        return used_s, loops_s

    (used_s, loops_s), _ = job.run(work, progress_cpus=cpus, spin_us=1000)
    assert used_s < 0.25
    assert loops_s < 0.5


@pytest.mark.parametrize("missing", [-1, 1023, 1024])
def test_cpus_that_the_process_may_not_use_are_named(missing: int) -> None:
    with pytest.raises(
        InvalidOption, match=rf"progress_cpus: CPU {missing} is not .* may use, .*; choose .* or widen"
    ):
        StaticJob(1).communicator(0, progress_cpus=(CPU, missing))
    assert loop_threads() == []
