# SPDX-License-Identifier: Apache-2.0
"""Collectives among the ranks of a job, each striped over all of its rails."""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from collections.abc import Callable, Sequence
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

LINGER_S = 0.5  # how long a rank that closes answers peers that are not done yet

EMPTY = {Called.AS_CARRIED: Called.EMPTY, Called.REDUCE: Called.EMPTY_REDUCE}

Answer = TypeVar("Answer")


@dataclass
class _Parts:
    """What a communicator is made of and has to be ended with it, without a reference to it."""

    agent: Agent
    trees: Trees
    reporter: Reporter
    report: ReportFile | None = None
    membership: Membership | None = None
    planner: Planner | None = None
    calls: CallSequence | None = None
    server: MetricsServer | None = None


class Communicator(Collectives):
    """This rank's place in a job. Made by `railweave.init`; use it as a context manager, or close it.

    All ranks make the same calls in the same order. With two rails or more, one that fails is excluded
    until it is back: the caller sees a delay. After any other error, and when no rail is left for as long as
    `timeout_s`, the communicator is of no use any more: every pending and later call raises that error.
    """

    def __init__(self, options: Options, join: Join | None = None) -> None:
        """Open the rails, meet the other ranks through `join` (by default at the controller) and connect."""
        self.options = options
        self._join = join
        self._splits = 0
        self.rank = options.rank
        self.world_size = options.world_size
        self._agent = Agent(options.rank, options.world_size)
        self._agent.set_spin(options.spin_us / 1e6)
        self._trees = Trees(self._agent)
        self._parts = _Parts(self._agent, self._trees, Reporter(self._agent))
        self._close = weakref.finalize(self, _close, self._parts, options)
        _LIVE.add(self)
        self._refused: dict[str, Verdict] = {}
        self._ledger = Ledger()
        self._rails: list[Opening] = []
        self._health: Health | None = None
        self.metrics_address = ""  # HOST:PORT where Prometheus finds this rank, if that is wanted
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
            raise GroupRefused(
                "the controller refuses all rails: "
                + "; ".join(f"rail {name!r}: {why}" for name, why in members.refusals.items()),
                "one rail at least",
                "correct the causes, or add a tcp rail",
            )
        with_trees = {rail.spec.name: rail.index for rail in used if rail.spec.kind == "ina"}
        recovers = can_recover(self._rails, members)
        self._trees.attach(members, with_trees, options.multicast_roots, only_rail=not recovers)
        left_s = max(0.0, options.timeout_s - (time.monotonic() - start))
        missing = connect_rails(self._agent, self._rails, members, left_s)
        if recovers:
            enable_recovery(self._agent, self._rails, members, options.peer_timeout_s, missing)
            self._trees.recover(without_trees=len(used) > len(with_trees))
        else:
            self._agent.forgo_recovery()
            raise_failure(self._agent.failure())
        self._health = Health(self.rank, self._agent, self._trees, used, options.timeout_s)
        self._planner = self._parts.planner = self._plan_for(used, members)
        self._calls = CallSequence(self._agent, self._planner, self._health, options.timeout_s)
        self._parts.calls = self._calls
        self._parts.reporter.watch(self._rails, partial(shares, self._planner), self._calls.surveyed)
        self._calls.open()
        if options.report:
            self._parts.report = ReportFile(
                options.report, self.rank, self._parts.reporter, options.report_every_s
            )

    def _plan_for(self, used: Sequence[Opening], members: Members) -> Planner:
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
            [_striped(rail, shares[rail.spec.name] / total, members) for rail in used],
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
        """Return when all ranks have called it; nothing of this rank's is then under way.

        With `async_op`, return a Work at once: other calls may be under way when its `wait` returns.
        """
        work = super().barrier(async_op)
        if not async_op and self._parts.calls is not None:
            self._parts.calls.settle(LINGER_S)
        return work

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None, async_op: bool = False) -> Any:  # noqa: D102
        # Other ranks wait for this one: a call like the last one is made in few steps.
        if not async_op and (out is not None or type(x) is np.ndarray):
            result = np.empty_like(x) if out is None else out
            op_index = self._agent.again(x, op, result)
            if op_index is not None:
                if op_index >= 0:
                    self._wait(op_index, None)
                return result
        return super().all_reduce(x, op, out, async_op)

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return a new communicator of the ranks that give the same `color`; None for those that give none.

        All ranks call it, at the same place among their calls. Ranks of a color are ordered by `key`, then by
        rank. The new communicator opens connections and asks for slots of its own, under the job's name with
        `/`, the number of the split and the color behind it; close it before this one. Raises as `init` does.
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
                metrics="",  # its address is taken by this one
                costs="",  # of other numbers of ranks
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
        if count == 0:  # the other ranks may call something else: one element stands for none
            count, called = 1, EMPTY[called]
            source, target = (
                np.zeros(self.world_size if wide else 1, source.dtype)
                for wide in (collective is Collective.REDUCE_SCATTER, collective is Collective.ALL_GATHER)
            )
        dtype = DTYPES[source.dtype.char]
        if dtype is DType.BFLOAT16:  # numpy tells nobody else what that is: the native code takes its bits
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
        """Take an event of the membership; called from its thread."""
        match event:
            case MemberLost(rank, reason):
                self._agent.fail(Failure(FailureKind.PEER_LOST, rank, reason))
            case GroupPaused() | GroupMoved() | PlaneDown() | PlaneUp():
                self._trees.handle(event)
            case LeaseLost(reason):
                self._trees.lose(reason)
            case MemberLeft():
                pass  # the rails notice by themselves whether somebody is missing

    # ------------------------------------------------------------ reports

    def stats(self) -> Stats:
        """Return the rails' counts."""
        return self._parts.reporter.stats()

    def drain_records(self) -> list[Record]:
        """Return the slices that have ended since the last call, oldest first; at most the last 65,536."""
        return self._parts.reporter.drain_records()

    def why(self) -> Sequence[Decision]:
        """Return which rails carried which calls, and why others did not.

        One per rail and class of calls (collective, type, operation, size to the next power of two) that was
        called, with the count; before them, with neither class nor count, one per rail that the controller
        has refused, that has failed and is not back, or whose plane is down. `reason` is one of
        `decisions.Reason`, `detail` says it in words; of an in-network rail that is used, whether broadcasts
        and allgathers were multicast.
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
        """Return what a call of `size_bytes` (of the whole tensor) would take on each rail, and its split."""
        if not self._rails:
            raise InvalidOption(
                "a world of one has no rails", "two ranks or more", "start more ranks to plan a call"
            )
        return predict(self._planner, size_bytes, collective, dtype, op)

    def save_costs(self, path: str | Path) -> None:
        """Write what is known of the rails' costs to a JSON file, for the option `costs` of later jobs."""
        if self._rails:
            save(self._planner, Path(path))

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Leave the job. Calls that are pending fail, here and on the other ranks. Safe to repeat."""
        self._close()

    def _leave_to_parent(self) -> None:
        """Touch nothing of the parent's from now on, in a child that it has forked.

        The child has none of the parent's threads but all of its sockets. What would end them when it is
        collected is therefore kept for ever.
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
    """Stands in a forked child for what is the parent's."""

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


def _striped(rail: Opening, share: float, members: Members) -> StripedRail:
    spec = rail.spec
    made = StripedRail(spec.name, rail.index, spec.kind, spec.rate_bps, share, where=rail.where)
    if ring := members.rings.get(spec.name):  # not all ranks have a place in a tree, and all plan alike
        return replace(made, lanes=ring.lanes, members=len(ring.members))
    if sums := members.sums.get(spec.name):
        return replace(made, adds=sums.window_packets > 0)
    places = members.groups.get(spec.name, ())
    return replace(made, lanes=places[0].lanes - SEAL_LANES, trees=len(places)) if places else made


def _close(parts: _Parts, options: Options) -> None:
    """End the parts of a communicator, without a reference to it."""
    if parts.server is not None:
        parts.server.close()
    if parts.calls is not None:
        parts.calls.settle(LINGER_S)
    parts.trees.close()
    parts.agent.close(LINGER_S)
    parts.trees.join()
    if parts.membership is not None:
        parts.membership.leave()
    if parts.planner is not None and options.costs:
        save(parts.planner, Path(options.costs))
    if parts.report is not None:
        parts.report.close()


def _of_living(comm: Communicator, ask: Callable[..., Answer]) -> Callable[..., Answer | None]:
    """Return a method of a communicator that does not keep it alive; once it is gone, it returns None."""
    reference = weakref.ref(comm)

    def asked(*arguments: Any) -> Answer | None:
        alive = reference()
        return ask(alive, *arguments) if alive is not None else None

    return asked


def _decisions(comm: Communicator) -> Callable[[], Sequence[Decision]]:
    """Return `why` without keeping the communicator alive."""
    ask = _of_living(comm, Communicator.why)
    return lambda: ask() or ()
