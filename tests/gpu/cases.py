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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import railweave.torch
from railweave.hosts.errors import InvalidOption

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from characters import Transformer, batches

DEVICE = os.environ.get("RAILWEAVE_CASES_DEVICE", "cuda")  # or `cpu` for cases that need no stream
SLEEP = 50_000_000  # cycles of a GPU: about 30 ms
SIZES = (0, 1, 5, 70_001, 3_000_017)  # elements; the last size goes in several pieces
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.uint8)
STEPS = 8
TIMEOUT = timedelta(seconds=60)

CASES: dict[str, Callable[[int, int], None]] = {}


def case(function: Callable[[int, int], None]) -> Callable[[int, int], None]:
    CASES[function.__name__] = function
    return function


def numbers(rank: int, count: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Return random numbers of a rank, on the CPU."""
    drawn = torch.randn(count, generator=torch.Generator().manual_seed(1000 * seed + rank))
    return (drawn if dtype.is_floating_point else drawn * 50).to(dtype)


def same(found: Tensor, expected: Tensor, what: object = "") -> None:
    """Assert that two tensors have the same bits."""
    found = found.cpu().contiguous()
    assert found.dtype == expected.dtype
    if not torch.equal(found.view(torch.uint8), expected.contiguous().view(torch.uint8)):
        raise AssertionError(f"{what}: {found} is not {expected}")


@contextmanager
def raises(kind: type[Exception], text: str) -> Iterator[None]:
    """Expect an exception as pytest.raises does, without pytest."""
    try:
        yield
    except kind as error:
        if text not in str(error):
            raise
    else:
        raise AssertionError(f"no {kind.__name__} with {text!r}")


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
def reduce_scatter_all_gather_broadcast_and_reduce(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for count in SIZES:
            given = numbers(rank, size * count, dtype)
            expected, found = torch.zeros(count, dtype=dtype), torch.zeros(count, dtype=dtype, device=DEVICE)
            dist.reduce_scatter_tensor(expected, given)
            dist.reduce_scatter_tensor(found, given.to(DEVICE, copy=True))
            same(found, expected, ("reduce_scatter", dtype, count))
            wanted, everything = (torch.zeros(size * count, dtype=dtype, device=at) for at in ("cpu", DEVICE))
            dist.all_gather_into_tensor(wanted, expected)
            dist.all_gather_into_tensor(everything, found)
            same(everything, wanted, ("all_gather", dtype, count))
            for root in range(2):
                x = given.to(DEVICE, copy=True)
                dist.broadcast(x, root)
                same(x, numbers(root, size * count, dtype), ("broadcast", dtype, count, root))
                expected_sum, x = given.clone(), given.to(DEVICE, copy=True)
                dist.reduce(expected_sum, root)
                dist.reduce(x, root)
                same(x, expected_sum, ("reduce", dtype, count, root))


@case
def strided_tensors(rank: int, size: int) -> None:
    for shape in ((6, 4), (1500, 1003)):
        expected = numbers(rank, shape[0] * shape[1]).reshape(shape).t()
        found = numbers(rank, shape[0] * shape[1]).reshape(shape).to(DEVICE, copy=True).t()
        dist.all_reduce(expected)
        dist.all_reduce(found)
        same(found, expected, "all_reduce")
        columns = torch.zeros(shape[0], 2 * shape[1], device=DEVICE)
        view = columns[:, ::2]
        view.copy_(numbers(rank, view.numel()).reshape(shape))
        dist.broadcast(view, 1)
        same(view, numbers(1, view.numel()).reshape(shape), "broadcast")
        assert not columns[:, 1::2].any()
        lists = [torch.zeros(shape, device=DEVICE).t() for _ in range(size)]
        dist.all_gather(lists, numbers(rank, view.numel()).reshape(shape).to(DEVICE, copy=True).t())
        for other, x in enumerate(lists):
            same(x, numbers(other, view.numel()).reshape(shape).t(), "all_gather")
        shards = [
            numbers(rank, view.numel(), seed=place).reshape(shape).to(DEVICE, copy=True).t()
            for place in range(size)
        ]
        mine = torch.zeros(shape, device=DEVICE).t()
        dist.reduce_scatter(mine, shards, dist.ReduceOp.MAX)
        most = torch.stack([numbers(other, view.numel(), seed=rank) for other in range(size)]).max(0).values
        same(mine, most.reshape(shape).t(), "reduce_scatter")


@case
def coalesced_calls(rank: int, size: int) -> None:
    from torch.distributed.distributed_c10d import _coalescing_manager  # noqa: PLC0415

    counts = (3, 1_200_000, 0, 17)
    tensors = [numbers(rank, count).to(DEVICE, copy=True) for count in counts]
    with _coalescing_manager(async_ops=True) as manager:
        for x in tensors:
            dist.all_reduce(x)
    manager.wait()
    gathered = [torch.zeros(size * count, device=DEVICE) for count in counts]
    with _coalescing_manager(async_ops=True) as manager:
        for out, x in zip(gathered, tensors, strict=True):
            dist.all_gather_into_tensor(out, x)
    manager.wait()
    shards = [torch.zeros(count, device=DEVICE) for count in counts]
    with _coalescing_manager(async_ops=True) as manager:
        for shard, whole in zip(shards, gathered, strict=True):
            dist.reduce_scatter_tensor(shard, whole, dist.ReduceOp.MAX)
    manager.wait()
    for count, x, shard in zip(counts, tensors, shards, strict=True):
        expected = numbers(rank, count)
        dist.all_reduce(expected)
        same(x, expected)
        same(shard, expected)


@case
def what_gloo_carries(rank: int, size: int) -> None:
    x = torch.tensor([1 << rank], device=DEVICE)
    dist.all_reduce(x, dist.ReduceOp.BOR)
    assert x.item() == (1 << size) - 1
    flags = [torch.zeros(3, dtype=torch.bool, device=DEVICE) for _ in range(size)]
    dist.all_gather(flags, torch.tensor([True, False, rank == 1], device=DEVICE))
    assert [flag.tolist() for flag in flags] == [[True, False, other == 1] for other in range(size)]
    z = torch.full((5,), 1j * rank, device=DEVICE)
    dist.all_reduce(z)
    assert z[0].item() == 1j * sum(range(size))
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
    swapped = torch.zeros(size * 2, device=DEVICE)
    dist.all_to_all_single(swapped, torch.arange(2 * size, device=DEVICE) + 100.0 * rank)
    assert swapped.tolist() == [100.0 * other + 2 * rank + k for other in range(size) for k in range(2)]
    collected = [torch.zeros(2, device=DEVICE) for _ in range(size)] if rank == 1 else None
    dist.gather(torch.full((2,), float(rank), device=DEVICE), collected, dst=1)
    assert collected is None or [each[1].item() for each in collected] == list(range(size))
    mine = torch.zeros(2, device=DEVICE)
    dist.scatter(
        mine, [torch.full((2,), 7.0 + k, device=DEVICE) for k in range(size)] if rank == 0 else None, src=0
    )
    assert mine[0].item() == 7.0 + rank
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": other} for other in range(size)]


@case
def functional_collectives(rank: int, size: int) -> None:
    import torch.distributed._functional_collectives as functional  # noqa: PLC0415

    x = numbers(rank, 100_000).to(DEVICE, copy=True)
    expected = numbers(rank, 100_000)
    dist.all_reduce(expected)
    same(functional.all_reduce(x, "sum", dist.group.WORLD) + 0, expected)
    whole = functional.all_gather_tensor(x, 0, dist.group.WORLD)
    same(functional.reduce_scatter_tensor(whole, "avg", 0, dist.group.WORLD) + 0, numbers(rank, 100_000))
    swapped = functional.all_to_all_single(x, None, None, dist.group.WORLD)
    same(swapped + 0, torch.cat([numbers(other, 100_000).chunk(size)[rank] for other in range(size)]))


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
            with raises(InvalidOption, "outside of the capture"):
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


# ------------------------------------------------------------ training


class Done(dist.Work):  # type: ignore[misc]
    """A call that has ended."""

    def __init__(self, results: Any) -> None:
        super().__init__()
        self._future = torch.futures.Future(devices=[torch.device(DEVICE, 0)] if DEVICE == "cuda" else None)
        self._future.set_result(results)

    def wait(self, timeout: Any = None) -> bool:
        return True

    def get_future(self) -> Any:
        return self._future


@contextmanager
def over_the_cpu() -> Iterator[None]:
    """Let calls for CUDA tensors copy the tensors to the CPU, run there, and copy the results back."""
    from railweave.torch.process_group import ProcessGroup, _on_cpu, _tensors  # noqa: PLC0415

    names = [
        "allreduce",
        "broadcast",
        "allgather",
        "_allgather_base",
        "_reduce_scatter_base",
        "all_gather_single",
        "reduce_scatter_single",
    ]

    def detour(name: str, original: Any) -> Any:
        def call(self: Any, *given: Any, **named: Any) -> Any:
            if not any(x.is_cuda for x in _tensors(given)):
                return original(self, *given, **named)
            on_cpu = [_on_cpu(each) for each in given]
            original(self, *on_cpu, **named).wait()
            for target, source in zip(_tensors(given[:1]), _tensors(on_cpu[:1]), strict=True):
                target.copy_(source)
            return Done(given[0])

        return call

    kept = {name: getattr(ProcessGroup, name) for name in names if name in vars(ProcessGroup)}
    for name, original in kept.items():
        setattr(ProcessGroup, name, detour(name, original))
    try:
        yield
    finally:
        for name, original in kept.items():
            setattr(ProcessGroup, name, original)


def trained(rank: int, parallel: Callable[[nn.Module], nn.Module], device: str) -> list[float]:
    """Return the losses of all ranks, step by step."""
    torch.manual_seed(1)
    model = parallel(Transformer().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    stream, losses = batches(rank), []
    for _ in range(STEPS):
        seen, following = (x.to(device) for x in next(stream))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(seen).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def curves(rank: int, what: str, parallel: Callable[[nn.Module], nn.Module]) -> None:
    """Train with CUDA tensors directly and over the CPU, and compare the losses."""
    torch.use_deterministic_algorithms(True)
    try:
        losses = trained(rank, parallel, DEVICE)
        with over_the_cpu():
            expected = trained(rank, parallel, DEVICE)
    finally:
        torch.use_deterministic_algorithms(False)
    if rank == 0:
        print(json.dumps({"curve": what, "cuda": losses, "through the cpu": expected}), flush=True)
    assert losses == expected
    assert losses[-1] < losses[0]


@case
def ddp_learns_as_over_the_cpu(rank: int, size: int) -> None:
    def parallel(model: nn.Module) -> nn.Module:
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)

    curves(rank, f"DDP, {size} ranks", parallel)


@case
def fsdp_learns_as_over_the_cpu(rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    mesh = init_device_mesh(DEVICE, (size,))

    def parallel(model: Any) -> nn.Module:
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model  # type: ignore[no-any-return]

    curves(rank, f"FSDP2, {size} ranks", parallel)


# ------------------------------------------------------------ the end


@case
def a_call_times_out_where_a_rank_is_late(rank: int, size: int) -> None:
    x = torch.ones(3, device=DEVICE)
    if rank == 1:
        time.sleep(1.5)
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        with raises(dist.DistBackendError, "Timed out"):
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
        with raises(dist.DistBackendError, f"rank {size - 1} is lost"):
            work.wait()
        with raises(RuntimeError, "is lost"):  # torch wraps the callback's exception
            future.wait()
        assert isinstance(work.exception(), dist.DistBackendError)


def main(names: Sequence[str]) -> None:
    """Run cases. The last case ends the group."""
    faulthandler.dump_traceback_later(float(os.environ.get("RAILWEAVE_CASES_LIMIT_S", "200")), exit=True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
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
