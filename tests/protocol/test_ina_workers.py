# SPDX-License-Identifier: Apache-2.0
"""Several trees of an in-network rail. A separate thread on a separate CPU serves each tree."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from protocol.jobs import DEADLINE_S, StaticJob
from protocol.loopback_switch import ADDRESS, GROUP, LANES, PLACE, SLOTS, LoopbackSwitch
from protocol.test_progress_cpus import allowed
from protocol.test_rail_restarts import CPUS, needs_cpus, worker_world

from railweave._native.agent import Call, Failure, FailureKind
from railweave._native.collectives import DType, ReduceOp
from railweave._native.ina import SEAL_LANES
from railweave._rigs.rails import Rails
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import RailweaveError
from railweave.hosts.events import InaGroup

RANKS, TREES = 3, 2
GROUPS = [GROUP + tree for tree in range(TREES)]
MOVES = 4
SMALL = LANES - SEAL_LANES  # elements; one chunk, which the first tree carries
LARGE = 40_000  # bytes of a shard; enough chunks in each tree for multicast

pytestmark = needs_cpus


def places(groups: list[int]) -> list[InaGroup]:
    return [replace(PLACE, group=group, tree=tree) for tree, group in enumerate(groups)]


@contextlib.contextmanager
def serving(refuse_every: int = 0) -> Iterator[LoopbackSwitch]:
    """Run a switch that knows the groups, also the groups after moves."""
    switch = LoopbackSwitch(ADDRESS, RANKS, refuse_every)
    switch.restart(*(GROUP + number for number in range(TREES * (MOVES + 1))))
    try:
        yield switch
    finally:
        switch.close()


@pytest.fixture
def switch() -> Iterator[LoopbackSwitch]:
    with serving() as served:
        yield served


@pytest.fixture
def job(switch: LoopbackSwitch) -> StaticJob:
    del switch
    return StaticJob(RANKS, ina=places(GROUPS))


def workers() -> list[Path]:
    """Return the folders in /proc of the threads that serve trees."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread may have just ended
            if (task / "comm").read_text() == "railweave-tree\n":
                found.append(task)
    return found


def sleeps(tasks: list[Path]) -> dict[str, int]:
    """Return how often workers have gone to sleep, by the CPUs on which they may run."""
    slept = dict.fromkeys(map(str, CPUS), 0)
    for task in tasks:
        slept[allowed(task)] += int(
            (task / "status").read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0]
        )
    return slept


# ---------------------------------------------------------------- threads


def test_each_tree_has_a_thread_on_its_cpu(job: StaticJob) -> None:
    """A thread that serves calls sleeps once per call. A thread without calls only wakes for timers."""
    calls = 20

    def work(comm: Communicator) -> list[dict[str, int]]:
        comm.all_reduce(np.ones(3 * SMALL, np.int32))
        job.meet()
        assert sorted(map(allowed, workers())) == sorted(RANKS * list(map(str, CPUS)))
        slept = [sleeps(workers())]
        for count in (SMALL, 30_000):
            job.meet()
            for _ in range(calls):
                np.testing.assert_array_equal(comm.all_reduce(np.ones(count, np.int32)), RANKS)
            job.meet()
            slept.append(sleeps(workers()))
        job.meet()
        return slept

    first, second = map(str, CPUS)
    for before, small, large in job.run(work, "ina=ina@lo", progress_cpus=CPUS):
        assert [cpu for cpu in before if small[cpu] - before[cpu] > calls] == [first]
        assert [cpu for cpu in before if large[cpu] - small[cpu] > calls] == [first, second]


@pytest.mark.parametrize(
    ("trees", "cpus", "expected"), [(2, CPUS[:1], 0), (1, CPUS, 0), (3, CPUS, 2), (2, (), 0)]
)
def test_there_are_as_many_threads_as_cpus_and_trees(
    switch: LoopbackSwitch, trees: int, cpus: tuple[int, ...], expected: int
) -> None:
    switch.restart(*range(GROUP, GROUP + trees))
    job = StaticJob(RANKS, ina=places([GROUP + tree for tree in range(trees)]))

    def work(comm: Communicator) -> int:
        values = np.arange(10_000, dtype=np.int32)
        np.testing.assert_array_equal(comm.all_reduce(values), RANKS * values)
        assert all(tree.results for tree in comm.stats().rails[0].groups)
        job.meet()
        threads = len(workers())
        job.meet()
        return threads

    assert job.run(work, "ina=ina@lo", progress_cpus=cpus) == [RANKS * expected] * RANKS


def resources() -> tuple[int, int]:
    """Return the numbers of threads and descriptors of this process."""
    return len([*Path("/proc/self/task").iterdir()]), len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.parametrize("fails", [False, True])
def test_a_communicator_that_has_ended_leaves_nothing(switch: LoopbackSwitch, fails: bool) -> None:
    """Its threads end while references to it remain, also with calls in flight."""
    job = StaticJob(RANKS, ina=places(GROUPS))
    kept: list[Communicator] = []

    def work(comm: Communicator) -> None:
        kept.append(comm)
        comm.all_reduce(np.ones(100, np.float32))
        job.meet()
        with contextlib.suppress(*[RailweaveError] * fails):
            pending = [comm.all_reduce(np.ones(3000, np.float32), async_op=True) for _ in range(3)]
            if fails and comm.rank == 0:
                comm._agent.fail(Failure(FailureKind.INTERNAL, -1, "it was killed"))
            pending[-1].wait()
        job.meet()

    before = None
    for _ in range(3):
        switch.restart(*GROUPS)
        job.run(work, "ina=ina@lo", progress_cpus=CPUS)
        assert workers() == []
        kept.clear()
        gc.collect()
        before = before or resources()
    assert resources() == before


# ---------------------------------------------------------------- results


@pytest.mark.parametrize(("refuse_every", "spin_us"), [(0, 100), (20, 0)])
def test_calls_of_every_kind_are_exact(refuse_every: int, spin_us: float) -> None:
    """All calls are in flight at once, also while packets are lost."""
    with serving(refuse_every) as switch:
        del switch
        job = StaticJob(RANKS, ina=places(GROUPS))

        def work(comm: Communicator) -> None:
            pending = []
            for call in range(6):
                whole = np.random.default_rng(call).integers(0, 256, RANKS * LARGE, np.uint8)
                mine = whole.reshape(RANKS, LARGE)[comm.rank]
                root = whole if comm.rank == 1 else np.zeros_like(whole)
                ramp = np.arange(RANKS * 900, dtype=np.int32)
                halves = ramp.astype(np.float32) / 2
                total = ramp * (RANKS * call + 3)
                pending += [
                    (comm.all_gather(mine, async_op=True), whole),
                    (comm.all_reduce(halves, async_op=True), RANKS * halves),
                    (comm.all_reduce(ramp * (comm.rank + call), "max", async_op=True), ramp * (2 + call)),
                    (
                        comm.reduce_scatter(ramp * (comm.rank + call), async_op=True),
                        total.reshape(RANKS, 900)[comm.rank],
                    ),
                    (comm.broadcast(root, 1, async_op=True), whole),
                ]
            for handle, expected in pending:
                np.testing.assert_array_equal(handle.wait(), expected)
            comm.barrier()
            job.meet()
            rail = comm.stats().rails[0]
            assert all(tree.multicasts for tree in rail.groups)
            assert (rail.sent.resends > 0) or not refuse_every
            assert (rail.fetched_bytes > 0) or not refuse_every
            assert rail.malformed == 0

        job.run(work, "ina=ina@lo", progress_cpus=CPUS, spin_us=spin_us)


class MergingSwitch(LoopbackSwitch):
    """A switch that merges results of different trees into one super-packet, as kernels do."""

    held: dict[int, bytes]

    def _process(self, data: bytes, sender: tuple[str, int]) -> None:
        self.children[data[4]] = sender
        for child, packet in self.model.process(data[4], data):
            before = self.held.pop(int(child), b"")
            if before and before[2:4] != packet[2:4] and len(before) == len(packet):
                segments = struct.pack("@H", len(packet))
                self.socket.sendmsg(
                    [before + packet],
                    [(socket.SOL_UDP, 103, segments)],  # UDP_SEGMENT
                    0,
                    self.children[int(child)],
                )
                continue
            if before:
                self.socket.sendto(before, self.children[int(child)])
            self.held[int(child)] = packet
        if not self._waits():
            for child, packet in self.held.items():
                self.socket.sendto(packet, self.children[child])
            self.held.clear()

    def _waits(self) -> bool:
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False


# ---------------------------------------------------------------- rails alone


def test_a_datagram_that_comes_to_the_wrong_thread_is_passed_on() -> None:
    switch = MergingSwitch(ADDRESS, RANKS)
    switch.held = {}
    switch.restart(*GROUPS)
    try:
        world = worker_world()
        for _ in range(5):
            slices = world.new_slices()
            world.start_all(slices)
            world.finish(slices)
        assert [world.rails.stats(rank).malformed for rank in range(RANKS)] == [0] * RANKS
    finally:
        switch.close()


def test_what_was_done_before_a_halt_is_not_reported_after_it(switch: LoopbackSwitch) -> None:
    """A rail reports no result from before a halt, although each trial has the same number."""
    rails = worker_world().rails
    count = 4 * LANES
    out = [np.zeros(count, np.int32) for _ in range(RANKS)]
    for rank in range(RANKS):
        rails.start(rank, 1, 0, np.ones(count, np.int32), out[rank])
    latest = time.monotonic() + DEADLINE_S
    while not all((each == RANKS).all() for each in out):  # afterwards workers are done, but the loop is not
        assert time.monotonic() < latest
        os.sched_yield()
    for rank in range(RANKS):
        rails.stats(rank)  # between two of their turns
        rails.halt(rank)
    bases = [max(each) for each in zip(*map(rails.next_chunks, range(RANKS)), strict=True)]
    for rank in range(RANKS):
        rails.restart(rank, 1, bases)
    rails.start(0, 1, 1, np.ones(count, np.int32), out[0])
    for _ in range(100):
        rails.turn(0.0)
    assert rails.done(0) == []
    for rank in range(1, RANKS):
        rails.start(rank, 1, 1, np.ones(count, np.int32), out[rank])
    while not all(rails.done(rank) for rank in range(RANKS)):
        assert time.monotonic() < latest
        rails.turn(1.0)


def test_a_cpu_that_cannot_be_had_leaves_the_rail_as_it_was(switch: LoopbackSwitch) -> None:
    rails = Rails(RANKS)
    rails.open_ina(0, "127.0.0.1")
    trees = [(group, ADDRESS) for group in GROUPS]
    before = resources()
    for cpus, slots, reason in (((CPUS[0], 1023), SLOTS, "CPU 1023"), (CPUS, 100, "power of two")):
        with pytest.raises(ValueError, match=reason):
            rails.attach(0, trees, slots=slots, lanes=LANES, cpus=list(cpus))
        assert resources() == before
    rails.attach(0, trees, slots=SLOTS, lanes=LANES, cpus=list(CPUS))
    assert len(workers()) == 2
    del rails
    gc.collect()
    assert workers() == []


# ---------------------------------------------------------------- failures


def test_a_rail_is_excluded_under_calls_and_used_again(job: StaticJob) -> None:
    """Exclude and use a rail again during calls on both rails. Every result is exact."""

    def work(comm: Communicator) -> None:
        for phase in range(6):
            if comm.rank == 1:
                comm._agent.set_obstacle(0, "" if phase % 2 else "it is tested")
            for call in range(8):
                ramp = np.arange(6000, dtype=np.int32)
                got = comm.all_reduce(ramp * (comm.rank + call))
                np.testing.assert_array_equal(got, ramp * (RANKS * call + 3))
                whole = np.random.default_rng(call).integers(0, 256, RANKS * LARGE, np.uint8)
                got = comm.all_gather(whole.reshape(RANKS, LARGE)[comm.rank])
                np.testing.assert_array_equal(got, whole)
            job.meet()
            wanted = "up" if phase % 2 else "down"
            latest = time.monotonic() + DEADLINE_S
            while comm._agent.rail_states()[0].state != wanted and time.monotonic() < latest:
                comm._agent.wait_change(comm._agent.plan_point(DEADLINE_S)[1], 0.1)
            job.meet()
        assert comm._agent.rail_states()[0].incarnation >= 3

    job.run(work, "ina=ina@lo,tcp=tcp@lo", shares={"ina": 1, "tcp": 1}, progress_cpus=CPUS)


@pytest.mark.parametrize("looks", [False, True])
def test_what_goes_wrong_on_a_worker_ends_the_communicator(job: StaticJob, looks: bool) -> None:
    """The worker's thread finds the error, or with `looks` another thread between two turns."""

    def work(comm: Communicator) -> str:
        job.meet()  # all ranks have joined
        values = np.ones(4 * LANES, np.int32)
        point = op, _ = comm._agent.plan_point(DEADLINE_S)
        product = Call(DType.INT32, ReduceOp.PROD, values.size)
        assert comm._agent.submit(point, product, values, np.empty_like(values), [(0, 0, values.size)])
        if looks:
            comm._agent.stats()
        assert comm._agent.wait(op, DEADLINE_S)
        failure = comm._agent.failure_of(op)
        assert failure is not None
        return failure.message

    assert any("switches reduce" in each for each in job.run(work, "ina=ina@lo", progress_cpus=CPUS))
