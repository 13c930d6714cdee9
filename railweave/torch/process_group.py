# SPDX-License-Identifier: Apache-2.0
"""A process group of torch.distributed over a communicator, with Gloo as the fallback.

Only the operation, and the type and device of the tensors, decide which of the two runs a call. They are the
same on all ranks. CUDA tensors go through pinned memory (staging.py), and to Gloo as copies on the CPU.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial, wraps
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
from torch._subclasses.fake_tensor import FakeTensor

from railweave.errors import explain
from railweave.hosts.arrays import Array, input_array
from railweave.hosts.communicator import Communicator
from railweave.hosts.errors import InvalidOption, RailweaveError
from railweave.hosts.interfaces import interface
from railweave.hosts.options import RailSpec, options_from
from railweave.hosts.prediction import Prediction
from railweave.torch.gathering import gather, interface_among, place_of
from railweave.torch.meeting import default_spin_us, meet_in
from railweave.torch.overlap import Kind, Overlap, Timing
from railweave.torch.staging import Staging
from railweave.torch.works import Completions, Copies, Work, raise_as_torch, seconds_of

Options = Any  # of torch, such as AllreduceOptions

DEVICES = ("cpu", "cuda")
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
CPU = torch.device("cpu")
NAME = "railweave"
PLAIN = (Tensor, torch.nn.Parameter)
NO_KIND = Kind.of("barrier", "", [])  # for calls that are not timed


class _NotCarried(Exception):
    """The communicator cannot carry this call, so Gloo runs it."""


def _or_gloo(method: Any, name: str = "") -> Any:
    """Wrap a method of ProcessGroup: calls that the communicator cannot carry fall back to Gloo."""
    name = name or method.__name__

    @wraps(method)
    def call(self: ProcessGroup, *given: Any, **named: Any) -> Any:
        with suppress(_NotCarried):
            return method(self, *given, **named)
        device = self._one_device(x for x in _tensors(given) if not isinstance(x, FakeTensor))
        by_gloo = getattr(self._gloo, name)
        if device.type == "cpu":
            return by_gloo(*given, **named)
        on_cpu = [_on_cpu(each) for each in given]
        work = by_gloo(*on_cpu, **named)
        written = 0 if name == "send" else 1  # the first argument, if any
        copies = [*zip(_tensors(given[:written]), _tensors(on_cpu[:written]), strict=True)]
        return self._work([_OfGloo(work)], copies, given[0], None, self.overlap.begin(NO_KIND), device)

    return call


def _by_gloo(name: str) -> Any:
    """Return a method of ProcessGroup that always uses Gloo."""

    def method(*_: Any, **__: Any) -> Any:
        raise _NotCarried

    method.__name__ = name
    return _or_gloo(method)


class _OfGloo:
    """Gives a call of Gloo the interface of a communicator's Work."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self.done = work.is_completed
        self.source_rank = work._source_rank

    def wait(self, timeout: float | None = None) -> None:
        self._work.wait(*([] if timeout is None else [timedelta(seconds=timeout)]))


class ProcessGroup(dist.ProcessGroup):  # type: ignore[misc]  # mypy does not follow torch's types
    """A process group whose calls use the rails. `init_process_group("railweave")` makes it.

    Its methods have the arguments of torch's class. They raise DistBackendError where a communicator raises
    PeerLost, RailDown or CollectiveMismatch. That error is the cause of the DistBackendError, and the group
    cannot be used after it.
    """

    def __init__(self, given: Any, _: Any = None) -> None:
        """Join the other ranks. `given` are torch's _DistributedBackendOptions."""
        super().__init__(given.group_rank, given.group_size)
        self._joined: Communicator | None = None
        try:
            gloo, self._joined = _joined(given)
        except (RailweaveError, TimeoutError) as error:
            raise_as_torch(error)
        # Calls of Gloo use a group of torch's own class. Through this class they would hold the GIL while
        # they wait for Gloo's lock, and a thread of Gloo that has the lock may wait for the GIL: a deadlock.
        self._gloo = dist.ProcessGroup(given.group_rank, given.group_size)
        for group in (self, self._gloo):
            for device in DEVICES if torch.cuda.is_available() else ("cpu",):
                group._register_backend(torch.device(device), GLOO, gloo)
            group._set_default_backend(GLOO)
        self._completions = Completions()
        self._staging = Staging(self._joined)
        self._end = weakref.finalize(self, _end, self._joined, self._staging, self._completions)
        self.overlap = Overlap()

    # ------------------------------------------------------------ reductions

    @_or_gloo
    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Reduce each tensor in place."""
        tensors, opts = _listed(tensors), _options(AllreduceOptions, opts, "reduceOp", timeout=timeout)
        op, copies, carrier = _op(opts), Copies(), self._carrier(tensors)
        calls = [partial(carrier.all_reduce, x, op, out=x) for x in _packed(tensors, copies)]
        return self._run(opts, tensors, Kind.of("all_reduce", op, tensors), calls, copies)

    @_or_gloo
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce each tensor in place."""
        self._carrier(tensors)
        _op(opts)
        return self.allreduce(tensors, opts)

    @_or_gloo
    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None) -> Any:
        """Reduce a tensor in place on the root. It does not change on the other ranks."""
        opts = _options(ReduceOptions, opts, "rootRank", reduceOp=op, timeout=timeout)
        tensors, name, copies = _listed(tensors), _op(opts), Copies()
        carrier = self._carrier(tensors)
        (x,) = _packed(tensors, copies)
        is_root = self.rank() == opts.rootRank
        call = partial(carrier.reduce, x, opts.rootRank, name, out=x if is_root else None)
        kind = Kind.of("all_reduce", name, tensors)
        return self._run(opts, tensors, kind, [call], copies if is_root else [])

    @_or_gloo
    def reduce_scatter_single(self, output: Any, given: Any, opts: Any = None) -> Any:
        """Reduce a tensor, and give each rank a shard."""
        return self._reduce_scatters([output], [given], opts)

    @_or_gloo
    def reduce_scatter_single_coalesced(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        """Reduce several tensors, and give each rank a shard of each."""
        return self._reduce_scatters(outputs, given, opts)

    @_or_gloo
    def reduce_scatter(self, outputs: Any, given: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Reduce a list of tensors, one for each rank."""
        outputs, lists = _listed(outputs), _lists(given)
        self._carrier(chain(outputs, *lists))
        _check_alike(outputs, lists)
        opts = _options(ReduceScatterOptions, opts, "reduceOp", timeout=timeout)
        return self._reduce_scatters(outputs, [torch.cat([*map(_flat, each)]) for each in lists], opts)

    def _reduce_scatters(self, outputs: Sequence[Tensor], given: Sequence[Tensor], opts: Options) -> Any:
        op, copies, carrier = _op(opts), Copies(), self._carrier([*outputs, *given])
        calls = [
            partial(carrier.reduce_scatter, _flat(x), op, out=target)
            for target, x in zip(_packed(outputs, copies), given, strict=True)
        ]
        return self._run(opts, outputs, Kind.of("reduce_scatter", op, given), calls, copies)

    # ------------------------------------------------------------ moves

    @_or_gloo
    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        """Overwrite a tensor with the root's tensor."""
        tensors, opts = _listed(tensors), _options(BroadcastOptions, opts, "rootRank", timeout=timeout)
        copies, carrier = Copies(), self._carrier(tensors)
        calls = [partial(carrier.broadcast, x, opts.rootRank) for x in _packed(tensors, copies)]
        return self._run(opts, tensors, Kind.of("broadcast", "", tensors), calls, copies)

    @_or_gloo
    def all_gather_single(self, output: Any, given: Any, opts: Any = None) -> Any:
        """Collect a tensor of each rank in one tensor."""
        return self._all_gathers([output], [given], opts)

    @_or_gloo
    def all_gather_single_coalesced(self, outputs: Any, given: Any, opts: Any = None) -> Any:
        """Collect several tensors of each rank, each in one tensor."""
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
        self._carrier(chain(given, *lists))
        _check_alike(given, lists)
        collected = [torch.empty((self.size(), *x.shape), dtype=x.dtype, device=x.device) for x in given]
        work = self._all_gathers(collected, given, opts)
        work.copies += [*zip(chain(*lists), chain(*collected), strict=True)]
        work.results = lists
        return work

    def _all_gathers(self, outputs: Sequence[Tensor], given: Sequence[Tensor], opts: Options) -> Work:
        copies, carrier = Copies(), self._carrier([*outputs, *given])
        calls = [
            partial(carrier.all_gather, _flat(x), out=target)
            for target, x in zip(_packed(outputs, copies), given, strict=True)
        ]
        return self._run(opts, outputs, Kind.of("all_gather", "", outputs), calls, copies)

    # Gloo runs these calls. They are defined here to copy CUDA tensors.
    all_to_all_single = _by_gloo("all_to_all_single")
    alltoall = _by_gloo("alltoall")
    gather = _by_gloo("gather")
    recv = _by_gloo("recv")
    recv_anysource = _by_gloo("recv_anysource")
    scatter = _by_gloo("scatter")
    send = _by_gloo("send")

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""
        opts = _options(BarrierOptions, opts, "timeout")
        return self._run(opts, [], NO_KIND, [self._comm.barrier], [])

    # ------------------------------------------------------------ the rest

    @property
    def _comm(self) -> Communicator:
        if self._joined is None:
            raise dist.DistBackendError(
                explain(
                    "railweave: the process group has been destroyed",
                    "calls before its end",
                    "make a new process group",
                )
            )
        return self._joined

    def _run(
        self, opts: Options, results: Any, kind: Kind, calls: Sequence[Callable[..., Any]], copies: Copies
    ) -> Work:
        """Start calls of the communicator. Run a single synchronous call in this thread.

        If calls for CUDA tensors are queued, calls for tensors on the CPU are queued behind them.
        """
        timeout_s = seconds_of(getattr(opts, "timeout", None))
        at_once = len(calls) == 1 and timeout_s is None and not getattr(opts, "asyncOp", True)
        device = results[0].device if results else CPU
        if device.type != "cpu":
            at_once = False
        elif self._staging.busy():
            at_once, calls = False, [partial(self._staging.behind, call) for call in calls]
        timing = self.overlap.begin(kind)
        try:
            pending = [call(async_op=not at_once) for call in calls]
        except (RailweaveError, TimeoutError) as error:
            raise_as_torch(error)
        if at_once:
            timing.waited()
            pending = []
        return self._work(pending, copies, results, timeout_s, timing, device)

    def _work(
        self,
        pending: Sequence[Any],
        copies: Copies,
        results: Any,
        timeout_s: float | None,
        timing: Timing,
        device: torch.device,
    ) -> Work:
        streams = None if device.type == "cpu" else self._staging.streams(device)
        return Work(pending, copies, results, timeout_s, self._completions, timing, streams)

    # ------------------------------------------------------------ devices

    @cached_property
    def _named(self) -> dict[str, str]:
        """Return the back end that the program has named for each type of device; may be empty."""
        config = dist.distributed_c10d._world.pg_backend_config.get(self, "")
        return dict(pair.split(":") for pair in config.split(",") if pair)

    def _carrier(self, tensors: Iterable[Tensor]) -> Communicator | Staging:
        """Return the object that makes calls for such tensors. Raises _NotCarried if Gloo must make them."""
        tensors = list(tensors)
        for x in tensors:
            if type(x) not in PLAIN or x.dtype not in DTYPES or x.layout is not torch.strided:
                raise _NotCarried
        device = self._one_device(tensors)
        if self._named.get(device.type, NAME) != NAME:
            raise _NotCarried
        return self._comm if device.type == "cpu" else self._staging

    def _one_device(self, tensors: Iterable[Tensor]) -> torch.device:
        """Return the device of a call's tensors; the CPU if it has no tensors.

        Raises InvalidOption if the tensors are on several devices, or on a device that is not supported.
        """
        devices = {x.device for x in tensors} or {CPU}
        device = devices.pop()
        if devices:
            others = ", ".join(map(str, devices))
            raise InvalidOption(
                f"tensors on {device} and {others} in one call", "one device", "copy them to one device"
            )
        if device.type == "cpu":
            return device
        if device.type != "cuda":
            raise InvalidOption(
                f"a tensor on {device}", "one on the CPU or on a CUDA device", "copy it to one of these"
            )
        if (named := self._named.get("cuda", NAME)) != NAME:
            raise InvalidOption(
                f"a tensor on {device}, and init_process_group names {named} for cuda",
                "railweave for cuda, because torch drops all back ends beside railweave",
                f"name railweave for cuda, or make another group for {named}",
            )
        if torch.cuda.is_current_stream_capturing():
            raise InvalidOption(
                f"a call for a tensor on {device} while a CUDA graph is captured",
                "calls outside of captures, because a graph cannot replay what railweave does on the host",
                "make the call outside of the capture",
            )
        return device

    def plan(self, kind: Kind) -> Prediction:
        """Predict how a call of this kind would be carried now."""
        return self._comm.plan(kind.bytes, kind.collective, kind.dtype, kind.op or "sum")

    def shutdown(self) -> None:
        """Leave the group. Pending calls fail, here and on the other ranks."""
        self._end()
        self._joined = None  # torch may keep the group until the interpreter ends
        super().shutdown()

    abort = shutdown

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """Return the name of the back end."""
        return NAME


OLD_NAMES = {  # names in older versions of torch, by their new names
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
for new, old in OLD_NAMES.items():
    if not hasattr(dist.ProcessGroup, new):
        setattr(ProcessGroup, old, _or_gloo(getattr(ProcessGroup, new).__wrapped__, old))


def _joined(given: Any) -> tuple[Any, Communicator]:
    """Join the other ranks: in Gloo, and at the controller or in the group's store."""
    store, rank, size = given.store, given.group_rank, given.group_size
    named = {name for name in ("CLUSTER", "CONTROLLER", "RAILS") if os.environ.get(f"RAILWEAVE_{name}")}
    controlled = not named.isdisjoint({"CLUSTER", "CONTROLLER"})
    of_world_alone = "" if given.global_ranks_in_group else None  # None: as in the environment
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
        options = replace(options, report_every_s=0.0)  # only the group of all ranks writes this file
    for rail in options.rails:
        interface(rail.interface)  # raise local errors before the other ranks wait for this rank
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
    if not os.environ.get("GLOO_SOCKET_IFNAME"):  # torch itself reads this variable
        how = dist.ProcessGroupGloo._Options()
        how._timeout = given.timeout
        how._devices = [dist.ProcessGroupGloo.create_device(interface=on_the_way)]
    return dist.ProcessGroupGloo(store, given.group_rank, given.group_size, how)


# ------------------------------------------------------------ arguments


def _options(kind: type, given: Any, field: str, **others: Any) -> Options:
    """Return options of this kind: `given` itself, or new options from single values such as `given`."""
    if hasattr(given, "asyncOp"):  # options of this or a similar kind
        return given
    made = kind()
    for name, value in {field: given, **others}.items():
        if value is not None:
            setattr(made, name, value)
    return made


def _end(comm: Communicator, staging: Staging, completions: Completions) -> None:
    """End the parts of a group, at the latest at the interpreter's end, without a reference to the group."""
    comm.close()
    staging.close()
    completions.close()


def _op(opts: Options) -> str:
    """Return the communicator's name of an operation. Raises _NotCarried if it has none."""
    op = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
    name = OPS.get(getattr(op, "op", op))
    if name is None:
        raise _NotCarried
    return name


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _lists(tensors: Any) -> list[list[Tensor]]:
    return tensors if isinstance(tensors[0], list) else [tensors]


def _tensors(given: Any) -> list[Tensor]:
    """Return the tensors in arguments, in order."""
    if isinstance(given, Tensor):
        return [given]
    return [x for each in given for x in _tensors(each)] if isinstance(given, list | tuple) else []


def _on_cpu(given: Any) -> Any:
    """Return an argument with copies of its tensors on the CPU."""
    if isinstance(given, Tensor):
        return given.detach().cpu()
    return [_on_cpu(each) for each in given] if isinstance(given, list | tuple) else given


def _check_alike(tensors: Sequence[Tensor], lists: Sequence[Sequence[Tensor]]) -> None:
    """Raise _NotCarried unless each list has tensors like its tensor: Gloo then reports the error."""
    if len(tensors) != len(lists) or any(
        (other.shape, other.dtype) != (x.shape, x.dtype)
        for x, each in zip(tensors, lists, strict=True)
        for other in each
    ):
        raise _NotCarried


def _packed(tensors: Iterable[Tensor], copies: Copies) -> list[Any]:
    """Return flat memory to write to: of each tensor, or of a contiguous copy. Add these to `copies`."""
    found = []
    for x in tensors:
        memory = x.detach()
        target = memory.contiguous()
        if target is not memory:
            copies.append((memory, target))
        found.append(_memory(target))
    return found


def _memory(x: Tensor) -> Array | Tensor:
    """Return a contiguous tensor's memory as a flat array; on a GPU, as a flat tensor."""
    if x.device.type != "cpu":
        return x.reshape(-1)
    return input_array(x) if x.dtype is torch.bfloat16 else x.reshape(-1).numpy()


def _flat(x: Tensor) -> Tensor:
    return x.detach().reshape(-1)
