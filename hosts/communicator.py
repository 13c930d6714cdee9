# SPDX-License-Identifier: Apache-2.0
"""Collectives among the ranks of a job, each striped over all of its rails."""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from railweave._native.agent import Agent, Failure, FailureKind
from railweave._native.collectives import Called, Collective, DType, ReduceOp
from railweave._native.ina import SEAL_LANES
from railweave.hosts.arrays import DTYPES, Array
from railweave.hosts.collectives import Collectives, whole_number
from railweave.hosts.costs_file import planner_for, save
from railweave.hosts.decisions import Ledger, Reason, Verdict
from railweave.hosts.endpoints import Carried, Endpoints
from railweave.hosts.errors import GroupRefused, InvalidOption, JoinTimeout, RailweaveError
from railweave.hosts.events import (
    Decision,
    Event,
    GroupMoved,
    GroupPaused,
    LeaseLost,
    MemberLeft,
    MemberLost,
    PlaneDown,
    PlaneUp,
)
from railweave.hosts.failures import raise_failure
from railweave.hosts.health import Health
from railweave.hosts.membership import Join, Membership, controller_join
from railweave.hosts.options import Options
from railweave.hosts.prediction import Prediction, predict, shares
from railweave.hosts.rails import (
    Members,
    Opening,
    can_recover,
    connect_rails,
    enable_recovery,
    offer,
    open_rails,
)
from railweave.hosts.report_file import ReportFile
from railweave.hosts.reports import Record, Reporter, Stats
from railweave.hosts.sequence import CallSequence
from railweave.hosts.striping import Planner, StripedRail
from railweave.hosts.trees import Trees
from railweave.hosts.work import CompletedWork, Work

if TYPE_CHECKING:
    from railweave.metrics_server import MetricsServer

LINGER_S = 0.5  # time during which a closing rank still answers peers that have not finished

EMPTY = {Called.AS_CARRIED: Called.EMPTY, Called.REDUCE: Called.EMPTY_REDUCE}

Answer = TypeVar("Answer")


@dataclass
class _Parts:
    """The parts of a communicator that end with it. They hold no reference to the communicator."""

    agent: Agent
    trees: Trees
    endpoints: Endpoints
    reporter: Reporter
    report: ReportFile | None = None
    membership: Membership | None = None
    planner: Planner | None = None
    calls: CallSequence | None = None
    server: MetricsServer | None = None


class Communicator(Collectives):
    """Run collectives among the ranks of a job, each striped over all of the job's rails.

    `railweave.init` makes communicators. Use one as a context manager, or close it at the end.

    All ranks make the same calls in the same order. If the job has several rails and one fails, the ranks
    exclude it until it works again, and callers see only a delay. Any other error ends the communicator:
    every pending and every later call raises that error. The same holds if no rail works for `timeout_s`.

    Attributes:
        rank: Number of this process, from 0.
        world_size: Number of ranks in the job.
        options: All options of the job, with their defaults filled in.
        metrics_address: HOST:PORT of this rank's Prometheus metrics; empty without metrics.
    """

    def __init__(self, options: Options, join: Join | None = None) -> None:
        """Open the rails, join the other ranks and connect to them.

        Args:
            options: All options of this rank.
            join: Function through which the ranks meet. None: they meet at the controller.
        """
        self.options = options
        self._join = join
        self._splits = 0
        self.rank = options.rank
        self.world_size = options.world_size
        self._agent = Agent(options.rank, options.world_size)
        self._agent.set_spin(options.spin_us / 1e6)
        self._trees = Trees(self._agent)
        self._parts = _Parts(self._agent, self._trees, Endpoints(self._agent), Reporter(self._agent))
        self._close = weakref.finalize(self, _close, self._parts, options)
        _LIVE.add(self)
        self._refused: dict[str, Verdict] = {}
        self._ledger = Ledger()
        self._rails: list[Opening] = []
        self._health: Health | None = None
        self.metrics_address = ""
        try:
            if options.progress_cpus:
                self._progress_on(options.progress_cpus)
            if options.world_size > 1:
                self._connect(self._join or controller_join(options.access))
            if options.metrics:
                self._parts.server = self._serve_metrics()
                self.metrics_address = self._parts.server.address
        except BaseException:
            self.close()
            raise

    def _progress_on(self, cpus: tuple[int, ...]) -> None:
        try:
            self._agent.progress_on(cpus)
        except ValueError as error:
            raise InvalidOption(f"progress_cpus: {error}") from None

    def _connect(self, join: Join) -> None:
        options = self.options
        self._rails = open_rails(self._agent, options)
        start = time.monotonic()
        try:
            members = self._parts.membership = join(
                options.controller,
                job=options.job,
                rank=options.rank,
                size=options.world_size,
                rails=[offer(rail) for rail in self._rails],
                deadline_s=options.timeout_s,
                on_event=_of_living(self, Communicator._handle),
                decisions=_decisions(self),
            )
        except JoinTimeout as late:
            raise JoinTimeout(
                f"{late} (this rank expects {options.world_size} ranks, because {options.size_from} is "
                f"{options.world_size})"
            ) from late
        self._agent.set_secret(members.secret)
        self._refused = {name: Verdict(Reason.REFUSED, why) for name, why in members.refusals.items()}
        used = [rail for rail in self._rails if rail.spec.name not in members.refusals]
        if not used:
            causes = "; ".join(f"rail {name!r}: {why}" for name, why in members.refusals.items())
            raise GroupRefused(
                "the controller refuses all rails",
                "one rail at least",
                f"add a tcp rail, or correct the causes: {causes}",
            )
        with_trees = {rail.spec.name: rail.index for rail in used if rail.spec.kind == "ina"}
        recovers = can_recover(self._rails, members)
        self._trees.attach(members, with_trees, options.multicast_roots, only_rail=not recovers)
        carried = self._parts.endpoints.start(used, members, options.rank)
        ports = self._parts.endpoints.ports
        self._rails = [replace(rail, port=ports.get(rail.spec.name, rail.port)) for rail in self._rails]
        left_s = max(0.0, options.timeout_s - (time.monotonic() - start))
        missing = connect_rails(self._agent, self._rails, members, left_s)
        if recovers:
            enable_recovery(self._agent, self._rails, members, options.peer_timeout_s, missing)
            self._trees.recover(without_trees=len(used) > len(with_trees))
        else:
            self._agent.forgo_recovery()
            raise_failure(self._agent.failure())
        self._health = Health(self.rank, self._agent, self._trees, used, options.timeout_s)
        self._planner = self._parts.planner = self._plan_for(used, members, carried)
        self._calls = CallSequence(self._agent, self._planner, self._health, options.timeout_s)
        self._parts.calls = self._calls
        self._parts.reporter.watch(self._rails, partial(shares, self._planner), self._calls.surveyed)
        self._calls.open()
        if options.report:
            self._parts.report = ReportFile(
                options.report, self.rank, self._parts.reporter, options.report_every_s
            )

    def _plan_for(self, used: Sequence[Opening], members: Members, carried: Mapping[str, Carried]) -> Planner:
        options = self.options
        shares = {rail.spec.name: options.shares.get(rail.spec.name, 0.0) for rail in used}
        if options.shares and sum(shares.values()) <= 0:
            reasons = {name: verdict.text for name, verdict in self._refused.items()}
            raise InvalidOption(
                f"the rails that have a share are refused: {reasons}",
                "a share for one rail that is not refused",
                "give the other rails shares, or leave the shares out",
            )
        total = sum(shares.values()) or 1.0
        return planner_for(
            [_striped(rail, shares[rail.spec.name] / total, members, carried) for rail in used],
            self.world_size,
            self._ledger,
            refused=self._refused,
            fixed=bool(options.shares),
            deterministic=options.deterministic,
            costs=options.costs,
        )

    def _serve_metrics(self) -> MetricsServer:
        from railweave.hosts.metrics import RankCollector, serve  # noqa: PLC0415 - few ask for it

        stats = _of_living(self, Communicator.stats)
        collector = RankCollector(self.options.job, self.rank, stats, _decisions(self))
        return serve(self.options.metrics, collector, self.options.access)

    # ------------------------------------------------------------ calls

    def barrier(self, async_op: bool = False) -> Any:
        """Wait until all ranks have called it, and until no call of this rank is in progress.

        With `async_op`, return a Work at once. Other calls may still be in progress when its `wait` returns.
        """
        work = super().barrier(async_op)
        if not async_op and self._parts.calls is not None:
            self._parts.calls.settle(LINGER_S)
        return work

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None, async_op: bool = False) -> Any:  # noqa: D102
        # Fast path for a call like the last one: the other ranks wait for this rank.
        if not async_op and (out is not None or type(x) is np.ndarray):
            result = np.empty_like(x) if out is None else out
            op_index = self._agent.again(x, op, result)
            if op_index is not None:
                if op_index >= 0:
                    self._wait(op_index, None)
                return result
        return super().all_reduce(x, op, out, async_op)

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Split the job: return a new communicator of the ranks that give the same `color`.

        All ranks call it, at the same place among their calls. The new communicator opens its own connections
        and gets its own slots. Its job is named JOB/SPLIT.COLOR, where SPLIT counts the splits from 1. Close
        it before this communicator.

        Args:
            color: Number from 0 to 2^62 - 1 of the new communicator; None: this rank joins none.
            key: Number that orders the ranks of a color; equal keys keep the order of ranks.

        Returns:
            The new communicator, or None if `color` is None.

        Raises:
            InvalidOption: `color` or `key` is no whole number, or out of range.
            RailweaveError: The ranks of a color cannot join, with the errors of `railweave.init`.
        """
        color = None if color is None else _split_number("color", color, " or None")
        key = _split_number("key", key)
        mine = np.array([-1 if color is None else color, key], np.int64)
        given = self.all_gather(mine).reshape(self.world_size, 2).tolist()
        self._splits += 1
        if color is None:
            return None
        members = sorted((other, rank) for rank, (its, other) in enumerate(given) if its == color)
        return Communicator(
            replace(
                self.options,
                job=f"{self.options.job}/{self._splits}.{color}",
                rank=members.index((key, self.rank)),
                world_size=len(members),
                size_from="the number of ranks of this color",
                metrics="",  # this communicator uses the address
                costs="",  # learned with another number of ranks
                report_every_s=0.0,
            ),
            self._join,
        )

    def _run(
        self,
        collective: Collective,
        source: Array,
        target: Array,
        count: int,
        result: Any,
        async_op: bool,
        op: ReduceOp = ReduceOp.SUM,
        root: int = 0,
        called: Called = Called.AS_CARRIED,
    ) -> Any:
        if self.world_size == 1:
            raise_failure(self._agent.failure())
            np.copyto(target, source)
            return CompletedWork(self, -1, result) if async_op else result
        if count == 0:  # carry one element instead, so that a mismatch with other ranks is still detected
            count, called = 1, EMPTY[called]
            source, target = (
                np.zeros(self.world_size if wide else 1, source.dtype)
                for wide in (collective is Collective.REDUCE_SCATTER, collective is Collective.ALL_GATHER)
            )
        dtype = DTYPES[source.dtype.char]
        if dtype is DType.BFLOAT16:  # bfloat16 has no buffer format: pass its bits to the native code
            source, target = source.view(np.uint16), target.view(np.uint16)
        call = (collective, dtype, op, root, called, count)
        op_index = self._calls.submit(call, source, target, start_now=async_op)
        if async_op:
            return Work(self, op_index, result)
        self._calls.wait(op_index, None)
        return result

    def _wait(self, op_index: int, timeout: float | None) -> None:
        self._calls.wait(op_index, timeout)

    def _done(self, op_index: int) -> bool:
        return self._calls.done(op_index)

    # ------------------------------------------------------------ events

    def _handle(self, event: Event) -> None:
        """Handle an event of the membership. The membership's thread calls this."""
        match event:
            case MemberLost(rank, reason):
                self._agent.fail(Failure(FailureKind.PEER_LOST, rank, reason))
            case GroupPaused() | GroupMoved() | PlaneDown() | PlaneUp():
                self._trees.handle(event)
            case LeaseLost(reason):
                self._trees.lose(reason)
            case MemberLeft():
                pass  # the rails themselves detect a missing rank

    # ------------------------------------------------------------ reports

    def stats(self) -> Stats:
        """Return the counts of all rails since they were opened."""
        return self._parts.reporter.stats()

    def drain_records(self) -> list[Record]:
        """Return the slices that have ended since the last call, oldest first; at most the last 65,536.

        Each Record has the op index, the rail, the bytes, and the begin and end of one slice.
        """
        return self._parts.reporter.drain_records()

    def why(self) -> Sequence[Decision]:
        """Return which rails carried which calls, and why the others did not.

        A class of calls is a collective, a type, an operation, and a size rounded up to a power of two. The
        list has one Decision with a count for each rail and each class that was called. Before these it has
        one Decision, without class and count, for each rail that cannot be used now: the controller has
        refused it, it has failed, or its plane is down.
        """
        if self._parts.calls is not None:
            self._parts.calls.count()
        now = self._health.verdicts() if self._health is not None else {}
        standing = [
            Decision(name, "", "", "", 0, False, verdict.reason or "", verdict.text)
            for name, verdict in {**self._refused, **now}.items()
        ]
        return [*standing, *self._ledger.decisions()]

    def plan(
        self, size_bytes: int, collective: str = "all_reduce", dtype: str = "float32", op: str = "sum"
    ) -> Prediction:
        """Predict the time and the split of a call.

        Args:
            size_bytes: Bytes of the whole tensor. For all_gather and reduce_scatter these are the bytes of
                all shards.
            collective: `all_reduce`, `reduce_scatter`, `all_gather` or `broadcast`.
            dtype: Name of the data type.
            op: Operation, for collectives that reduce.

        Returns:
            The predicted time on each rail, the candidate splits and the chosen one. It prints as a table.

        Raises:
            InvalidOption: An argument is invalid, or the job has one rank and so no rails.
        """
        if not self._rails:
            raise InvalidOption(
                "a world of one has no rails", "two ranks or more", "start more ranks to plan a call"
            )
        return predict(self._planner, size_bytes, collective, dtype, op)

    def save_costs(self, path: str | Path) -> None:
        """Write the learned costs of the rails to a JSON file, for the option `costs` of later jobs.

        Costs of other kinds of job in the same file are kept. Raises InvalidOption if the file cannot be
        written, or is no file of costs.
        """
        if self._rails:
            save(self._planner, Path(path))

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Leave the job. Pending calls fail, here and on the other ranks. It is safe to call it again."""
        self._close()

    def _leave_to_parent(self) -> None:
        """Detach a forked child's copy of this communicator from the parent's sockets.

        The child has all sockets of the parent, but not its threads. Garbage collection of the parts would
        close these sockets, so the child keeps the parts for ever.
        """
        self._close.detach()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._parts))
        of_parent: Any = _OfParent(os.getppid())
        self._parts = self._agent = self._trees = of_parent
        self._calls = self._planner = self._health = of_parent

    def __enter__(self) -> Communicator:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


class _OfParent:
    """Replace the parent's parts in a forked child: every use raises an error."""

    def __init__(self, parent: int) -> None:
        self._parent = parent

    def __getattr__(self, name: str) -> Any:
        raise RailweaveError(
            f"process {os.getpid()} calls the communicator of process {self._parent}, which forked it",
            f"calls in process {self._parent} only",
            "make calls there, or let the child join a job of its own with railweave.init",
        )


def _leave_all_to_parent() -> None:
    for comm in list(_LIVE):
        comm._leave_to_parent()


_LIVE: weakref.WeakSet[Communicator] = weakref.WeakSet()
os.register_at_fork(after_in_child=_leave_all_to_parent)


def _split_number(name: str, value: int, otherwise: str = "") -> int:
    number = whole_number(name, value)
    if not 0 <= number < 1 << 62:
        raise InvalidOption(
            f"{name} is {number}", f"0 to 2^62 - 1{otherwise}", f"pass such a number as {name}"
        )
    return number


def _striped(rail: Opening, share: float, members: Members, carried: Mapping[str, Carried]) -> StripedRail:
    spec = rail.spec
    made = StripedRail(spec.name, rail.index, spec.kind, spec.rate_bps, share, where=rail.where)
    if (calls := carried.get(spec.name)) is not None:
        job = members.algorithms[spec.name]
        return replace(made, carries=calls, lanes=job.lanes, where=Path(job.algorithm).name)
    if ring := members.rings.get(spec.name):  # some ranks have no place in a tree, but all plan the same
        return replace(made, lanes=ring.lanes, members=len(ring.members))
    if sums := members.sums.get(spec.name):
        return replace(made, adds=sums.window_packets > 0)
    places = members.groups.get(spec.name, ())
    return replace(made, lanes=places[0].lanes - SEAL_LANES, trees=len(places)) if places else made


def _close(parts: _Parts, options: Options) -> None:
    """End the parts of a communicator. The communicator itself may be gone, so it is no argument."""
    if parts.server is not None:
        parts.server.close()
    if parts.calls is not None:
        parts.calls.settle(LINGER_S)
    parts.trees.close()
    parts.agent.close(LINGER_S)
    parts.trees.join()
    parts.endpoints.close()
    if parts.membership is not None:
        parts.membership.leave()
    if parts.planner is not None and options.costs:
        save(parts.planner, Path(options.costs))
    if parts.report is not None:
        parts.report.close()


def _of_living(comm: Communicator, ask: Callable[..., Answer]) -> Callable[..., Answer | None]:
    """Return a method with a weak reference to its communicator. It returns None once that is gone."""
    reference = weakref.ref(comm)

    def asked(*arguments: Any) -> Answer | None:
        alive = reference()
        return ask(alive, *arguments) if alive is not None else None

    return asked


def _decisions(comm: Communicator) -> Callable[[], Sequence[Decision]]:
    """Return `why` without keeping the communicator alive."""
    ask = _of_living(comm, Communicator.why)
    return lambda: ask() or ()
