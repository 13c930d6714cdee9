# SPDX-License-Identifier: Apache-2.0
"""Communicators of several ranks over TCP rails on loopback."""

from __future__ import annotations

import array
import contextlib
import gc
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from protocol.jobs import DEADLINE_S, StaticJob

from railweave.hosts.communicator import Communicator
from railweave.hosts.decisions import Reason
from railweave.hosts.errors import (
    GroupRefused,
    InvalidOption,
    JoinTimeout,
    PeerLost,
    RailDown,
    RailweaveError,
)
from railweave.hosts.events import MemberLost, PlaneDown
from railweave.hosts.options import options_from

TWO_RAILS = "left=tcp@lo,right=tcp@lo"
EQUAL = {"left": 1, "right": 1}


@contextlib.contextmanager
def pair() -> Iterator[list[Communicator]]:
    """Make both ranks of a job. The test makes their calls."""
    job = StaticJob(2)
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(job.communicator, range(2)))
    with both[0], both[1]:
        yield both


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """Interrupt the block, which waits for a call."""
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    timer.join()


@pytest.mark.parametrize("ranks", [2, 5])
def test_sum_is_right_and_the_same_everywhere(ranks: int) -> None:
    for count in (1, 4096, 1_000_003):
        inputs = [np.random.default_rng(rank).normal(size=count).astype(np.float32) for rank in range(ranks)]
        results = StaticJob(ranks).run(lambda comm: comm.all_reduce(inputs[comm.rank]), TWO_RAILS)  # noqa: B023
        exact = np.sum(np.stack(inputs), axis=0, dtype=np.float64)
        np.testing.assert_allclose(results[0], exact, rtol=0, atol=1e-5)
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])


REPEATED = [np.dtype(char) for char in "fiedbBlq"]


@pytest.mark.parametrize("rails", ["tcp@lo", TWO_RAILS])
def test_calls_that_are_repeated_are_right_and_counted(rails: str) -> None:
    """Repeat calls of each type. Rank 0 gets new arrays, rank 1 passes `out`, rank 2 calls asynchronously."""
    ranks, calls = 3, 12

    def work(comm: Communicator) -> int:
        made = 0
        for op, dtype in (*(("sum", each) for each in REPEATED), ("max", np.dtype(np.float32))):
            out = np.empty((2, 3), dtype)
            for call in range(calls):
                x = np.full((2, 3), (comm.rank + call) % 30, dtype)
                if comm.rank < 2:
                    got = comm.all_reduce(x, op, out if comm.rank else None)
                else:
                    got = comm.all_reduce(x, op, async_op=True).wait()
                assert (got is out) == (comm.rank == 1)
                assert (got.shape, got.dtype) == (out.shape, out.dtype)
                each = [(rank + call) % 30 for rank in range(ranks)]
                np.testing.assert_array_equal(got, np.full((2, 3), sum(each) if op == "sum" else max(each)))
                made += 1
        assert sum(decision.calls for decision in comm.why() if decision.used) == made
        return made

    StaticJob(ranks).run(work, rails)


def test_a_call_behind_repeated_ones_may_have_other_kinds_of_arrays() -> None:
    def work(comm: Communicator) -> None:
        x, out = np.ones(6, np.float32), np.empty(6, np.float32)

        def repeated() -> None:
            for _ in range(3):
                assert comm.all_reduce(x, out=out)[0] == comm.world_size

        for given in (RawArray("f", [1] * 6), array.array("f", [1] * 6)):  # the first has no strides
            repeated()
            assert comm.all_reduce(given, out=out) is out
            assert np.all(out == comm.world_size)
            repeated()
            assert comm.all_reduce(given, out=given) is given
            assert list(given) == [comm.world_size] * 6
        repeated()
        assert comm.all_reduce(np.ones(12, np.float32)[::2], out=out) is out
        assert np.all(out == comm.world_size)
        assert np.all(comm.all_reduce(x, "max", out) == 1)
        table = np.arange(12, dtype=np.int32).reshape(3, 4).T
        np.testing.assert_array_equal(comm.all_reduce(table), 2 * table)

    StaticJob(2).run(work)


def test_an_interrupted_call_that_was_repeated_keeps_its_arrays_until_it_ends() -> None:
    out, theirs = np.zeros(3, np.float32), np.zeros(3, np.float32)
    with pair() as (comm, other), ThreadPoolExecutor(1) as pool:
        for _ in range(5):
            call = pool.submit(other.all_reduce, np.ones(3, np.float32), out=theirs)
            comm.all_reduce(np.ones(3, np.float32), out=out)
            call.result(DEADLINE_S)
        alive = weakref.ref(out)
        with interrupted():
            comm.all_reduce(np.full(3, 2, np.float32), out=out)
        del out
        gc.collect()
        assert alive() is not None
        assert other.all_reduce(np.full(3, 5, np.float32), out=theirs)[0] == 7
        for _ in range(2):  # the first ends after the interrupted call; the second looks for ended calls
            call = pool.submit(other.all_reduce, np.ones(3, np.float32), out=theirs)
            comm.all_reduce(np.ones(3, np.float32), async_op=True).wait()
            call.result(DEADLINE_S)
        assert alive() is None


def test_shares_are_what_the_rails_carry() -> None:
    def work(comm: Communicator) -> dict[str, int]:
        comm.all_reduce(np.zeros(1 << 20, np.float32))
        records = comm.drain_records()
        assert {record.rail for record in records} == {"left", "right"}
        assert all(record.start_s <= record.end_s <= time.monotonic() for record in records)
        return {rail.name: rail.payload_bytes for rail in comm.stats().rails}

    carried = StaticJob(4).run(work, TWO_RAILS, shares={"left": 3, "right": 1})
    assert carried == [{"left": 3 << 20, "right": 1 << 20}] * 4


def test_stats_count_the_wire() -> None:
    def work(comm: Communicator) -> None:
        comm.all_reduce(np.zeros(1 << 20, np.float32))
        (rail,) = comm.stats().rails  # a single rail sends no heartbeats
        ring = 2 * (4 - 1) / 4 * (4 << 20)
        assert ring < rail.bytes_sent < 1.1 * ring
        assert ring < rail.bytes_received < 1.1 * ring
        assert rail.slices == 1
        assert 0 < rail.busy_s < DEADLINE_S

    StaticJob(4).run(work)


def call_twice(comm: Communicator) -> None:
    """Make two calls. A peer that gave up may have sent its part of the first call, but not of the second."""
    comm.all_reduce(np.zeros(3, np.float32))
    comm.all_reduce(np.zeros(3, np.float32))


def test_a_lost_member_ends_what_is_pending_everywhere() -> None:
    job = StaticJob(3)
    known = threading.Event()

    def work(comm: Communicator) -> None:
        job.meet()
        if comm.rank == 0:
            pending = comm.all_reduce(np.zeros(3, np.float32), async_op=True)
            job.memberships[0].on_event(MemberLost(2, "its lease has run out"))
            known.set()
            with pytest.raises(PeerLost, match="lease has run out") as raised:
                pending.wait(DEADLINE_S)
        else:
            assert comm.rank == 1 or known.wait(DEADLINE_S)
            with pytest.raises(PeerLost, match="lease has run out") as raised:
                call_twice(comm)
        assert raised.value.rank == 2

    job.run(work)


def test_a_plane_that_stays_down_is_a_rail_that_is_down() -> None:
    """A tcp rail needs no tree. Its calls fail only if they do not complete in time."""
    job = StaticJob(2)
    done = threading.Event()

    def work(comm: Communicator) -> None:
        job.meet()
        if comm.rank == 0:
            job.memberships[0].on_event(PlaneDown("left", "its switch is gone"))
            assert [(d.rail, d.reason) for d in comm.why()] == [("left", Reason.TREE_DOWN)]
            with pytest.raises(RailDown, match="plane 'left' is down: its switch is gone; rank 0 has waited"):
                comm.all_reduce(np.zeros(3, np.float32))
            done.set()
        assert done.wait(DEADLINE_S)
        with pytest.raises(RailDown, match="its switch is gone") as raised:
            call_twice(comm)
        assert raised.value.rail == "left"

    job.run(work, TWO_RAILS, timeout_s=1, shares=EQUAL)


def test_refused_rails_are_not_used() -> None:
    def work(comm: Communicator) -> None:
        comm.all_reduce(np.zeros(1 << 18, np.float32))
        refused, *_ = comm.why()
        assert (refused.rail, refused.reason, refused.detail) == ("left", Reason.REFUSED, "no slots")
        assert {rail.name: rail.slices for rail in comm.stats().rails} == {"left": 0, "right": 1}

    StaticJob(2, refusals={"left": "no slots"}).run(work, TWO_RAILS)
    with pytest.raises(GroupRefused, match="no slots"):
        StaticJob(2, refusals={"tcp": "no slots"}).run(work)


@pytest.mark.parametrize("repeated", [0, 5])
def test_a_call_that_a_rank_does_not_make_ends_with_the_timeout(repeated: int) -> None:
    job = StaticJob(2)
    done = threading.Event()

    def work(comm: Communicator) -> None:
        out = np.empty(3, np.float32)
        for _ in range(repeated):
            comm.all_reduce(np.ones(3, np.float32), out=out)
        job.meet()
        if comm.rank == 1:
            assert done.wait(DEADLINE_S)
            with pytest.raises(RailweaveError, match="rank 0 has waited"):
                call_twice(comm)
            return
        for _ in range(2):
            with pytest.raises(RailweaveError, match="rank 0 has waited"):
                comm.all_reduce(out, out=out)
        done.set()

    job.run(work, timeout_s=2)


def test_an_interrupt_is_served_while_waiting() -> None:
    with pair() as (comm, other):
        start = time.monotonic()
        with interrupted():
            comm.all_reduce(np.zeros(3, np.float32))
        assert time.monotonic() - start < 5
        comm.close()
        with pytest.raises(PeerLost, match="1 calls unfinished"):
            call_twice(other)


def test_a_communicator_that_was_closed_refuses_calls_and_keeps_nothing_open(tmp_path: Path) -> None:
    """Close all files without the garbage collector, which seldom runs in a program with few objects."""

    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def work(comm: Communicator) -> None:
        comm.all_reduce(np.ones(10, np.float32))
        comm.close()
        comm.close()
        for count in (3, 0):
            with pytest.raises(RailweaveError, match="closed"):
                comm.all_reduce(np.zeros(count, np.float32))

    gc.collect()
    gc.disable()
    try:
        before = open_files()
        job = StaticJob(2)
        job.run(work, TWO_RAILS, report=str(tmp_path / "report"))
        assert all(membership.left for membership in job.memberships.values())
        assert open_files() <= before
    finally:
        gc.enable()


def test_ranks_that_do_not_come_are_expected_for_a_reason() -> None:
    def join(*_: object, **__: object) -> NoReturn:
        raise JoinTimeout("missing: 1, 2, 3")

    for given, source in (({}, "SLURM_NTASKS"), ({"world_size": 4}, "world_size")):
        environment = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "RAILWEAVE_RAILS": "tcp@lo"}
        options = options_from(environment=environment, controller="none", **given)  # type: ignore[arg-type]
        with pytest.raises(JoinTimeout, match=rf"missing: 1, 2, 3 \(.* 4 ranks, because {source} is 4\)"):
            Communicator(options, join)


def test_metrics_that_cannot_be_served_are_refused() -> None:
    for listen in ("9000", "127.0.0.1:x", "192.0.2.1:0"):
        with pytest.raises(InvalidOption, match="metrics="):
            StaticJob(1).communicator(0, "", metrics=listen)
