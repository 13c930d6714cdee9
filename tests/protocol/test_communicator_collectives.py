# SPDX-License-Identifier: Apache-2.0
"""reduce_scatter, all_gather and broadcast by whole communicators, over rails on loopback."""

from __future__ import annotations

import array
import importlib.util
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from protocol.jobs import DEADLINE_S, StaticJob, StaticMembership

from railweave._native.collectives import DType
from railweave.hosts.arrays import DTYPES, NAMES
from railweave.hosts.communicator import Communicator
from railweave.hosts.decisions import Reason
from railweave.hosts.errors import InvalidOption, RailweaveError, UnsupportedDType
from railweave.hosts.options import Options, parse_rails

RANKS = 3
TWO_RAILS = "left=tcp@lo,right=tcp@lo"
WITH_SWITCH = "ina=ina@lo,tcp=tcp@lo"

Array = npt.NDArray[Any]


def striped(rails: str) -> dict[str, float]:
    """Return equal shares, so that all rails carry a part from the first call on."""
    return {rail.partition("=")[0]: 1.0 for rail in rails.split(",")}


def given(rank: int, shape: tuple[int, ...], dtype: Any = np.int32) -> Array:
    return np.random.default_rng(rank).integers(-50, 50, shape).astype(dtype)


@pytest.mark.parametrize("rails", ["tcp=tcp@lo", TWO_RAILS, "ina=ina@lo", WITH_SWITCH])
def test_all_three_in_shapes_as_one_expects(job: StaticJob, rails: str) -> None:
    def work(comm: Communicator) -> None:
        for shape in ((3,), (6, 1), (300, 7), (3 * 4_111, 2)):
            inputs = [given(rank, shape) for rank in range(RANKS)]
            total, mine = np.sum(inputs, axis=0, dtype=np.int32), inputs[comm.rank].copy()
            shard = comm.reduce_scatter(mine)
            np.testing.assert_array_equal(shard, np.split(total, RANKS)[comm.rank])
            np.testing.assert_array_equal(comm.all_gather(shard), total)
            np.testing.assert_array_equal(mine, inputs[comm.rank])
            for root in range(RANKS):
                copy = mine.copy()
                assert comm.broadcast(copy, root=root) is copy
                np.testing.assert_array_equal(copy, inputs[root])
        job.meet()

    job.run(work, rails, shares=striped(rails))


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_types_and_operations(job: StaticJob, dtype: DType) -> None:
    """Every type and rail adds small integers exactly. Gathered and broadcast bits do not change."""
    kind = NAMES[dtype]
    inputs = [(given(rank, (3 * 5000,)) % 5).astype(kind) for rank in range(RANKS)]
    wide = [values.astype(np.float64) for values in inputs]
    bits = [np.random.default_rng(rank).integers(0, 256, 10_007, np.uint8) for rank in range(RANKS)]

    def work(comm: Communicator) -> None:
        own = slice(comm.rank * 5000, (comm.rank + 1) * 5000)
        for op, want in (
            ("sum", sum(wide)),
            ("prod", wide[0] * wide[1] * wide[2]),
            ("max", np.max(wide, 0)),
            ("min", np.min(wide, 0)),
        ):
            got = comm.reduce_scatter(inputs[comm.rank], op)
            assert got.dtype == inputs[0].dtype
            np.testing.assert_array_equal(got.astype(float), want[own])
            for count in (7, 3 * 5000):
                got = comm.all_reduce(inputs[comm.rank][:count], op)
                assert got.dtype == inputs[0].dtype
                np.testing.assert_array_equal(got.astype(float), want[:count])
        raw = [values[: values.size // 8 * 8].view(kind) for values in bits]
        gathered = comm.all_gather(raw[comm.rank])
        np.testing.assert_array_equal(gathered.view(np.uint8), np.concatenate(raw).view(np.uint8))
        copy = comm.broadcast(raw[comm.rank].copy(), root=2)
        np.testing.assert_array_equal(copy.view(np.uint8), raw[2].view(np.uint8))
        job.meet()

    job.run(work, WITH_SWITCH, shares=striped(WITH_SWITCH))


@pytest.mark.parametrize("rails", ["tcp=tcp@lo", TWO_RAILS])
def test_in_place_async_out_and_packed(rails: str) -> None:
    """One rail reads and writes the caller's arrays. Two rails use buffers that live longer than the call."""

    def work(comm: Communicator) -> None:
        rank = comm.rank
        works = [comm.broadcast(np.full(5000, 100 * rank + i), root=i % 3, async_op=True) for i in range(100)]
        shards = np.full((3, 20_000), rank, np.float32)
        assert comm.reduce_scatter(shards, "avg", out=shards[rank]) is not None
        assert np.all(shards[rank] == 1)
        assert np.all(np.delete(shards, rank, axis=0) == rank)
        shards[rank] = rank
        pending = comm.all_gather(shards[rank], out=shards, async_op=True)
        assert pending.wait() is shards
        assert [list(set(row)) for row in shards.tolist()] == [[0], [1], [2]]
        for i, each in enumerate(works):
            assert np.all(each.wait() == 100 * (i % 3) + i)
            assert each.done()
        strided = np.arange(12, dtype=np.int32).reshape(6, 2).T
        np.testing.assert_array_equal(comm.all_gather(strided), np.concatenate([strided] * 3))
        stacked = np.empty((3, 2, 6), np.int32)
        np.testing.assert_array_equal(comm.all_gather(strided, out=stacked), np.stack([strided] * 3))
        buffer = array.array("d", [rank, 2])
        assert comm.broadcast(buffer, root=1) is buffer
        assert buffer.tolist() == [1, 2]
        frozen = np.full((4, 4), rank).T
        frozen.flags.writeable = rank != 2
        assert np.all(comm.broadcast(frozen if rank == 2 else frozen.copy(), root=2) == 2)

    StaticJob(3).run(work, rails, shares=striped(rails))


def test_a_world_of_one_copies_and_needs_nobody() -> None:
    with StaticJob(1).communicator(0, "") as comm:
        x = np.arange(6.0).reshape(3, 2)
        for got in (comm.reduce_scatter(x, "avg"), comm.all_gather(x, async_op=True).wait()):
            np.testing.assert_array_equal(got, x)
        np.testing.assert_array_equal(comm.all_reduce(x, async_op=True).wait(), x)
        assert comm.broadcast(x) is x
        assert comm.all_gather(x, out=x) is x
        assert comm.stats().rails == ()
        with pytest.raises(InvalidOption, match="0 to 0"):
            comm.broadcast(x, root=1)
    with pytest.raises(RailweaveError, match="closed"):
        comm.all_reduce(x)


def test_scalars() -> None:
    def work(comm: Communicator) -> None:
        assert comm.all_gather(np.float32(comm.rank)).tolist() == [0, 1]
        point = np.array(float(comm.rank))
        assert comm.broadcast(point, root=1, async_op=True).wait() == 1

    StaticJob(2).run(work)


@pytest.mark.parametrize("rails", [TWO_RAILS, WITH_SWITCH])
def test_reduce_gives_the_result_to_the_root_alone(job: StaticJob, rails: str) -> None:
    def work(comm: Communicator) -> None:
        mine = np.full(5_000, comm.rank + 1, np.int32)
        for root in range(RANKS):
            out = np.zeros_like(mine) if comm.rank == root else None
            pending = comm.reduce(mine, root, "max", out, async_op=True)
            result = comm.reduce(mine, root)
            if comm.rank == root:
                np.testing.assert_array_equal(result, np.full(5_000, 6))
                assert pending.wait() is out
                np.testing.assert_array_equal(out, np.full(5_000, 3))
            else:
                assert result is None
                assert pending.wait() is None
        elsewhere = (comm.rank + 1) % RANKS
        with pytest.raises(InvalidOption, match=f"out on the root, rank {elsewhere}, only"):
            comm.reduce(mine, elsewhere, out=mine)
        job.meet()

    job.run(work, rails, shares=striped(rails))


def test_an_asynchronous_barrier_is_complete_when_all_have_called_it(job: StaticJob) -> None:
    late = threading.Event()

    def work(comm: Communicator) -> None:
        if comm.rank == 2:
            assert late.wait(DEADLINE_S)
            comm.barrier()
            return
        pending = comm.barrier(async_op=True)
        assert not pending.done()
        job_of_two.wait(DEADLINE_S)
        late.set()
        assert pending.wait() is None
        assert pending.done()

    job_of_two = threading.Barrier(2)
    job.run(work, TWO_RAILS)


class Jobs(dict[str, StaticJob]):
    """Replaces a controller with several jobs."""

    lock = threading.Lock()

    def join(self, controller: str, *, job: str, size: int, **rest: Any) -> StaticMembership:
        with self.lock:
            at = self.setdefault(job, StaticJob(size))
        return at.join(controller, job=job, size=size, **rest)


@pytest.mark.parametrize("rails", ["tcp=tcp@lo", TWO_RAILS])
def test_a_job_is_split_by_color_and_key(rails: str) -> None:
    """Split into two colors, with one rank without a color. Keys order the ranks of each color."""
    ranks, jobs = 5, Jobs()
    colors, keys = [7, 0, 7, None, False], [1, 0, 0, 0, 0]  # False is the color 0
    world = {0: [1, 4], 7: [2, 0]}  # by color: the ranks in their new order

    def work(rank: int) -> None:
        options = Options(rank, ranks, parse_rails(rails), controller="none", timeout_s=DEADLINE_S)
        with Communicator(options, jobs.join) as comm:
            for number in (1, 2):  # the second split makes new communicators
                part = comm.split(colors[rank], keys[rank])
                if part is None:
                    assert colors[rank] is None
                    continue
                members = world[colors[rank]]
                assert (part.rank, part.world_size) == (members.index(rank), len(members))
                assert part.options.job == f"default/{number}.{int(colors[rank])}"
                assert part.all_gather(np.array([rank])).tolist() == members
                assert part.all_reduce(np.array([rank])).tolist() == [sum(members)]
                part.barrier()
                part.close()
            assert comm.all_reduce(np.array([1])).tolist() == [ranks]
            comm.barrier()

    with ThreadPoolExecutor(ranks) as pool:
        list(pool.map(work, range(ranks), timeout=2 * DEADLINE_S))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_torch_tensors_give_torch_tensors_and_are_used_in_place() -> None:
    import torch  # noqa: PLC0415

    def work(comm: Communicator) -> None:
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            mine = torch.full((4, 3), comm.rank + 1, dtype=dtype)
            for result, shape, value in (
                (comm.all_reduce(mine), (4, 3), 3),
                (comm.reduce_scatter(mine), (2, 3), 3),
                (comm.broadcast(mine.clone(), root=1), (4, 3), 2),
                (comm.all_reduce(mine, async_op=True).wait(), (4, 3), 3),
            ):
                assert isinstance(result, torch.Tensor)
                assert (result.dtype, tuple(result.shape)) == (dtype, shape)
                assert torch.all(result == value)
            out = torch.empty(8, 3, dtype=dtype)
            assert comm.all_gather(mine, out=out) is out
            assert out[:, 0].tolist() == [1] * 4 + [2] * 4
            assert comm.all_gather(mine).tolist() == out.tolist()
            assert comm.all_reduce(mine, out=mine) is mine
            assert torch.all(mine == 3)

    StaticJob(2).run(work)


def read_only() -> Array:
    memory = np.zeros(6, np.float32)
    memory.flags.writeable = False
    return memory


ONES, OUT = np.ones(6, np.float32), np.empty(6, np.float32)
REFUSED: list[tuple[str, Callable[[Any], Any]]] = [
    # Calls like the one before, except for one argument.
    ("out is read-only", lambda comm: comm.all_reduce(ONES, out=read_only())),
    ("holds 5 of float32: expected 6 of float32", lambda comm: comm.all_reduce(ONES, out=OUT[:5])),
    ("int32: expected 6 of float32", lambda comm: comm.all_reduce(ONES, out=np.empty(6, np.int32))),
    (">f4: expected 6 of float32", lambda comm: comm.all_reduce(ONES, out=np.empty(6, ">f4"))),
    ("out is not contiguous", lambda comm: comm.all_reduce(ONES, out=np.empty(12, np.float32)[::2])),
    ("float64: expected 6 of float32", lambda comm: comm.all_reduce(ONES, out=[0.0] * 6)),
    ("overlaps", lambda comm: comm.all_reduce((x := np.ones(7, np.float32))[:6], out=x[1:])),
    ("complex64", lambda comm: comm.all_reduce(ONES.astype(np.complex64), out=OUT)),
    ("object", lambda comm: comm.all_reduce(None, out=OUT)),
    ("'mean': expected one of sum, max, min, avg, prod", lambda comm: comm.all_reduce(ONES, "mean", OUT)),
    ("op is None: expected one of sum", lambda comm: comm.all_reduce(ONES, None, OUT)),
    ("expected one of sum", lambda comm: comm.all_reduce(ONES, ["sum"], OUT)),
    # Other calls.
    (">f4", lambda comm: comm.all_reduce(np.zeros(3, ">f4"))),
    ("out is a list", lambda comm: comm.all_reduce(np.zeros(2), out=[0.0, 0.0])),
    ("out is read-only", lambda comm: comm.all_reduce(x := read_only(), out=x)),
    (r"shape \(5, 2\).*2 ranks can divide", lambda comm: comm.reduce_scatter(np.zeros((5, 2)))),
    (r"shape \(\)", lambda comm: comm.reduce_scatter(np.float32(1))),
    ("op is 'norm'", lambda comm: comm.reduce_scatter(np.zeros(4), op="norm")),
    ("expected one of", lambda comm: comm.reduce_scatter(np.ones(2), {})),
    ("expected 2 of float64", lambda comm: comm.reduce_scatter(np.zeros(4), out=np.zeros(4))),
    ("overlaps", lambda comm: comm.reduce_scatter(x := np.zeros(4), out=x[1:3])),
    ("of float32: expected 8 of float64", lambda comm: comm.all_gather(np.zeros(4), out=np.zeros(8, "f"))),
    ("contiguous", lambda comm: comm.all_gather(np.zeros(4), out=np.zeros((8, 2))[:, 0])),
    ("overlaps", lambda comm: comm.all_gather((out := np.zeros(4))[1:3], out=out)),
    ("x is not contiguous", lambda comm: comm.broadcast(np.zeros((4, 2)).T, root=1 - comm.rank)),
    ("x is read-only", lambda comm: comm.broadcast(np.float32(1), root=1 - comm.rank)),
    ("x is a list", lambda comm: comm.broadcast([1.0, 2.0], root=1 - comm.rank)),
    ("root is 2: expected a rank, 0 to 1", lambda comm: comm.broadcast(np.zeros(1), root=2)),
    ("root is -1", lambda comm: comm.broadcast(np.zeros(1), root=-1)),
    ("root is '0': expected a whole number", lambda comm: comm.broadcast(np.zeros(1), root="0")),
    ("root is 0.0", lambda comm: comm.broadcast(np.zeros(1), root=0.0)),
    ("root is '0'", lambda comm: comm.reduce(ONES, "0")),
    ("color is 'left'", lambda comm: comm.split("left")),
    ("color is -1", lambda comm: comm.split(-1)),
    ("key is 1.5", lambda comm: comm.split(0, 1.5)),
    ("size_bytes is", lambda comm: comm.plan(1 << 70)),
    ("expected one of all_reduce", lambda comm: comm.plan(4, ["all_reduce"])),
]


def test_what_makes_no_sense_is_refused_and_leaves_the_communicator_usable() -> None:
    def work(comm: Communicator) -> None:
        out = np.empty_like(ONES)
        for message, call in REFUSED:
            for _ in range(3):  # the agent may make the last one without this module
                assert comm.all_reduce(ONES, out=out)[0] == 2
            with pytest.raises((InvalidOption, UnsupportedDType), match=message):
                call(comm)
        pending = comm.all_reduce(ONES, async_op=True)
        for timeout in ("1", float("nan"), [1]):
            with pytest.raises(InvalidOption, match="timeout is"):
                pending.wait(timeout)  # type: ignore[arg-type]
        assert pending.wait(1 << 2000)[0] == 2

    StaticJob(2).run(work)


def test_why_says_what_went_where(job: StaticJob) -> None:
    def work(comm: Communicator) -> None:
        comm.reduce_scatter(np.ones(3 * 700, np.float64))
        comm.all_gather(np.ones(700, np.float64))
        comm.broadcast(np.ones(2100, np.float64), root=1)
        rows = [(d.rail, d.collective, d.dtype, d.op, d.used, d.reason) for d in comm.why()]
        assert rows == [
            ("ina", "reduce_scatter", "float64", "sum", False, Reason.DTYPE),
            ("tcp", "reduce_scatter", "float64", "sum", True, ""),
            ("ina", "all_gather", "float64", "", True, ""),
            ("tcp", "all_gather", "float64", "", True, ""),
            ("ina", "broadcast", "float64", "", True, ""),
            ("tcp", "broadcast", "float64", "", True, ""),
        ]
        job.meet()

    job.run(work, WITH_SWITCH, shares=striped(WITH_SWITCH))
