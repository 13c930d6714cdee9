# SPDX-License-Identifier: Apache-2.0
"""Each rank of test_torch.py runs this program: `python torch_worker.py CHECKS STORE RANK RANKS`.

CHECKS are names of functions, separated by commas. Each check gets a new default group.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import railweave.torch
from railweave.hosts.arrays import NAMES
from railweave.hosts.errors import InvalidOption, PeerLost

DEADLINE = timedelta(seconds=60)
DTYPES = [getattr(torch, name) for name in NAMES.values()]
Tensor = torch.Tensor


def calls() -> int:
    """Return how many calls the communicator of the default group has carried."""
    group = dist.group.WORLD
    assert isinstance(group, railweave.torch.ProcessGroup)
    return sum(each.calls for each in group._comm.why())


def strided(x: Tensor) -> Tensor:
    """Return a copy that is a strided part of a larger tensor."""
    wide = torch.zeros(*x.shape, 2, dtype=x.dtype)
    wide[..., 1] = x
    return wide[..., 1]


def collectives() -> None:
    """Call every collective with every type. Every type holds the small integers, and all sums are exact."""
    n, rank = dist.get_world_size(), dist.get_rank()
    for dtype in DTYPES:
        ranks = [((torch.arange(12) + each) % 3 + 1).reshape(4, 3).to(dtype) for each in range(n)]
        mine, together, before = ranks[rank], torch.stack(ranks), calls()
        total = together.sum(0).to(dtype)
        results = {
            dist.ReduceOp.SUM: total,
            dist.ReduceOp.PRODUCT: together.prod(0).to(dtype),
            dist.ReduceOp.MIN: together.amin(0),
            dist.ReduceOp.MAX: together.amax(0),
        }
        shards = [(mine + shard).to(dtype) for shard in range(n)]
        for copy in (torch.clone, strided):
            for op, expected in results.items():
                x = copy(mine)
                dist.all_reduce(x, op)
                assert torch.equal(x, expected), (dtype, op)
            sent, reduced, scattered = copy(mine), copy(mine), copy(mine)
            gathered = [copy(mine) for _ in range(n)]
            dist.broadcast(sent, 1)
            assert torch.equal(sent, ranks[1])
            dist.reduce(reduced, 1)
            assert torch.equal(reduced, total if rank == 1 else mine)
            dist.all_gather(gathered, copy(mine))
            assert all(map(torch.equal, gathered, ranks))
            dist.reduce_scatter(scattered, shards)
            assert torch.equal(scattered, total + n * rank)
        whole, scattered = torch.empty(4 * n, 3, dtype=dtype), torch.empty_like(mine)
        dist.all_gather_into_tensor(whole, mine)
        assert torch.equal(whole, torch.cat(ranks))
        dist.reduce_scatter_tensor(scattered, torch.cat(shards))
        assert torch.equal(scattered, total + n * rank)
        assert calls() == before + 18, (dtype, calls() - before)
    average = mine.to(torch.float32)
    dist.all_reduce(average, dist.ReduceOp.AVG)
    torch.testing.assert_close(average, together.to(torch.float32).mean(0))


def devices() -> None:
    """Rails carry tensors on the CPU, unless the program names Gloo for them. Other devices are refused."""
    backends = ("cpu:railweave", "cuda:railweave,cpu:railweave", "cpu:gloo,cuda:railweave", "railweave")
    for backend in backends:
        dist.destroy_process_group()
        begin(backend, backend)
        x = torch.ones(4)
        dist.all_reduce(x)
        assert x.tolist() == [dist.get_world_size()] * 4
        assert calls() == ("cpu:gloo" not in backend)
        dist.barrier()
    with pytest.raises(InvalidOption) as raised:
        dist.all_reduce(torch.ones(3, device="meta"))
    expected = "a tensor on meta: expected one on the CPU or on a CUDA device; copy it to one of these"
    assert str(raised.value) == expected


def others() -> None:
    """Calls that only Gloo carries still work. Several groups and coalesced calls work, too."""
    n, rank, before = dist.get_world_size(), dist.get_rank(), calls()
    flags, whole = torch.full((3,), rank == 1), torch.empty(3 * n, dtype=torch.bool)
    expected = [other == 1 for other in range(n) for _ in range(3)]
    dist.all_gather_into_tensor(whole, flags)
    assert whole.tolist() == functional.all_gather_tensor(flags, 0, dist.group.WORLD).tolist() == expected
    swapped = functional.all_to_all_single(torch.full((n,), rank), None, None, dist.group.WORLD)
    assert swapped.tolist() == list(range(n))
    for _ in range(500):  # the end of a call needs the GIL, which the next call must not hold
        bits, others = torch.tensor([1 << rank]), torch.tensor([1 << rank])
        dist.all_reduce(bits, dist.ReduceOp.BOR)
        dist.all_reduce(others, dist.ReduceOp.BOR)
        assert bits.item() == others.item() == (1 << n) - 1
        del bits, others
    assert calls() == before
    found: list[Any] = [None] * n
    dist.all_gather_object(found, {"rank": rank})
    assert found[1] == {"rank": 1}
    pair = dist.new_group([0, 1])
    if rank < 2:
        x = torch.ones(2)
        dist.all_reduce(x, group=pair)
        assert x.tolist() == [2, 2]
    with dist._coalescing_manager():
        several = [torch.full((size,), 1.0) for size in (1, 10, 1000)]
        for x in several:
            dist.all_reduce(x)
    assert all(torch.all(x == n) for x in several)
    dist.all_reduce(torch.empty(0))


def futures() -> None:
    """Futures complete, also if a callback waits for another future. Their errors are raised."""
    n = dist.get_world_size()

    def again(first: Any) -> Any:
        inner = dist.all_reduce(first.value()[0], async_op=True).get_future()
        return inner.wait()[0]

    for size in (1, 9, 4000):
        future = dist.all_reduce(torch.ones(size), async_op=True).get_future().then(again)
        assert torch.all(future.wait() == n * n)
    order: list[int] = []
    several = [
        dist.all_reduce(torch.ones(5000 // place), async_op=True)
        .get_future()
        .then(lambda _, place=place: order.append(place))
        for place in range(1, 10)
    ]
    torch.futures.wait_all(several)
    assert order == list(range(1, 10))
    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.result()[0].tolist() == work.get_future().wait()[0].tolist() == [n] * 3


def reports() -> None:
    """The report has each kind of call, and the hidden part of its time."""
    x = torch.ones(1000)
    for _ in range(5):
        dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.all_reduce(x, async_op=True).get_future().wait()
    titles, reduced, sent = railweave.torch.report().splitlines()
    assert titles.split() == ["call", "bytes", "calls", "split", "time", "(ms)", "hidden"]
    assert reduced.split()[:6] == ["all_reduce", "sum", "float32", "4,000", "6", "tcp"]
    assert sent.split()[:4] == ["broadcast", "float32", "4,000", "1"]
    with pytest.raises(ValueError, match="a process group of railweave"):
        railweave.torch.report(dist.new_group(backend="gloo"))


def destroyed() -> None:
    """A group that has been destroyed says so, and a new one works."""
    old = dist.group.WORLD
    dist.destroy_process_group()
    with pytest.raises(dist.DistBackendError, match="has been destroyed"):
        old.allreduce([torch.ones(1)])
    begin("anew")
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == dist.get_world_size()


def lost() -> None:
    """Calls and futures of all other ranks name the lost rank."""
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        store.wait(["past the barrier/0", "past the barrier/2"], DEADLINE)
        os.kill(os.getpid(), signal.SIGKILL)
    store.set(f"past the barrier/{dist.get_rank()}", "1")
    futures = [dist.all_reduce(torch.ones(1), async_op=True).get_future() for _ in range(2)]
    with pytest.raises(RuntimeError, match="rank 1 is lost"):  # the first may have ended before
        torch.futures.wait_all(futures)
    with pytest.raises(dist.DistBackendError) as raised:
        dist.all_reduce(torch.ones(1))
    assert isinstance(raised.value.__cause__, PeerLost)
    assert raised.value.__cause__.rank == 1


def late() -> None:
    """A wait that times out raises an error, and can be repeated."""
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        with pytest.raises(dist.DistBackendError, match=" Timed out "):
            work.wait(timedelta(milliseconds=50))
        store.set("late", "1")
        work.wait()
    else:
        store.wait(["late"], DEADLINE)
        dist.all_reduce(torch.ones(1))


def busy(_: Any) -> int:
    """A callback that takes some time."""
    return sum(range(200_000))


def forked() -> None:
    """A forked child that exits normally does not change its parent's group."""
    before = [dist.all_reduce(torch.ones(1), async_op=True).get_future() for _ in range(3)]
    torch.futures.wait_all(before)
    child = os.fork()
    if child == 0:
        with pytest.raises(dist.DistBackendError, match="forked"):
            dist.all_reduce(torch.ones(1))
        sys.exit()
    assert select.select([os.pidfd_open(child)], [], [], DEADLINE.total_seconds())[0]
    assert os.waitpid(child, 0)[1] == 0
    for _ in range(20):
        x = torch.ones(1000)
        dist.all_reduce(x)
        assert torch.all(x == dist.get_world_size())


def crashed() -> None:
    """The ranks exit without a message, and leave their keys in the store."""
    dist.barrier()
    os._exit(0)


def callbacks_at_the_end() -> None:
    """A group may end while callbacks of its futures still have to run."""
    futures = [dist.all_reduce(torch.ones(1), async_op=True).get_future().then(busy) for _ in range(100)]
    futures[0].wait()


def callbacks_at_exit() -> None:
    """A program may exit while callbacks still have to run, without destroying the group."""
    callbacks_at_the_end()
    sys.exit()


def begin(name: str, backend: str = "railweave") -> None:
    """Create the default group, with a different file for each name."""
    dist.init_process_group(
        backend,
        init_method=f"file://{sys.argv[2]}-{name}",
        rank=int(sys.argv[3]),
        world_size=int(sys.argv[4]),
        timeout=DEADLINE,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for check in sys.argv[1].split(","):
        begin("of the next run" if check in ("crashed", "reports") else check)
        globals()[check]()
        dist.destroy_process_group()
