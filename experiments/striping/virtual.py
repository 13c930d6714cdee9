# SPDX-License-Identifier: Apache-2.0
"""Ranks that plan calls over virtual rails in virtual time, with noise and late ranks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from railweave._native.collectives import Called, Collective, DType, ReduceOp, choose_method, item_size
from railweave.hosts.capabilities import REDUCING, SHARDED
from railweave.hosts.decisions import Ledger
from railweave.hosts.limits import limit_bps
from railweave.hosts.sequence import in_pieces
from railweave.hosts.striping import Plan, Planner, StripedRail
from railweave.hosts.striping.costs import NUMBERS, numbers_of
from railweave.hosts.striping.priors import host_steps

if TYPE_CHECKING:
    from railweave._native.agent import Change
    from railweave.hosts.striping import CallKey

What = tuple[Collective, DType]
SUM: What = (Collective.ALL_REDUCE, DType.FLOAT32)


@dataclass
class VirtualRail:
    """The present real cost of a rail.

    `crowded` is the factor on the time of a part while other rails carry parts. `rested` is the factor on the
    time of a call after a call in which the rail carried nothing. `early_s` is the time between the start of
    the other ranks and the start of the last rank on the rail. The last rank is random in each call.
    """

    a_s: float
    rate: float  # bytes per second
    kind: str = "tcp"
    crowded: float = 1.0
    rested: float = 1.0
    early_s: float = 0.0

    def time_s(self, size: int, company: bool, what: What = SUM) -> float:
        """Return the time of `size` bytes of a call's tensor: a + s / b for every kind of call."""
        return (self.a_s + size / self.rate) * (self.crowded if company else 1.0)


@dataclass
class LinkRail(VirtualRail):
    """A rail on a link, whose cost follows from the messages of its algorithms.

    `a_s` is the latency of one message from host to host. `rate` is the rate of the link. `used` is the share
    of the link's limit that the rail reaches.
    """

    hosts: int = 4
    used: float = 0.9

    def time_s(self, size: int, company: bool, what: What = SUM) -> float:
        """Return the time of `size` bytes of a call's tensor."""
        (collective, dtype), rate_bps = what, int(self.rate * 8)
        volume = 1.0
        if self.kind == "ina":
            steps = 2 if collective in REDUCING else 1
            volume = NUMBERS[numbers_of(collective, dtype)]
        else:
            method = choose_method(collective, size, self.hosts, rate_bps)
            steps, volume = host_steps(collective, method, self.hosts)
        limit = self.used * limit_bps(self.kind, rate_bps, self.hosts, collective=collective) / 8
        return (steps * self.a_s + volume * size / limit) * (self.crowded if company else 1.0)


class Changed(NamedTuple):
    """A change of rails that the ranks have agreed on."""

    from_op: int
    alive: list[bool]
    reasons: list[str]


@dataclass
class Taken:
    """A user's call that has ended."""

    op_index: int
    plan: Plan
    time_s: float

    def shares(self) -> dict[int, float]:
        """Return the share of each rail that carries a part of the call."""
        total = sum(count for _, _, count in self.plan.parts)
        return {rail: count / total for rail, _, count in self.plan.parts}


class RepeatingPlanner:
    """Uses a planner as an agent does: the agent repeats calls, and asks the planner only when it must."""

    def __init__(self, planner: Planner) -> None:
        """Begin before the first call."""
        self._planner = planner
        self._call: CallKey | None = None
        self._plans: Sequence[Plan] = ()
        self._changes: Sequence[Change] = ()
        self._left = self._made = 0

    def plan(self, op_index: int, call: CallKey, changes: Sequence[Change]) -> Plan:
        """Return the plan of a call. A repeated call takes it from the plans that were made ahead."""
        if self._left > 0 and call == self._call and len(changes) == len(self._changes):
            return self._plans[self._made % len(self._plans)]
        self.settle(op_index)
        self._call, self._changes = call, tuple(changes)
        return self._planner.plan(op_index, call, changes)

    def submitted(self, op_index: int, plan: Plan) -> None:
        """Count a call."""
        if self._left > 0:
            self._left -= 1
            self._made += 1
            return
        self._planner.submitted(op_index, plan)
        if plan.survey is None and not plan.survey_after and self._call is not None:
            self._plans, self._left = self._planner.ahead(op_index + 1, self._call, self._changes)

    def settle(self, op_index: int) -> None:
        """Report the repeated calls to the planner. These calls have indices below `op_index`."""
        if self._made > 0:
            self._planner.repeated(op_index, self._plans, self._made)
        self._left = self._made = 0


@dataclass
class StripedJob:
    """All ranks of a job. They make the same calls, and their plans must be equal.

    The planner of the last rank is a RepeatingPlanner.
    """

    rails: Sequence[VirtualRail]
    ranks: int = 4
    hosts: int = 0  # number of hosts that the planners assume; 0: the number of ranks
    survey_s: float = 0.0  # time of a survey outside of the rail
    rate_bps: int = 100_000_000  # rate of every link that the planners assume
    noise: float = 0.0  # greatest relative delay of a slice on a rank
    lateness_s: float = 0.0  # greatest delay of a rank's start
    seed: int = 1
    planners: Sequence[Planner] = ()
    changes: list[Change] = field(default_factory=list)
    op_index: int = 0
    taken: list[Taken] = field(default_factory=list)
    surveys: int = 0

    def __post_init__(self) -> None:
        """Begin before the first call."""
        self.random = random.Random(self.seed)  # noqa: S311 - to be repeated, not secret
        self.now_s = 0.0
        self.carried: set[int] = set()  # rails of the last call
        self.clocks_s = [self.random.uniform(0, 1e6) for _ in range(self.ranks)]  # since each machine's start
        self.slices: list[list[tuple[int, ...]]] = [[] for _ in range(self.ranks)]  # in the form of agents
        self.inputs: dict[int, list[np.ndarray]] = {}
        if not self.planners:
            self.planners = [self.planner() for _ in range(self.ranks)]
        self._repeating = RepeatingPlanner(self.planners[-1])
        self._asked: list[Planner | RepeatingPlanner] = [*self.planners[:-1], self._repeating]
        if self.planners[0].opening:
            self._survey()

    def planner(self, **options: object) -> Planner:
        """Return a planner for one more rank."""
        striped = [
            StripedRail(f"r{place}", place, rail.kind, self.rate_bps, 0.5)
            for place, rail in enumerate(self.rails)
        ]
        return Planner(striped, self.hosts or self.ranks, Ledger(), **options)  # type: ignore[arg-type]

    def call(
        self,
        count: int,
        dtype: DType = DType.FLOAT32,
        op: ReduceOp = ReduceOp.SUM,
        collective: Collective = Collective.ALL_REDUCE,
    ) -> Taken:
        """Run one collective on all ranks to its end, and the survey that may follow."""
        self._await()
        call = (collective, dtype, op, 0, Called.AS_CARRIED, count)
        plans = [planner.plan(self.op_index, call, self.changes) for planner in self._asked]
        self._agree(plans)
        plan = plans[0]
        size = count * item_size(dtype) * ((self.hosts or self.ranks) if collective in SHARDED else 1)
        taken = Taken(self.op_index, plan, self._run(plan, size // count, (collective, dtype)))
        self.taken.append(taken)
        self._submitted(plans)
        if plan.survey_after:
            self._survey()
        return taken

    def change(self, alive: Sequence[bool], leading: Sequence[int] = (), count: int = 1 << 20) -> None:
        """Change the rails that are alive, from the next call on.

        The ranks `leading` have already planned the next call, of `count` elements. They must plan it again.
        """
        self._await()
        self._repeating.settle(self.op_index)
        call = (Collective.ALL_REDUCE, DType.FLOAT32, ReduceOp.SUM, 0, Called.AS_CARRIED, count)
        for rank in leading:
            self.planners[rank].plan(self.op_index, call, self.changes)
        reasons = ["" if each else "its cable is out" for each in alive]
        self.changes.append(cast("Change", Changed(self.op_index, list(alive), reasons)))

    def _await(self) -> None:
        for planner in self.planners:
            while (index := planner.survey_index(self.op_index)) is not None:
                planner.take_survey(index, np.max(self.inputs[index], axis=0))

    def _survey(self) -> None:
        self._await()
        self._repeating.settle(self.op_index)
        # A survey is submitted before the previous call ends. It cannot include the time of this call.
        for planner, slices in zip(self.planners, self.slices, strict=True):
            ended = [each for each in slices if each[0] < self.op_index - 1]
            planner.observe(np.array(ended, np.int64).reshape(-1, 5))
            del slices[: len(ended)]
        plans = [planner.plan_survey(self.op_index, self.changes) for planner in self.planners]
        inputs = [planner.survey_input() for planner in self.planners]
        self._agree(plans)
        self.inputs[self.op_index] = inputs
        self.surveys += 1
        self._run(plans[0], 4)
        self.now_s += self.survey_s
        self._submitted(plans)

    def _submitted(self, plans: Sequence[Plan]) -> None:
        for planner, plan in zip(self._asked, plans, strict=True):
            planner.submitted(self.op_index, plan)
        self.op_index += 1

    def _agree(self, plans: Sequence[Plan]) -> None:
        seen = [(plan.parts, plan.expected_s, plan.survey_after, plan.survey) for plan in plans]
        if seen[1:] != seen[:-1]:
            raise AssertionError(f"the ranks plan call #{self.op_index} differently: {seen}")

    def _run(self, plan: Plan, element_bytes: int, what: What = SUM) -> float:
        """Run a call on all ranks. Return its time since the last rank's start, without noise."""
        late_s = [self.random.uniform(0, self.lateness_s) for _ in range(self.ranks)]
        longest = 0.0
        before, self.carried = self.carried, {rail for rail, _, _ in plan.parts}
        parts = in_pieces(plan) if self.planners[0].reasons else plan.parts
        for rail, _, count in plan.parts:
            time_s = self.rails[rail].time_s(count * element_bytes, len(plan.parts) > 1, what)
            time_s *= 1.0 if rail in before else self.rails[rail].rested
            last = self.random.randrange(self.ranks) if self.rails[rail].early_s else -1
            for rank in range(self.ranks):
                own_s = time_s * (1 + self.random.uniform(0, self.noise))
                clock_s = self.clocks_s[rank] + self.now_s
                at_s = clock_s + late_s[rank] + self.rails[rail].early_s * (rank == last)
                left_s = clock_s + max(late_s) + own_s - at_s
                for piece in [size for r, _, size in parts if r == rail]:
                    start_ns, at_s = int(at_s * 1e9), at_s + left_s * piece / count
                    end_ns = int(at_s * 1e9)
                    self.slices[rank].append((self.op_index, rail, start_ns, end_ns, piece * element_bytes))
            longest = max(longest, time_s)
        self.now_s += max(late_s) + longest
        return longest
