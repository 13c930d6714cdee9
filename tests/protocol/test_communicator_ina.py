# SPDX-License-Identifier: Apache-2.0
"""Communicators with an in-network rail, alone and beside TCP. The switch is the model, on loopback."""

from __future__ import annotations

import functools
import itertools
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from protocol.jobs import DEADLINE_S, StaticJob
from protocol.loopback_switch import ADDRESS, GROUP, LANES, PLACE, SLOTS, LoopbackSwitch
from protocol.switch_model import CONTRIBUTE, PROBE, SPREAD, Packet
from protocol.test_rail_restarts import CPUS, needs_cpus

from railweave._native.agent import Call
from railweave._native.collectives import DType, ReduceOp
from railweave._native.ina import LEAST_SPREAD_CHUNKS as LEAST_CHUNKS
from railweave._native.ina import SEAL_LANES
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import RailDown
from railweave.hosts.events import GroupPaused, PlaneDown

NETWORK_CONTROL = 0xC0  # CS6
RANKS = 3


LARGE = 40_000  # bytes; enough chunks for multicast
HUGE = 1 << 20  # bytes; enough chunks also with the largest packets of loopback
CHUNK = 4 * (LANES - SEAL_LANES)


def gathered(number: int, count: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, RANKS * count, np.uint8)


def test_each_rank_sends_its_shard_once_and_the_switch_copies_it(job: StaticJob) -> None:
    def work(comm: Communicator) -> int:
        before = comm.stats().rails[0].sent.payload
        for call in range(5):
            whole = gathered(call, LARGE)
            got = comm.all_gather(whole.reshape(RANKS, LARGE)[comm.rank])
            np.testing.assert_array_equal(got, whole)
            root = call % RANKS
            tensor = gathered(call, LARGE) if comm.rank == root else np.zeros(RANKS * LARGE, np.uint8)
            np.testing.assert_array_equal(comm.broadcast(tensor, root), whole)
        job.meet()
        rail = comm.stats().rails[0]
        (tree,) = rail.groups
        assert (tree.multicasts, tree.multicast_bytes) == (10, rail.multicast_bytes)
        assert rail.sent.payload - before == rail.multicast_bytes + 10 * 4 * LANES  # READY
        return rail.multicast_bytes

    roots = [sum(call % RANKS == rank for call in range(5)) for rank in range(RANKS)]
    sent = job.run(work, "ina=ina@lo")
    assert sent == [5 * LARGE + roots[rank] * RANKS * LARGE for rank in range(RANKS)]


def test_why_says_whether_calls_were_multicast(job: StaticJob) -> None:
    few = LEAST_CHUNKS - 1

    def work(comm: Communicator) -> int:
        comm.broadcast(np.zeros(few * CHUNK, np.uint8))
        comm.broadcast(np.zeros(few * CHUNK + 1, np.uint8))
        comm.all_gather(np.zeros(few // RANKS * CHUNK, np.uint8))
        comm.all_gather(np.zeros(few // RANKS * CHUNK + 1, np.uint8))
        comm.all_reduce(np.zeros(few * CHUNK, np.int32))
        told = [(each.collective, each.detail) for each in comm.why() if each.rail == "ina"]
        assert told == [
            ("broadcast", f"not multicast: fewer than {LEAST_CHUNKS} chunks"),
            ("broadcast", "multicast"),
            ("all_gather", f"not multicast: fewer than {LEAST_CHUNKS} chunks"),
            ("all_gather", "multicast"),
            ("all_reduce", ""),
        ]
        assert comm.plan(few * CHUNK + 1, "broadcast", "uint8").rails[0].how == "multicast"
        job.meet()
        return comm.stats().rails[0].groups[0].multicasts

    assert job.run(work, "ina=ina@lo,tcp=tcp@lo", shares={"ina": 1, "tcp": 0}) == [2] * RANKS


def test_with_one_root_ranks_multicast_one_after_the_other(switch: LoopbackSwitch, job: StaticJob) -> None:
    seen: list[tuple[int, int]] = []  # source and chunk
    process = switch._process

    def tap(data: bytes, sender: tuple[str, int]) -> None:
        packet = Packet.parse(data)
        assert packet is not None
        if packet.kind == SPREAD:
            seen.append((packet.slot, packet.round))
        process(data, sender)

    switch._process = tap  # type: ignore[method-assign]

    def work(comm: Communicator) -> None:
        whole = gathered(0, HUGE)
        np.testing.assert_array_equal(comm.all_gather(whole.reshape(RANKS, HUGE)[comm.rank]), whole)
        job.meet()

    job.run(work, "ina=ina@lo", multicast_roots=1)
    last = max(chunk for _, chunk in seen)
    assert last > 10
    for rank in range(1, RANKS):  # some earlier packets may have been lost
        begin = [source for source, _ in seen].index(rank)
        assert all(chunk > last - 4 for source, chunk in seen[begin:] if source == rank - 1)


def test_who_closes_still_answers_those_that_lack_something(switch: LoopbackSwitch, job: StaticJob) -> None:
    switch.spared |= {1, 2}  # they fetch everything, and still miss a third when the root is done
    sent = np.random.default_rng(1).integers(0, 256, 2_000_000, np.uint8)

    def work(comm: Communicator) -> None:
        got = comm.broadcast(sent.copy() if comm.rank == 0 else np.zeros_like(sent), 0)
        np.testing.assert_array_equal(got, sent)

    job.run(work, "ina=ina@lo/10M")


MOVES = 5


served = pytest.mark.parametrize(
    ("trees", "cpus"), [(1, ()), pytest.param(2, CPUS, marks=needs_cpus)], ids=["one tree", "workers"]
)


@served
def test_results_stay_exact_while_groups_move(
    switch: LoopbackSwitch, trees: int, cpus: tuple[int, ...]
) -> None:
    """Make calls without a pause, while a controller moves each tree MOVES times, one after the other.

    With one tree the switch loses its state each time. With several trees the others go on.
    """
    started, done = threading.Event(), threading.Event()
    groups = [replace(PLACE, group=GROUP + tree, tree=tree) for tree in range(trees)]
    job = StaticJob(RANKS, ina=groups)
    if trees > 1:
        switch.restart(*(GROUP + number for number in range(trees * (MOVES + 1))))

    def controller() -> None:
        assert started.wait(DEADLINE_S)
        for step in range(MOVES * trees):
            old, new = (replace(groups[step % trees], group=GROUP + step + more) for more in (0, trees))
            job.move(old, new, functools.partial(switch.restart, new.group) if trees == 1 else lambda: None)
        done.set()

    def work(comm: Communicator) -> int:
        for calls in itertools.count(1):
            count = 20_000 + calls
            mine = np.arange(count, dtype=np.int32) * (comm.rank + 1)
            mine[0] = comm.rank == 0 and done.is_set()
            got = comm.all_reduce(mine)
            np.testing.assert_array_equal(got[1:], np.arange(count, dtype=np.int32)[1:] * 6)
            whole = gathered(calls, LARGE)
            np.testing.assert_array_equal(comm.all_gather(whole.reshape(RANKS, LARGE)[comm.rank]), whole)
            started.set()
            if got[0]:
                moved = [(tree.moves, tree.group) for tree in comm.stats().rails[0].groups]
                assert moved == [(MOVES, group.group + MOVES * trees) for group in groups]
                return calls
        raise AssertionError

    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(controller)
        calls = job.run(work, "ina=ina@lo", progress_cpus=cpus)
        moving.result(DEADLINE_S)
    assert len(set(calls)) == 1


@needs_cpus
def test_ranks_whose_trees_have_workers_are_told_of_a_difference_and_a_leaver(switch: LoopbackSwitch) -> None:
    for fails in (StaticJob.differ, StaticJob.leave):
        switch.restart(GROUP, GROUP + 1)
        job = StaticJob(RANKS, ina=[replace(PLACE, group=GROUP + tree, tree=tree) for tree in range(2)])
        fails(job, 1, 3000, "ina=ina@lo", progress_cpus=CPUS)


def test_a_group_that_is_paused_and_not_moved_is_a_rail_that_is_down(job: StaticJob) -> None:
    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(3, np.int32))
        job.meet()
        job.memberships[comm.rank].on_event(GroupPaused("ina", 0, GROUP, "its switch is gone"))
        job.memberships[comm.rank].on_event(PlaneDown("ina", "its switch is gone"))
        job.meet()
        with pytest.raises(RailDown, match=r"plane 'ina' is down: its switch is gone; rank \d has waited"):
            comm.all_reduce(np.ones(3, np.int32))

    job.run(work, "ina=ina@lo", timeout_s=0.5)


@served
def test_a_silent_switch_is_reported_and_named_and_nobody_is_lost(
    switch: LoopbackSwitch, trees: int, cpus: tuple[int, ...]
) -> None:
    groups = [GROUP + tree for tree in range(trees)]
    switch.restart(*groups)
    job = StaticJob(RANKS, ina=[replace(PLACE, group=group, tree=tree) for tree, group in enumerate(groups)])

    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(3, np.int32))
        job.meet()
        switch.deaf.set()
        job.meet()
        pending = comm.all_reduce(np.ones(3000, np.int32), async_op=True)
        told = {job.memberships[comm.rank].stalls.get(timeout=DEADLINE_S) for _ in range(2 * trees)}
        assert told <= {(group, False, False) for group in groups}
        job.meet()
        if comm.rank == 0:
            switch.deaf.clear()
        np.testing.assert_array_equal(pending.wait(), RANKS)
        job.meet()

    job.run(work, "ina=ina@lo", progress_cpus=cpus)
    assert switch.services[CONTRIBUTE] == {0}
    assert switch.services[PROBE] == {NETWORK_CONTROL}, "probes do not pass queues of data"


def test_a_switch_that_stays_silent_is_a_rail_that_is_down(switch: LoopbackSwitch, job: StaticJob) -> None:
    def work(comm: Communicator) -> None:
        switch.deaf.set()
        with pytest.raises(RailDown, match="plane 'ina': its first switch does not answer"):
            comm.all_reduce(np.ones(3, np.int32))
        job.meet()

    job.run(work, "ina=ina@lo", timeout_s=1.5)


def test_a_trial_whose_packets_are_damaged_ends_nothing(switch: LoopbackSwitch, job: StaticJob) -> None:
    """A mismatch in a trial is no rank's fault, because all ranks make the same trial."""

    def until(comm: Communicator, done: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not comm.all_reduce(np.array([done()], np.int32))[0]:
            assert time.monotonic() < end

    def work(comm: Communicator) -> None:
        until(comm, lambda: True)
        job.meet()
        if comm.rank == 0:
            switch.spoils = True
            comm._agent.suspect(0, "it is tested")
        until(comm, lambda: comm.rank == 0 and comm.stats().rails[0].failures > 0)
        spoilt = switch.spoilt
        until(comm, lambda: comm.rank == 0 and switch.spoilt > spoilt + 10 and is_in(comm, "recovering"))
        job.meet()
        switch.spoils = False
        until(comm, lambda: comm.rank == 0 and is_in(comm, "up"))

    def is_in(comm: Communicator, state: str) -> bool:
        return comm.stats().rails[0].state == state

    job.run(work, "ina=ina@lo,tcp=tcp@lo")


@pytest.mark.parametrize("intact", [0, 600], ids=["first part", "second part"])
def test_marks_that_are_damaged_cost_the_rail_and_not_the_job(
    switch: LoopbackSwitch, job: StaticJob, intact: int
) -> None:
    """All ranks make the same call, which has two parts on the rail. The first `intact` chunks arrive."""
    process, seen = switch._process, set[tuple[int, int]]()

    def damage(data: bytes, sender: tuple[str, int]) -> None:
        packet = Packet.parse(data)
        assert packet is not None
        if packet.kind == CONTRIBUTE and packet.child == 1:
            seen.add((packet.round, packet.slot))
        switch.spoils = switch.spoils or len(seen) > chunks_before + intact
        process(data, sender)

    half = 400 * CHUNK // 4
    call = Call(DType.INT32, ReduceOp.SUM, 2 * half)
    chunks_before = 1 << 30

    def work(comm: Communicator) -> None:
        nonlocal chunks_before
        x = np.arange(2 * half, dtype=np.int32)
        out = np.empty_like(x)
        comm.all_reduce(x[:1])
        job.meet()
        chunks_before = len(seen)
        point = op, _ = comm._agent.plan_point(DEADLINE_S)
        assert comm._agent.submit(point, call, x, out, [(0, 0, half), (0, half, half)])
        assert comm._agent.wait(op, DEADLINE_S)
        assert comm._agent.failure_of(op) is None
        np.testing.assert_array_equal(out, RANKS * x)
        assert comm._agent.rail_states()[0].failures == 1
        job.meet()

    switch._process = damage  # type: ignore[method-assign]
    job.run(work, "ina=ina@lo,tcp=tcp@lo")


def test_prometheus_finds_the_counts_of_rails_trees_and_calls(job: StaticJob) -> None:
    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(100, np.float32))
        for size in (0, 1):  # both calls are of one class, and one is multicast
            comm.broadcast(np.zeros((LEAST_CHUNKS - 1) * CHUNK + size, np.uint8))
        with urllib.request.urlopen(f"http://{comm.metrics_address}/metrics") as answer:
            told = answer.read().decode()
        who = f'rail="ina",rank="{comm.rank}"'
        assert f'railweave_rail_slices_total{{job="default",kind="ina",{who}}} 3.0' in told
        assert f'railweave_group_multicasts_total{{group="{GROUP}",job="default",{who},tree="0"}} 1.0' in told
        assert f'railweave_group_results_total{{group="{GROUP}",job="default",{who},tree="0"}}' in told
        assert f'railweave_group_slots{{group="{GROUP}",job="default",{who},tree="0"}} {SLOTS}.0' in told
        assert 'reason="",size_class="512"} 1.0' in told
        (broadcasts,) = [line for line in told.splitlines() if 'collective="broadcast"' in line]
        assert broadcasts.endswith("} 2.0")
        job.meet()

    job.run(work, "ina=ina@lo", metrics="127.0.0.1:0")


@pytest.mark.parametrize("refuse_every", [0, 7])
def test_a_multicast_starts_while_the_reduction_before_it_runs(refuse_every: int) -> None:
    """The multicast starts when the last rank has begun it, and not before."""
    switch = LoopbackSwitch(ADDRESS, RANKS, refuse_every)
    job = StaticJob(RANKS, ina=[PLACE])
    process = switch._process
    seen: list[tuple[int, int]] = []  # kind of a packet, and how many ranks had begun the multicast
    begun: set[int] = set()
    under_way, over = threading.Event(), threading.Event()

    def record(data: bytes, sender: tuple[str, int]) -> None:
        packet = Packet.parse(data)
        assert packet is not None
        if begun and not over.is_set():
            seen.append((packet.kind, len(begun)))
            if len(seen) > 1000:
                under_way.set()
        process(data, sender)

    switch._process = record  # type: ignore[method-assign]

    def work(comm: Communicator) -> None:
        whole = gathered(0, LARGE)
        mine = whole.reshape(RANKS, LARGE)[comm.rank]
        np.testing.assert_array_equal(comm.all_gather(mine), whole)  # measures how large packets may be
        job.meet()
        for call in range(2):
            sums = comm.all_reduce(np.full(3000 * LANES, comm.rank + call, np.int32), async_op=True)
            if comm.rank == 2 and not call:
                assert under_way.wait(DEADLINE_S)
            begun.add(comm.rank)
            gather = comm.all_gather(mine, async_op=True)
            np.testing.assert_array_equal(gather.wait(), whole)
            np.testing.assert_array_equal(sums.wait(), 3 + RANKS * call)
            over.set()
        job.meet()

    try:
        job.run(work, "ina=ina@lo")
    finally:
        switch.close()
    assert {ranks for kind, ranks in seen if kind == SPREAD} == {RANKS}
    behind = seen[seen.index((SPREAD, RANKS)) :]
    assert sum(kind == CONTRIBUTE for kind, _ in behind) > 1000


def test_what_is_spread_may_lie_right_behind_the_result_of_ready(
    switch: LoopbackSwitch, job: StaticJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank may receive multicast data in one batch with READY's result. It must not drop the data."""
    held: list[bytes] = []
    process = switch.model.process

    def hold(child: int, data: bytes) -> list[tuple[object, bytes]]:
        outputs = []
        for to, packet in process(child, data):
            if to != 2 or len(held) > 20:
                outputs.append((to, packet))
                continue
            if packet not in held:  # ranks on a busy machine repeat packets that are held for long
                held.append(packet)
            if len(held) > 20:  # READY's result, and some multicast packets of the others
                outputs += [(2, each) for each in held]
        return outputs

    monkeypatch.setattr(switch.model, "process", hold)

    def work(comm: Communicator) -> int:
        whole = gathered(0, HUGE)
        np.testing.assert_array_equal(comm.all_gather(whole.reshape(RANKS, HUGE)[comm.rank]), whole)
        job.meet()
        return comm.stats().rails[0].groups[0].stale

    assert job.run(work, "ina=ina@lo/100M")[2] < 10  # only repetitions of READY are stale, not held packets
