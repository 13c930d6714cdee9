# SPDX-License-Identifier: Apache-2.0
"""A process group of torch.distributed over a communicator, with Gloo for what that does not carry.

Which of the two runs a call follows from the operation and from type and device of its tensors alone, which
are alike on all ranks.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceOptions,
    ReduceScatterOptions,
)

from railweave.hosts.arrays import Array, input_array
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import InvalidOption, RailweaveError
from railweave.hosts.interfaces import interface
from railweave.hosts.options import RailSpec, options_from
from railweave.hosts.prediction import Prediction
from railweave.torch.gathering import gather, interface_among, place_of
from railweave.torch.meeting import default_spin_us, meet_in
from railweave.torch.overlap import Kind, Overlap
from railweave.torch.works import Completions, Copies, Work, raise_as_torch, seconds_of

Options = Any  # of torch, such as AllreduceOptions

GLOO = dist.ProcessGroup.BackendType.GLOO
OPS = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "avg",
    dist.ReduceOp.PRODUCT: "prod",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
}
DTYPES = {
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
}


class _NotCarried(Exception):
    """A call is none of the communicator's."""


def _or_gloo(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of ProcessGroup one that leaves to Gloo what the communicator does not carry."""

    @wraps(method)
    def call(self: ProcessGroup, *given: Any, **named: Any) -> Any:
        with suppress(_NotCarried):
            return method(self, *given, **named)
        return getattr(dist.ProcessGroup, method.__name__)(self, *given, **named)

    # By the name of the function that calls, pybind11 tells torch's own method from a call of this one.
    call.__code__ = call.__code__.replace(co_name=method.__name__)  # type: ignore[attr-defined]
    return call


class ProcessGroup(dist.ProcessGroup):  # type: ignore[misc]  # types of torch are not needed to check ours
    """The ranks of a process group; torch.distributed makes it.

    Calls take what the methods of torch's class take. Where a communicator raises PeerLost, RailDown or
    CollectiveMismatch they raise DistBackendError, with that as its cause; the group is then of no use.
    """

    def __init__(self, given: Any, _: Any = None) -> None:
        """Join the others; `given` are torch's _DistributedBackendOptions."""
        super().__init__(given.group_rank, given.group_size)
        self._joined: Communicator | None = None
        try:
            gloo, self._joined = _joined(given)
        except (RailweaveError, TimeoutError) as error:
            raise_as_torch(error)
        self._register_backend(torch.device("cpu"), GLOO, gloo)
        self._set_default_backend(GLOO)
        self._completions = Completions()
        self._end = weakref.finalize(self, _end, self._joined, self._completions)
        self.overlap = Overlap()

    # ------------------------------------------------------------ reductions

    @_or_gloo
    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Reduce each tensor in place."""
        tensors, opts = _listed(tensors), _options(AllreduceOptions, opts, "reduceOp", timeout=timeout)
        op, copies = _op(opts), Copies()
        calls = [partial(self._comm.all_reduce, x, op, out=x) for x in _packed(tensors, copies)]
        return self._run(opts, tensors, Kind.of("all_reduce", op, tensors), calls, copies)

    @_or_gloo
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce each tensor in place."""
        _check(tensors)
        _op(opts)
        return self.allreduce(tensors, opts)

    @_or_gloo
    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None) -> Any:
        """Reduce a tensor in place on the root; on others it stays as it is."""
        opts = _options(ReduceOptions, opts, "rootRank", reduceOp=op, timeout=timeout)
        tensors, name, copies = _listed(tensors), _op(opts), Copies()
        (x,) = _packed(tensors, copies)
        is_root = self.rank() == opts.rootRank
        call = partial(self._comm.reduce, x, opts.rootRank, name, out=x if is_root else None)
        kind = Kind.of("all_reduce", name, tensors)
        return self._run(opts, tensors, kind, [call], copies if is_root else [])

    @_or_gloo
    def reduce_scatter_single(self, output: Any, given: Any, opts: Any = None) -> Any:
        """Reduce a tensor of which each rank gets a shard."""
        return self._reduce_scatters([output], [given], opts)

    @_or_gloo
    def reduce_scatter_single_coalesced(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        """Reduce several tensors of which each rank gets a shard each."""
        return self._reduce_scatters(outputs, given, opts)

    @_or_gloo
    def reduce_scatter(self, outputs: Any, given: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Reduce a list of tensors, one for each rank."""
        outputs, lists = _listed(outputs), _lists(given)
        _check_alike(outputs, lists)
        opts = _options(ReduceScatterOptions, opts, "reduceOp", timeout=timeout)
        return self._reduce_scatters(outputs, [torch.cat([*map(_flat, each)]) for each in lists], opts)

    def _reduce_scatters(self, outputs: Sequence[Tensor], given: Sequence[Tensor], opts: Options) -> Any:
        _check(given)
        op, copies = _op(opts), Copies()
        calls = [
            partial(self._comm.reduce_scatter, _flat(x), op, out=target)
            for target, x in zip(_packed(outputs, copies), given, strict=True)
        ]
        return self._run(opts, outputs, Kind.of("reduce_scatter", op, given), calls, copies)

    # ------------------------------------------------------------ moves

    @_or_gloo
    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Overwrite a tensor with the root's."""
        tensors, opts = _listed(tensors), _options(BroadcastOptions, opts, "rootRank", timeout=timeout)
        copies = Copies()
        calls = [partial(self._comm.broadcast, x, opts.rootRank) for x in _packed(tensors, copies)]
        return self._run(opts, tensors, Kind.of("broadcast", "", tensors), calls, copies)

    @_or_gloo
    def all_gather_single(self, output: Any, given: Any, opts: Any = None) -> Any:
        """Collect a tensor of each rank in one."""
        return self._all_gathers([output], [given], opts)

    @_or_gloo
    def all_gather_single_coalesced(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        """Collect several tensors of each rank in one each."""
        return self._all_gathers(outputs, given, opts)

    @_or_gloo
    def allgather(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        """Collect a tensor of each rank in a list."""
        opts = _options(AllgatherOptions, opts, "timeout")
        return self._all_gathers_to_lists(_lists(outputs), _listed(given), opts)

    @_or_gloo
    def allgather_coalesced(self, lists: Any, given: Any, opts: Any = None) -> Any:
        """Collect several tensors of each rank: a list for each rank."""
        return self._all_gathers_to_lists([list(each) for each in zip(*lists, strict=True)], given, opts)

    def _all_gathers_to_lists(
        self, lists: Sequence[Sequence[Tensor]], given: Sequence[Tensor], opts: Options
    ) -> Any:
        _check_alike(given, lists)
        collected = [torch.empty((self.size(), *x.shape), dtype=x.dtype) for x in given]
        work = self._all_gathers(collected, given, opts)
        work.copies += [*zip(chain(*lists), chain(*collected), strict=True)]
        work.results = lists
        return work

    def _all_gathers(self, outputs: Sequence[Tensor], given: Sequence[Tensor], opts: Options) -> Work:
        _check(given)
        copies = Copies()
        calls = [
            partial(self._comm.all_gather, x.detach(), out=target)
            for target, x in zip(_packed(outputs, copies), given, strict=True)
        ]
        return self._run(opts, outputs, Kind.of("all_gather", "", outputs), calls, copies)

    # Names of other versions of torch.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""
        opts = _options(BarrierOptions, opts, "timeout")
        return self._run(opts, [], Kind.of("barrier", "", []), [self._comm.barrier], [])

    # ------------------------------------------------------------ the rest

    @property
    def _comm(self) -> Communicator:
        if self._joined is None:
            raise dist.DistBackendError("railweave: the process group has been destroyed")
        return self._joined

    def _run(
        self, opts: Options, results: Any, kind: Kind, calls: Sequence[Callable[..., Any]], copies: Copies
    ) -> Work:
        """Make calls of the communicator; a single one that will be waited for at once in this thread."""
        timeout_s = seconds_of(getattr(opts, "timeout", None))
        at_once = len(calls) == 1 and timeout_s is None and not getattr(opts, "asyncOp", True)
        timing = self.overlap.begin(kind)
        try:
            pending = [call(async_op=not at_once) for call in calls]
        except (RailweaveError, TimeoutError) as error:
            raise_as_torch(error)
        if at_once:
            timing.waited()
            pending = []
        return Work(pending, copies, results, timeout_s, self._completions, timing)

    def plan(self, kind: Kind) -> Prediction:
        """Return how such a call would go now."""
        return self._comm.plan(kind.bytes, kind.collective, kind.dtype, kind.op or "sum")

    def shutdown(self) -> None:
        """Leave; what is pending fails here and on the other ranks."""
        self._end()
        self._joined = None  # torch may keep the group until the interpreter ends
        super().shutdown()

    abort = shutdown

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return the name that the group was asked for by."""
        return "railweave"


def _joined(given: Any) -> tuple[Any, Communicator]:
    """Join the other ranks: in Gloo, and at the controller or else in the group's store."""
    store, rank, size = given.store, given.group_rank, given.group_size
    named = {name for name in ("CLUSTER", "CONTROLLER", "RAILS") if os.environ.get(f"RAILWEAVE_{name}")}
    controlled = not named.isdisjoint({"CLUSTER", "CONTROLLER"})
    of_world_alone = "" if given.global_ranks_in_group else None  # None: what the environment says
    options = options_from(
        rank=rank,
        world_size=size,
        rails=None if named & {"CLUSTER", "RAILS"} else [RailSpec("tcp", "tcp", "lo")],
        controller=None if controlled else "the store",
        timeout_s=given.timeout.total_seconds(),
        metrics=of_world_alone,
        costs=of_world_alone,
        spin_us=None if "RAILWEAVE_SPIN_US" in os.environ else default_spin_us(),
    )
    if given.global_ranks_in_group:
        options = replace(options, report_every_s=0.0)  # the file with latest counts is the world's
    for rail in options.rails:
        interface(rail.interface)  # what is wrong on this rank alone is said before the others count on it
    rails = options.rails if named & {"CLUSTER", "RAILS"} else ()
    job, places = gather(store, rank, size, place_of(store, rails), options.timeout_s)
    on_the_way = interface_among(places, rank)
    options = replace(options, job=job)
    if not rails:
        options = replace(options, rails=(RailSpec("tcp", "tcp", on_the_way),))
    gloo = _gloo(given, dist.PrefixStore(f"{job}/gloo", store), on_the_way)
    return gloo, Communicator(options, None if controlled else meet_in(dist.PrefixStore(job, store)))


def _gloo(given: Any, store: Any, on_the_way: str) -> Any:
    """Return Gloo's group, over an interface that the other ranks can reach."""
    how = given.timeout
    if not os.environ.get("GLOO_SOCKET_IFNAME"):  # which torch reads
        how = dist.ProcessGroupGloo._Options()
        how._timeout = given.timeout
        how._devices = [dist.ProcessGroupGloo.create_device(interface=on_the_way)]
    return dist.ProcessGroupGloo(store, given.group_rank, given.group_size, how)


# ------------------------------------------------------------ arguments


def _options(kind: type, given: Any, field: str, **others: Any) -> Options:
    """Return options of this kind: those given, or new ones from single values, of which `given` is one."""
    if hasattr(given, "asyncOp"):  # of this kind, or one alike
        return given
    made = kind()
    for name, value in {field: given, **others}.items():
        if value is not None:
            setattr(made, name, value)
    return made


def _end(comm: Communicator, completions: Completions) -> None:
    """End the parts of a group, without a reference to it; at the latest when the interpreter ends."""
    comm.close()
    completions.close()


def _op(opts: Options) -> str:
    """Return the communicator's name of an operation; _NotCarried if it has none."""
    op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    name = OPS.get(getattr(op, "op", op))
    if name is None:
        raise _NotCarried
    return name


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _lists(tensors: Any) -> list[list[Tensor]]:
    return tensors if isinstance(tensors[0], list) else [tensors]


def _check(tensors: Iterable[Tensor]) -> None:
    """Raise _NotCarried if the communicator does not take one of these. Fake ones are torch's."""
    for x in tensors:
        if type(x) not in (Tensor, torch.nn.Parameter):
            raise _NotCarried
        if x.device.type != "cpu":
            raise InvalidOption(
                f"a tensor on {x.device}: railweave carries tensors on the CPU, and torch drops every other "
                "back end that is named beside it; copy it, or use a group of another back end"
            )
        if x.dtype not in DTYPES or x.layout is not torch.strided:
            raise _NotCarried


def _check_alike(tensors: Sequence[Tensor], lists: Sequence[Sequence[Tensor]]) -> None:
    """Raise _NotCarried unless each list has tensors like its one: Gloo says what is wrong with others."""
    _check(chain(*lists))
    if len(tensors) != len(lists) or any(
        (other.shape, other.dtype) != (x.shape, x.dtype)
        for x, each in zip(tensors, lists, strict=True)
        for other in each
    ):
        raise _NotCarried


def _packed(tensors: Iterable[Tensor], copies: Copies) -> list[Array]:
    """Return flat memory to write to: of these, or of others, which are to be copied back at the end."""
    tensors = list(tensors)
    _check(tensors)
    found = []
    for x in tensors:
        memory = x.detach()
        target = memory.contiguous()
        if target is not memory:
            copies.append((memory, target))
        found.append(_memory(target))
    return found


def _memory(x: Tensor) -> Array:
    """Return a contiguous tensor's memory, flat."""
    return input_array(x) if x.dtype is torch.bfloat16 else x.reshape(-1).numpy()


def _flat(x: Tensor) -> Tensor:
    return x.detach().reshape(-1)
