# SPDX-License-Identifier: Apache-2.0
"""Collectives among the ranks of a job, each striped over all of its rails."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from railweave._native.agent import Agent, Failure, FailureKind
from railweave._native.collectives import Collective, ReduceOp
from railweave.hosts.arrays import Array
from railweave.hosts.collectives import Collectives
from railweave.hosts.decisions import Ledger, Reason, Verdict
from railweave.hosts.errors import GroupRefused, InvalidOption
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
from railweave.hosts.membership import Join, Membership, controller_join
from railweave.hosts.options import Options
from railweave.hosts.plans import planner
from railweave.hosts.rails import Opening, connect_rail, offer, open_rail
from railweave.hosts.reports import Record, Stats, rail_report
from railweave.hosts.sequence import CallSequence
from railweave.hosts.striper import FixedStriper, StripedRail, default_shares, normalised
from railweave.hosts.trees import Trees
from railweave.hosts.work import Done, Work

if TYPE_CHECKING:
    from railweave.hosts.metrics import MetricsServer

LINGER_S = 0.5  # how long a rank that closes answers peers that are not done yet


class Communicator(Collectives):
    """This rank's place in a job. Made by `railweave.init`; use it as a context manager, or close it.

    All ranks make the same calls in the same order. After an error of a rail or a rank the communicator is of
    no use any more: every pending and later call raises that error.
    """

    def __init__(self, options: Options, join: Join | None = None) -> None:
        """Open the rails, meet the other ranks through `join` (by default at the controller) and connect."""
        self.options = options
        self.rank = options.rank
        self.world_size = options.world_size
        self._agent = Agent(options.rank, options.world_size)
        self._refused: dict[str, Verdict] = {}
        self._ledger = Ledger()
        self._rails: list[Opening] = []
        self._shares: Mapping[str, float] = {}
        self._membership: Membership | None = None
        self._trees = Trees(self._agent)
        held: list[Membership] = []
        servers: list[MetricsServer] = []
        self._close = weakref.finalize(self, _close, self._agent, self._trees, held, servers)
        self.metrics_address = ""  # HOST:PORT where Prometheus finds this rank, if that is wanted
        try:
            if options.world_size > 1:
                self._connect(join or controller_join(), held)
            if options.metrics:
                servers.append(self._serve_metrics())
                self.metrics_address = servers[0].address
        except BaseException:
            self.close()
            raise

    def _connect(self, join: Join, held: list[Membership]) -> None:
        options = self.options
        self._rails = [open_rail(self._agent, spec, options.peer_timeout_s) for spec in options.rails]
        start = time.monotonic()
        self._membership = join(
            options.controller,
            job=options.job,
            rank=options.rank,
            size=options.world_size,
            rails=[offer(rail) for rail in self._rails],
            deadline_s=options.timeout_s,
            on_event=_handler(self),
            decisions=_decisions(self),
        )
        held.append(self._membership)
        refusals = self._membership.refusals
        self._refused = {name: Verdict(Reason.REFUSED, why) for name, why in refusals.items()}
        used = [rail for rail in self._rails if rail.spec.name not in refusals]
        if not used:
            raise GroupRefused("; ".join(f"rail {name!r}: {why}" for name, why in refusals.items()))
        with_trees = {rail.spec.name: rail.index for rail in used if rail.spec.kind == "ina"}
        self._trees.attach(self._membership, with_trees)
        for rail in used:
            left_s = max(0.0, options.timeout_s - (time.monotonic() - start))
            connect_rail(self._agent, rail, options.job, self._membership, left_s)
            raise_failure(self._agent.failure())
        self._shares = self._shares_of(used)
        striper = FixedStriper(
            [
                StripedRail(rail.spec.name, rail.index, rail.spec.kind, self._shares[rail.spec.name])
                for rail in used
            ]
        )
        self._calls = CallSequence(self._agent, planner(striper, self._ledger, self._refused))

    def _serve_metrics(self) -> MetricsServer:
        from railweave.hosts.metrics import MetricsServer, RankCollector  # noqa: PLC0415 - few ask for it

        reference = weakref.ref(self)

        def stats() -> Stats | None:
            alive = reference()
            return alive.stats() if alive is not None else None

        collector = RankCollector(self.options.job, self.rank, stats, _decisions(self))
        return MetricsServer(self.options.metrics, collector)

    def _shares_of(self, used: Sequence[Opening]) -> dict[str, float]:
        if not self.options.shares:
            rails = {rail.spec.name: (rail.spec.kind, rail.spec.rate_bps) for rail in used}
            return default_shares(rails, self.world_size)
        shares = {rail.spec.name: self.options.shares.get(rail.spec.name, 0.0) for rail in used}
        if sum(shares.values()) <= 0:
            reasons = {name: verdict.text for name, verdict in self._refused.items()}
            raise InvalidOption(f"the rails that have a share are refused: {reasons}")
        return normalised(shares)

    # ------------------------------------------------------------ calls

    def _run(
        self,
        collective: Collective,
        source: Array,
        target: Array,
        *,
        op: ReduceOp = ReduceOp.SUM,
        root: int = 0,
        count: int,
        result: Any,
        async_op: bool,
    ) -> Any:
        if self.world_size == 1 or count == 0:
            np.copyto(target, source)
            return Done(self, -1, result) if async_op else result
        op_index = self._calls.submit(
            collective, source, target, op=op, root=root, count=count, start_now=async_op
        )
        if async_op:
            return Work(self, op_index, result)
        self._wait(op_index, None)
        return result

    def _wait(self, op_index: int, timeout: float | None) -> None:
        if not self._calls.wait(op_index, self.options.timeout_s if timeout is None else timeout):
            if timeout is not None:
                raise TimeoutError(f"the call has not completed within {timeout:g} s; it goes on")
            self._calls.fail(op_index, self._overdue(op_index))
        raise_failure(self._agent.failure_of(op_index))

    def _done(self, op_index: int) -> bool:
        return self._calls.done(op_index)

    def _overdue(self, op_index: int) -> Failure:
        """Return why a call has not completed by its deadline, as far as this rank knows."""
        waited = f"rank {self.rank} has waited {self.options.timeout_s:g} s (timeout_s) for call #{op_index}"
        lagging = set(self._agent.lagging(op_index))
        names = [rail.spec.name for rail in self._rails if rail.index in lagging]
        for name in names:
            if obstacle := self._trees.obstacle(name):
                return Failure(FailureKind.RAIL_DOWN, -1, f"{obstacle}; {waited}", name)
        on = f" on {', '.join(names)}" if names else ""
        return Failure(
            FailureKind.INTERNAL, self.rank, f"{waited}{on}: a rank does not call it, or a rail has stopped"
        )

    # ------------------------------------------------------------ events

    def _handle(self, event: Event) -> None:
        """Take an event of the membership; called from its thread."""
        match event:
            case MemberLost(rank, reason):
                self._agent.fail(Failure(FailureKind.PEER_LOST, rank, reason))
            case GroupPaused() | GroupMoved() | PlaneDown() | PlaneUp():
                self._trees.handle(event)
            case LeaseLost(reason):
                for rail in self._rails:
                    if rail.spec.kind == "ina" and rail.spec.name not in self._refused:
                        self._rail_down(rail.spec.name, reason)
            case MemberLeft():
                pass  # the rails notice by themselves whether somebody is missing

    def _rail_down(self, name: str, reason: str) -> None:
        self._agent.fail(Failure(FailureKind.RAIL_DOWN, -1, reason, name))

    # ------------------------------------------------------------ reports

    def stats(self) -> Stats:
        """Return the rails' counts."""
        natives, groups = self._agent.stats(), self._agent.groups()
        return Stats(
            tuple(
                rail_report(
                    rail.spec,
                    self._shares.get(rail.spec.name, 0.0),
                    natives[rail.index],
                    groups[rail.index],
                )
                for rail in self._rails
            )
        )

    def drain_records(self) -> list[Record]:
        """Return the slices that have ended since the last call, oldest first; at most the last 65,536."""
        names = {rail.index: rail.spec.name for rail in self._rails}
        return [
            Record(
                native.op_index, names[native.rail], native.start_ns / 1e9, native.end_ns / 1e9, native.bytes
            )
            for native in self._agent.drain_records()
        ]

    def why(self) -> Sequence[Decision]:
        """Return which rails carried which calls, and why others did not.

        One per rail and class of calls (collective, type, operation, size to the next power of two) that was
        called, with the count; before them, with neither class nor count, one per rail that the controller
        has refused or whose plane is down. `reason` is one of `decisions.Reason`, `detail` says it in words.
        """
        standing = [
            Decision(name, "", "", "", 0, False, verdict.reason or "", verdict.text)
            for name, verdict in {**self._refused, **self._planes_down()}.items()
        ]
        return [*standing, *self._ledger.decisions()]

    def _planes_down(self) -> dict[str, Verdict]:
        planes = self._trees.planes_down()
        return {name: Verdict(Reason.TREE_DOWN, why) for name, why in planes.items()}

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Leave the job. Calls that are pending fail, here and on the other ranks. Safe to repeat."""
        self._close()

    def __enter__(self) -> Communicator:
        """Use as a context manager."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def _close(agent: Agent, trees: Trees, held: list[Membership], servers: list[MetricsServer]) -> None:
    """Close an agent and give up its membership, without a reference to the communicator."""
    for server in servers:
        server.close()
    trees.close()
    agent.close(LINGER_S)
    trees.join()
    for membership in held:
        membership.leave()


def _handler(comm: Communicator) -> Callable[[Event], None]:
    """Return a handler of events that does not keep the communicator alive."""
    reference = weakref.ref(comm)

    def handle(event: Event) -> None:
        alive = reference()
        if alive is not None:
            alive._handle(event)

    return handle


def _decisions(comm: Communicator) -> Callable[[], Sequence[Decision]]:
    """Return `why` without keeping the communicator alive."""
    reference = weakref.ref(comm)

    def decisions() -> Sequence[Decision]:
        alive = reference()
        return alive.why() if alive is not None else ()

    return decisions
