# SPDX-License-Identifier: Apache-2.0
"""A rank that tests CUDA tensors on one GPU: `python cases.py [NAME …]` with torchrun's variables.

The rank prints a line of JSON for each case, with its name and any error. It stops after an error.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import railweave.torch
from railweave.hosts.errors import InvalidOption

DEVICE = os.environ.get("RAILWEAVE_CASES_DEVICE", "cuda")  # or `cpu` for cases that need no stream
SLEEP = 50_000_000  # cycles of a GPU: about 30 ms
SIZES = (0, 1, 5, 70_001, 3_000_017)  # elements; the last size goes in several pieces
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.uint8)
TIMEOUT = timedelta(seconds=60)

CASES: dict[str, Callable[[int, int], None]] = {}


def case(function: Callable[[int, int], None]) -> Callable[[int, int], None]:
    CASES[function.__name__] = function
    return function


def numbers(rank: int, count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return random numbers of a rank, on the CPU."""
    drawn = torch.randn(count, generator=torch.Generator().manual_seed(rank))
    return (drawn if dtype.is_floating_point else drawn * 50).to(dtype)


def same(found: Tensor, expected: Tensor, what: object = "") -> None:
    """Assert that two tensors have the same bits."""
    found = found.cpu().contiguous()
    assert found.dtype == expected.dtype
    if not torch.equal(found.view(torch.uint8), expected.contiguous().view(torch.uint8)):
        raise AssertionError(f"{what}: {found} is not {expected}")


def sleep() -> None:
    """Keep the current stream busy."""
    if DEVICE == "cuda":
        torch.cuda._sleep(SLEEP)


# ------------------------------------------------------------ values


@case
def all_reduce_has_the_bits_of_the_cpu(rank: int, _: int) -> None:
    for dtype in DTYPES:
        for count in SIZES:
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
                expected = numbers(rank, count, dtype)
                found = expected.to(DEVICE, copy=True)
                dist.all_reduce(expected, op)
                dist.all_reduce(found, op)
                same(found, expected, (dtype, count, op))


@case
def other_collectives_have_the_bits_of_the_cpu(rank: int, size: int) -> None:
    def results(device: str, given: Tensor, root: int) -> list[Tensor]:
        count = given.numel() // size
        shard, whole = torch.zeros(count).to(device), torch.zeros(size * count).to(device)
        dist.reduce_scatter_tensor(shard, given.to(device, copy=True))
        dist.all_gather_into_tensor(whole, shard)
        copied, reduced = (given.to(device, copy=True) for _ in range(2))
        dist.broadcast(copied, root)
        dist.reduce(reduced, root)
        return [shard, whole, copied, reduced]

    for count in SIZES:
        for root in range(2):
            given = numbers(rank, size * count)
            for found, expected in zip(*(results(at, given, root) for at in (DEVICE, "cpu")), strict=True):
                same(found, expected, (count, root))


@case
def strided_tensors(rank: int, size: int) -> None:
    for rows, columns in ((6, 4), (1500, 1003)):
        wide = torch.zeros(columns, 2 * rows, device=DEVICE)
        view = wide[:, ::2]
        for call in (dist.all_reduce, lambda x: dist.broadcast(x, 1)):
            expected = numbers(rank, view.numel()).reshape(view.shape)
            view.copy_(expected)
            call(expected)
            call(view)
            same(view, expected)
            assert not wide[:, 1::2].any()
        lists = [torch.zeros(rows, columns, device=DEVICE).t() for _ in range(size)]
        dist.all_gather(lists, view)
        for x in lists:
            same(x, expected, "all_gather")


@case
def what_gloo_carries(rank: int, size: int) -> None:
    x = torch.tensor([1 << rank], device=DEVICE)
    dist.all_reduce(x, dist.ReduceOp.BOR)
    assert x.item() == (1 << size) - 1
    # Send to the next rank while the GPU still computes the data.
    after, before = (rank + 1) % size, (rank - 1) % size
    sleep()
    sent, got = numbers(rank, 1000).to(DEVICE, copy=True), torch.zeros(1000, device=DEVICE)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, got, before)]
    ):
        work.wait()
    same(got, numbers(before, 1000), "batch_isend_irecv")
    if rank == 0:
        senders = {dist.recv(got) for _ in range(1, size)}
        assert senders == set(range(1, size))
    else:
        dist.send(sent, 0)
    collected = [torch.zeros(2, device=DEVICE) for _ in range(size)] if rank == 1 else None
    dist.gather(torch.full((2,), float(rank), device=DEVICE), collected, dst=1)
    assert collected is None or [each[1].item() for each in collected] == list(range(size))


# ------------------------------------------------------------ streams and order


@case
def the_current_stream_orders_a_call_with_what_is_before_and_behind_it(rank: int, size: int) -> None:
    stream = torch.cuda.Stream()
    for count in (10, 3_000_000):
        with torch.cuda.stream(stream):
            x = torch.full((count,), -1.0, device=DEVICE)
            sleep()
            x.fill_(rank + 1.0)
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            doubled = 2 * x
            x.fill_(0.0)
        stream.synchronize()
        assert doubled.unique().tolist() == [size * (size + 1.0)]
        assert work.is_completed()
        assert work.is_success()


@case
def wait_lets_only_the_stream_of_the_caller_wait(rank: int, size: int) -> None:
    x = torch.full((100,), rank + 1.0, device=DEVICE)
    other = torch.cuda.Stream()
    work = dist.all_reduce(x, async_op=True)
    with torch.cuda.stream(other):
        torch.cuda._sleep(20 * SLEEP)  # the default stream does not wait for it
    work.wait()
    begin = torch.cuda.Event()
    begin.record()
    begin.synchronize()
    assert not other.query()
    assert x[0].item() == size * (size + 1) / 2


@case
def memory_that_is_freed_is_not_used_before_the_call_has_ended(rank: int, size: int) -> None:
    for _ in range(5):
        sleep()
        works, futures = [], []
        for _ in range(4):
            x = torch.full((2_000_000,), rank + 1.0, device=DEVICE)
            work = dist.all_reduce(x, async_op=True)
            futures.append(work.get_future().then(lambda done: done.value()[0].sum(dtype=torch.float64)))
            works.append(work)
            del x, work
            torch.full((2_000_000,), -100.0, device=DEVICE)  # reuses the memory, if it is free
        del works
        for future in futures:
            assert future.wait().item() == 2_000_000 * size * (size + 1) / 2


@case
def callbacks_run_on_streams_that_wait_for_the_result(rank: int, size: int) -> None:
    outcomes = []
    for count in (5, 2_000_003):
        sleep()
        x = torch.full((count,), rank + 1.0, device=DEVICE)
        future = dist.all_reduce(x, async_op=True).get_future()
        chained = future.then(lambda done: 2 * done.value()[0]).then(lambda done: done.value() + 1)
        outcomes.append((chained, count))
    for chained, count in outcomes:
        assert torch.equal(chained.wait(), torch.full((count,), size * (size + 1) + 1.0, device=DEVICE))


@case
def calls_for_both_devices_keep_their_order(rank: int, size: int) -> None:
    works = []
    for number in range(40):
        if number % 5 == rank:
            sleep()  # each rank is late for other calls
        x = torch.full((3 + 100_000 * (number % 3),), float(rank + number), device=DEVICE)
        y = torch.full((3,), float(rank - number))
        works.append((dist.all_reduce(x, async_op=True), x, number))
        works.append((dist.all_reduce(y, async_op=True), y, -number))
        if number % 10 == 9:
            dist.barrier()
        if number % 7 == 6:
            dist.all_reduce(y.clone())
    for work, x, number in works:
        work.wait()
        assert x.unique().tolist() == [sum(other + number for other in range(size))]
    if DEVICE == "cuda":
        dist.barrier(device_ids=[0])


@case
def a_graph_cannot_capture_calls(rank: int, size: int) -> None:
    x = torch.full((3,), 1.0, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in (lambda: dist.all_reduce(x), lambda: dist.send(x, (rank + 1) % size)):
            graph.capture_begin()
            with pytest.raises(InvalidOption, match="outside of the capture"):
                call()
            x.add_(1)
            graph.capture_end()
            graph = torch.cuda.CUDAGraph()
    torch.cuda.current_stream().wait_stream(stream)
    dist.all_reduce(x)
    assert x[0].item() == size


@case
def back_ends_for_each_device(rank: int, size: int) -> None:
    group = dist.new_group(backend="cpu:gloo,cuda:railweave")
    x, y = torch.ones(3, device=DEVICE), torch.ones(3)
    dist.all_reduce(x, group=group)
    dist.all_reduce(y, group=group)
    assert x[0].item() == y[0].item() == size
    assert sum(times.calls for times in group.overlap.times().values()) == (DEVICE == "cuda")
    dist.destroy_process_group(group)
    one = dist.new_group([rank], use_local_synchronization=True)
    x = numbers(rank, 3_000_000).to(DEVICE, copy=True)
    dist.all_reduce(x, group=one)
    same(x, numbers(rank, 3_000_000))


# ------------------------------------------------------------ the end


@case
def a_call_times_out_where_a_rank_is_late(rank: int, size: int) -> None:
    x = torch.ones(3, device=DEVICE)
    if rank == 1:
        time.sleep(1.5)
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="Timed out"):
            work.wait(timedelta(seconds=0.2))
    work.wait()
    assert x[0].item() == size


@case
def a_rank_that_is_gone_fails_calls(rank: int, size: int) -> None:
    if rank == size - 1:
        print(json.dumps({"case": "a_rank_that_is_gone_fails_calls", "error": ""}), flush=True)
        os._exit(0)
    for _ in range(2):
        x = torch.ones(3_000_000, device=DEVICE)
        work = dist.all_reduce(x, async_op=True)
        future = work.get_future()
        with pytest.raises(dist.DistBackendError, match=f"rank {size - 1} is lost"):
            work.wait()
        with pytest.raises(RuntimeError, match="is lost"):  # torch wraps the callback's exception
            future.wait()
        assert isinstance(work.exception(), dist.DistBackendError)


def main(names: Sequence[str]) -> None:
    """Run cases. The last case ends the group."""
    faulthandler.dump_traceback_later(float(os.environ.get("RAILWEAVE_CASES_LIMIT_S", "200")), exit=True)
    if DEVICE == "cuda":
        torch.cuda.set_device(0)
    backend = "cuda:railweave,cpu:railweave" if int(os.environ["WORLD_SIZE"]) == 2 else "railweave"
    dist.init_process_group(backend, timeout=TIMEOUT)
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in names or CASES:
        begin = time.monotonic()
        try:
            CASES[name](rank, size)
        except Exception:
            print(json.dumps({"case": name, "error": traceback.format_exc()}), flush=True)
            os._exit(1)  # the others may wait in a call of this case
        took_s = round(time.monotonic() - begin, 2)
        print(json.dumps({"case": name, "error": "", "took_s": took_s}), flush=True)
    if rank == 0:
        print(railweave.torch.report(), file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
