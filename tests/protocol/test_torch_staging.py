# SPDX-License-Identifier: Apache-2.0
"""Tensors that are staged: pieces, bits, order and errors. Threads replace the streams of a GPU."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from protocol.jobs import DEADLINE_S, StaticJob

from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import PeerLost, RailweaveError

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch

from railweave.torch.staging import BUFFERS, Staging

PIECE_BYTES = 256 << 10  # long enough for a ring


class Event:
    """The end of a thread's work."""

    def __init__(self, end: Future[None]) -> None:
        self.end = end

    def synchronize(self) -> None:
        self.end.result(DEADLINE_S)

    def query(self) -> bool:
        return self.end.done()


class HostStreams:
    """Copies between tensors on the CPU, like a SideStreams between a GPU and pinned memory."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.gate = threading.Event()  # the program's stream waits for it
        self.gate.set()
        self.broken = False
        self._down, self._up = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

    def ready(self) -> threading.Event:
        return self.gate

    def load(self, ready: threading.Event, copies: Iterable[tuple[Any, Any]]) -> Event:
        if self.broken:
            raise RuntimeError("the device is broken")
        return Event(self._down.submit(self._copy, list(copies), ready))

    def store(self, copies: Iterable[tuple[Any, Any]]) -> Event:
        return Event(self._up.submit(self._copy, list(copies), self.gate))

    def _copy(self, copies: list[tuple[Any, Any]], ready: threading.Event) -> None:
        assert ready.wait(DEADLINE_S)
        for target, source in copies:
            target.copy_(source)

    def join(self, event: Event) -> None:
        event.synchronize()

    def future(self) -> Any:
        return torch.futures.Future()

    def completing(self) -> Any:
        self.join(self.store([]))  # callbacks of a future wait for the copies of its GPU tensors
        return nullcontext()

    def pinned(self, size: int) -> Any:
        return torch.full((size,), 0x55, dtype=torch.uint8)


def run(
    size: int, work: Callable[[Communicator, Any], Any], rails: str = "tcp=tcp@lo", **options: Any
) -> Any:
    """Run `work` on every rank with a Staging. Return the results by rank."""

    def body(comm: Communicator) -> Any:
        staging = Staging(comm, HostStreams)  # type: ignore[arg-type]
        try:
            return work(comm, staging)
        finally:
            comm.close()
            staging.close()
            assert not any(thread.is_alive() for thread in staging._threads)

    return StaticJob(size).run(body, rails, **options)


def finish(staging: Any, x: Any, pending: Any) -> None:
    """Wait until the results are in the caller's tensor."""
    pending.wait(DEADLINE_S)
    streams = staging.streams(x.device)
    streams.join(streams.store([]))


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railweave.torch.staging.PIECE_BYTES", PIECE_BYTES)


def numbers(rank: int, count: int, dtype: Any) -> Any:
    drawn = torch.randn(count, generator=torch.Generator().manual_seed(rank))
    return (drawn if dtype.is_floating_point else drawn * 100).to(dtype)


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_results_have_the_bits_of_those_of_one_call(size: int, dtype: Any) -> None:
    def work(comm: Communicator, staging: Any) -> None:
        root = size - 1
        for count in (0, 1, 65_537, 100_001):
            given, total = numbers(comm.rank, size * count, dtype), torch.zeros(size * count, dtype=dtype)
            for op in ("sum", "avg", "max"):
                found = given.clone()
                comm.all_reduce(given, op, out=total)
                finish(staging, found, staging.all_reduce(found, op, out=found))
                assert torch.equal(found, total), op
            comm.all_reduce(given, out=total)
            reduced = given.clone()
            out = reduced if comm.rank == root else None
            finish(staging, reduced, staging.reduce(reduced, root, "sum", out=out))
            assert torch.equal(reduced, total if comm.rank == root else given)
            shard, expected, everything = (
                torch.zeros(size, dtype=dtype) for size in (count, count, size * count)
            )
            comm.reduce_scatter(given, out=expected)
            finish(staging, given, staging.reduce_scatter(given, "sum", out=shard))
            assert torch.equal(shard, expected)
            comm.all_gather(shard, out=total)
            finish(staging, given, staging.all_gather(shard, out=everything))
            assert torch.equal(everything, total)
            finish(staging, given, staging.broadcast(given, root))
            assert torch.equal(given, numbers(root, size * count, dtype))

    run(size, work)


@pytest.mark.parametrize(
    ("rails", "options", "pieces"),
    [
        ("left=tcp@lo,right=tcp@lo", {"deterministic": True}, 1),  # pieces change the blocks of both rings
        ("left=tcp@lo,right=tcp@lo", {"shares": {"left": 1, "right": 1}}, 1),
        ("left=tcp@lo,right=tcp@lo", {}, 5),
        ("tcp=tcp@lo", {}, 5),
    ],
)
def test_a_tensor_is_cut_where_that_does_not_change_bits(rails: str, options: Any, pieces: int) -> None:
    def work(comm: Communicator, staging: Any) -> None:
        x = numbers(comm.rank, 300_000, torch.float32)
        assert len(staging._cuts(x, 100_000, 3, "sum")) == pieces
        assert len(staging._cuts(x, 100_000, 3, "max")) == 5
        expected = x.clone()
        comm.all_reduce(expected, out=expected)
        finish(staging, x, staging.all_reduce(x, "sum", out=x))
        if pieces == 1 or rails == "tcp=tcp@lo":
            assert torch.equal(x, expected)
        else:
            torch.testing.assert_close(x, expected)

    run(3, work, rails, **options)


def test_calls_of_the_cpu_keep_their_place_behind_calls_that_wait_for_a_stream() -> None:
    def work(comm: Communicator, staging: Any) -> None:
        streams = staging.streams(torch.device("cpu"))
        if comm.rank == 0:
            streams.gate.clear()  # rank 1 makes its first call at once
        x, y = torch.full((100_000,), 1.0), np.full(10, 1.0)
        first = staging.all_reduce(x, "sum", out=x)
        if comm.rank == 0:
            assert staging.busy()
            assert not first.done()
        second = staging.behind(lambda async_op: comm.all_reduce(y, "max", out=y, async_op=async_op))
        assert not second.done() or comm.rank == 1
        streams.gate.set()
        second.wait(DEADLINE_S)
        assert first.done()
        finish(staging, x, first)
        assert x[0] == 2.0
        assert y[0] == 1.0
        assert not staging.busy()

    run(2, work)


def test_calls_time_out_and_go_on_and_errors_of_the_device_reach_the_caller() -> None:
    def work(comm: Communicator, staging: Any) -> None:
        streams, x = staging.streams(torch.device("cpu")), torch.ones(300_000)
        streams.gate.clear()
        pending = staging.all_reduce(x, "sum", out=x)
        with pytest.raises(TimeoutError, match="and goes on"):
            pending.wait(0.1)
        streams.gate.set()
        finish(staging, x, pending)
        assert x[-1] == 2.0
        streams.broken = True
        with pytest.raises(RuntimeError, match="the device is broken"):
            staging.all_reduce(x, "sum", out=x).wait(DEADLINE_S)
        streams.broken = False
        finish(staging, x, staging.all_reduce(x, "sum", out=x))
        assert x[-1] == 4.0

    run(2, work)


def test_a_rank_that_leaves_fails_calls_and_ends_no_thread() -> None:
    def work(comm: Communicator, staging: Any) -> None:
        if comm.rank == 1:
            return
        for _ in range(2):
            x = torch.ones(300_000)
            with pytest.raises(PeerLost):
                staging.all_reduce(x, "sum", out=x).wait(DEADLINE_S)
        with pytest.raises(PeerLost):
            staging.behind(comm.barrier).wait(DEADLINE_S)
        assert not staging.busy()

    run(2, work)


def test_calls_that_are_queued_when_the_group_ends_fail() -> None:
    def work(comm: Communicator, staging: Any) -> None:
        streams, x = staging.streams(torch.device("cpu")), torch.ones(300_000)
        streams.gate.clear()
        pending = [staging.all_reduce(x, "sum", out=x) for _ in range(3)]
        comm.close()
        streams.gate.set()
        staging.close()
        for call in pending:
            with pytest.raises(RailweaveError):
                call.wait(DEADLINE_S)

    run(2, work)


def test_memory_is_bounded_and_used_again() -> None:
    def work(comm: Communicator, staging: Any) -> None:
        streams, made = staging.streams(torch.device("cpu")), []
        pinned = streams.pinned
        streams.pinned = lambda size: made.append(size) or pinned(size)
        for _ in range(3):
            x = torch.ones(BUFFERS * PIECE_BYTES)
            finish(staging, x, staging.all_reduce(x, "sum", out=x))
        assert made == [PIECE_BYTES] * BUFFERS

    run(2, work)
