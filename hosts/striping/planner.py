# SPDX-License-Identifier: Apache-2.0
"""Plan calls identically on all ranks, from three inputs: op index, agreed rail changes, agreed surveys.

Nothing here reads a clock, a file or the network. All inputs of a plan come through `plan` (index, call, rail
changes) and `take_survey`. Each input comes into force at an op index that all ranks share.
"""

from __future__ import annotations

import enum
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from railweave._native.agent import Call
from railweave._native.collectives import Called, Collective, DType, ReduceOp, item_size
from railweave.hosts import capabilities
from railweave.hosts.arrays import NAMES
from railweave.hosts.decisions import Ledger, Reason, Tally, Verdict, size_class
from railweave.hosts.errors import InvalidOption, RailDown
from railweave.hosts.striping import surveys
from railweave.hosts.striping.classes import CallClass
from railweave.hosts.striping.costs import DOUBT, CostKey, CostTable, numbers_of
from railweave.hosts.striping.priors import StripedRail
from railweave.hosts.striping.splits import Part, Split, fixed_split
from railweave.hosts.striping.surveys import NEVER, Agreement, Item, Lanes, Slices, Survey

if TYPE_CHECKING:
    from railweave._native.agent import Change

NO_GAIN = Verdict(Reason.THRESHOLD, "it would not make calls of this size 5 % faster")
TURN = Verdict(Reason.THRESHOLD, "calls of this size alternate between it and others, which is faster")
TRYING = Verdict(Reason.PROBING, "another way was tried, to learn what it costs")
SMALL = Verdict(Reason.THRESHOLD, "its share of so small a tensor is not worth a second rail")
DOWN = Verdict(Reason.RAIL_DOWN, "the rail has failed; the others carry its part until it is back")

PLANS = 512  # kinds of calls whose plans are cached
LAG = 6  # op indices from a survey to the first call that its result is in force for

SURVEY_CALL = Call(DType.INT32, ReduceOp.MAX, surveys.LANES)
SURVEY_KEY = CostKey("all_reduce", "int", surveys.LANES * 4)

NO_SPLIT = Split((), 0.0)

# The two integers are the root and the count of elements.
CallKey = tuple[Collective, DType, ReduceOp, int, Called, int]


class RailState(enum.StrEnum):
    """State of a rail that the ranks have agreed on."""

    UP = "up"
    DOWN = "down"
    RECOVERING = "recovering"  # back, with its earlier costs, until it is measured again


@dataclass(frozen=True)
class Plan:
    """Plan of one call. Equal calls share one Plan object until something is learned."""

    call: Call
    parts: tuple[Part, ...]
    tally: Tally
    size: int = 0  # bytes of the whole tensor
    expected_s: float = 0.0  # 0: unknown
    call_class: CallClass | None = None  # learns from this call; None if nothing is learned
    usual: Split | None = None  # of a measured call: its split without exploration
    survey: tuple[Item, ...] | None = None  # items of a survey

    @property
    def survey_after(self) -> bool:
        """Whether a survey follows this call."""
        return self.usual is not None

    @property
    def tried(self) -> bool:
        """Whether this call explores: it takes another arm than the usual one."""
        return self.usual is not None and self.usual.parts != self.parts


@dataclass
class _Entry:
    """Cached plans of one kind of calls, with the split in force."""

    key: CallKey
    size: int  # bytes of the whole tensor
    rails: tuple[StripedRail, ...]  # rails that can carry the call
    call_class: CallClass
    plans: tuple[Plan, ...] = ()  # calls alternate between them
    version: int = -1  # version of the class when the split was made
    split: Split = NO_SPLIT


class Planner:
    """Plans the calls of one communicator on one rank.

    Only one thread at a time plans calls. Other threads may read the planner's state under `lock`.
    """

    def __init__(
        self,
        rails: Sequence[StripedRail],
        world_size: int,
        ledger: Ledger,
        *,
        refused: Mapping[str, Verdict] | None = None,
        fixed: bool = False,
        deterministic: bool = False,
        costs: CostTable | None = None,
        costs_digest: str = "",
        opening: bool = False,
        note: str = "",
    ) -> None:
        """Take the rails in the agent's order.

        With `fixed`, the rails' shares apply. With `deterministic`, splits follow from `costs` or priors and
        change only with the set of rails. `costs_digest` identifies the loaded `costs`. With `opening`, the
        ranks first compare options and digests. All ranks must pass the same `opening`.
        """
        self.lock = threading.RLock()  # held while state changes, or while another thread reads state
        self.rails = tuple(rails)
        self.world_size = world_size
        self.fixed = fixed
        several = not fixed and len(rails) > 1 and world_size > 1
        self.learning = several and not deterministic
        self.opening = several and (self.learning or opening)
        self.table = costs or CostTable(rails, world_size)
        self.rail_states = {rail.index: RailState.UP for rail in rails}
        self.reasons: dict[int, str] = {}  # why rails are down
        self.note = note  # further remark on the costs, for reports
        self._ledger = ledger
        self._refused = dict(refused or {})
        self._entries: dict[CallKey, _Entry] = {}
        self._classes: dict[tuple[CostKey, tuple[int, ...]], CallClass] = {}
        self._changes_seen = 0
        self._changes: deque[Change] = deque()  # rail changes that are not in force yet
        self._next_in_force = 0  # op index at which the next input comes into force
        # Surveys count with their promised time. With a measured time, one late call would delay learning.
        promised = [self.table.prior(SURVEY_KEY, rail.index) for rail in rails]
        self._survey_s = DOUBT * min((line.time_s(SURVEY_KEY.size_class) for line in promised), default=0.0)
        self._agreement = Agreement(surveys.opening(self._options(), costs_digest) if self.opening else None)
        self._calls = 0  # submitted calls, surveys not included
        self._last_rail = -1  # first rail of the latest call
        self._counted_from = 0  # op index: earlier slices do not describe the present rails

    # ------------------------------------------------------------ calls

    def plan(self, op_index: int, call: CallKey, changes: Sequence[Change]) -> Plan:
        """Return the plan of a call of `count` elements (of one shard, where the tensor has shards).

        Indices are planned in order. A call that could not be submitted is planned again. `changes` are all
        rail changes so far. Raises UnsupportedDType if no rail can carry such calls. Raises RailDown if all
        able rails are down.
        """
        with self.lock:
            self._advance(op_index, changes)
            entry = self._entries.get(call)
            if entry is None:
                if len(self._entries) >= PLANS:
                    self._entries.clear()
                entry = self._entries[call] = self._entry(call)
                self._classes[entry.call_class.key, entry.call_class.rails] = entry.call_class
            if entry.version != entry.call_class.version:
                self._split(entry)
            plan = entry.plans[self._calls % len(entry.plans)]
            if plan.call_class is not None and plan.call_class.left <= 0:
                usual = replace(entry.split, parts=plan.parts)
                trial = plan.call_class.trial(entry.size, call[-1], usual)
                plan = replace(self._plan_of(entry, trial.parts, TRYING) if trial else plan, usual=usual)
            return plan

    def submitted(self, op_index: int, plan: Plan) -> None:
        """Count a submitted call or survey with this plan."""
        with self.lock:
            if plan.survey is not None:
                self._agreement.submitted(op_index, plan.survey, LAG)
                self._next_in_force = min(self._next_in_force, self._agreement.horizon)
            elif plan.usual is not None and plan.call_class is not None:
                plan.tally.calls += 1
                self._calls += 1
                self._last_rail = plan.parts[0][0]
                self._measure(op_index, plan, plan.call_class, plan.usual)
            else:
                self.repeated(op_index + 1, (plan,), 1)

    def ahead(self, op_index: int, call: CallKey, changes: Sequence[Change]) -> tuple[tuple[Plan, ...], int]:
        """Return the plans between which equal calls alternate from this index, and the number of such calls.

        Zero calls if the next call must be planned, for example because the latest plan did not know all
        `changes`. `repeated` counts the calls that are made.
        """
        with self.lock:
            entry = self._entries.get(call)
            news = self.reasons or len(changes) != self._changes_seen
            if entry is None or news or entry.version != entry.call_class.version:
                return (), 0
            first, learns = self._calls % len(entry.plans), entry.plans[0].call_class
            most = min(self._next_in_force - op_index, learns.left if learns is not None else NEVER)
            return entry.plans[first:] + entry.plans[:first], max(0, most)

    def repeated(self, op_index: int, plans: Sequence[Plan], calls: int) -> None:
        """Count the `calls` calls right before this index, which alternated between these plans."""
        with self.lock:
            for number, plan in enumerate(plans):
                plan.tally.calls += len(range(number, calls, len(plans)))
            last = plans[(calls - 1) % len(plans)]
            self._calls += calls
            self._last_rail = last.parts[0][0]
            if last.call_class is not None:
                last.call_class.counted(op_index - 1, calls, last.call.count)

    def _entry(self, key: CallKey) -> _Entry:
        collective, dtype, op, _, _, count = key
        size = capabilities.size_bytes(collective, count, item_size(dtype), self.world_size)
        able = self._able(collective, dtype, op)
        kind = (cost_key(collective, dtype, size), tuple(rail.index for rail in able))
        return _Entry(key, size, able, self._classes.get(kind) or CallClass(*kind, self.table))

    def _able(self, collective: Collective, dtype: DType, op: ReduceOp) -> tuple[StripedRail, ...]:
        """Return the rails that are alive and can carry such calls."""
        able = capabilities.able(self.rails, collective, dtype, op, by_share=self.fixed)
        alive = tuple(rail for rail in able if self.rail_states[rail.index] is not RailState.DOWN)
        if not alive:
            reasons = "; ".join(f"{rail.name}: {self.reasons[rail.index]}" for rail in able)
            call = capabilities.call_name(collective, dtype, op)
            raise RailDown(
                ", ".join(rail.name for rail in able), f"{reasons}; no other rail can carry {call}"
            )
        return alive

    def _split(self, entry: _Entry) -> None:
        """Update the split of an entry from the present costs."""
        count, call_class = entry.key[-1], entry.call_class
        if self.fixed:
            split = Split(fixed_split(entry.rails, count), 0.0)
        else:
            split = call_class.choose(entry.size, count, entry.split.rails)
        if split.ways != tuple(plan.parts for plan in entry.plans):
            spared = TRYING if call_class.comparing else TURN if split.turns else NO_GAIN
            entry.plans = tuple(self._plan_of(entry, parts, spared) for parts in split.ways)
        entry.split, entry.version = split, call_class.version

    def _plan_of(self, entry: _Entry, parts: tuple[Part, ...], spared: Verdict) -> Plan:
        """Return a plan with these parts, and a verdict on every rail."""
        collective, dtype, op, root, called, count = entry.key
        counts = {rail: part for rail, _, part in parts}
        verdicts = {}
        for rail in self.rails:
            if rail.index in counts:
                use = capabilities.use(rail, collective, dtype, counts[rail.index], self.world_size)
                verdicts[rail.name] = use
            elif rail not in entry.rails:
                verdicts[rail.name] = capabilities.barred(rail, collective, dtype, op) or DOWN
            elif self.fixed:
                verdicts[rail.name] = SMALL if rail.share > 0 else capabilities.NO_SHARE
            else:
                verdicts[rail.name] = spared
        names = capabilities.COLLECTIVE_NAMES[collective], NAMES[dtype], capabilities.op_name(collective, op)
        tally = self._ledger.tally(*names, entry.size, {**verdicts, **self._refused})
        key, unit, alone = entry.call_class.key, entry.size // count, len(parts) == 1
        times = [self.table.expected_s(key, rail, unit * part, alone) for rail, part in counts.items()]
        expected_s = max(times) if all(times) and not self.fixed else 0.0
        learns = entry.call_class if self.learning and len(entry.rails) > 1 else None
        call = Call(dtype, op, count, collective, root, called)
        return Plan(call, parts, tally, entry.size, expected_s, learns)

    # ------------------------------------------------------------ surveys

    def _measure(self, op_index: int, plan: Plan, call_class: CallClass, usual: Split) -> None:
        """Record a measured call, and the block before it."""
        count, size = plan.call.count, plan.size
        item = Item(op_index, -1, call_class.key, call_class.rails, size, False, self._agreement.latest)
        if (block := call_class.block()) is not None:
            first, last = block
            whole = replace(item, op_index=first, until=last, way=call_class.way)
            self._agreement.measure(whole)
            for rail, _, part in () if usual.turns else usual.parts:
                self._agreement.measure(replace(whole, rail=rail, size=size // count * part))
        for rail, _, part in plan.parts if plan.tried or block is None else ():
            alone = len(plan.parts) == 1
            self._agreement.measure(replace(item, rail=rail, size=size // count * part, alone=alone))
        tried = tuple(rail for rail, _, _ in plan.parts) if plan.tried else ()
        call_class.measured(op_index, tried, size, count, usual, self._survey_s)

    def survey_index(self, op_index: int) -> int | None:
        """Return the survey whose result must be taken before this call can be planned, if any."""
        return None if op_index < self._next_in_force else self._agreement.wanted(op_index)

    def observe(self, slices: Slices) -> None:
        """Add slices that have ended on this rank."""
        self._agreement.observe(slices)

    def survey_input(self) -> Lanes:
        """Return this rank's input of a survey that is submitted now."""
        return self._agreement.survey_input()

    def plan_survey(self, op_index: int, changes: Sequence[Change]) -> Plan:
        """Return the plan of a survey, an ordinary call on the fastest rail."""
        with self.lock:
            self._advance(op_index, changes)
            able = [rail.index for rail in self._able(Collective.ALL_REDUCE, DType.INT32, ReduceOp.MAX)]
            quickest = min(able, key=lambda rail: self.table.single_s(SURVEY_KEY, rail, 4 * surveys.LANES))
            # Of equal rails, use the rail of the latest call. So alternating rails all rest equally long.
            alike = self.table.prior(SURVEY_KEY, quickest)
            if self._last_rail in able and self.table.prior(SURVEY_KEY, self._last_rail) == alike:
                quickest = self._last_rail
            return Plan(SURVEY_CALL, ((quickest, 0, surveys.LANES),), Tally(), survey=self._agreement.asked())

    def take_survey(self, op_index: int, result: Lanes) -> None:
        """Store the result of the survey at this index."""
        self._agreement.take(op_index, result)

    # ------------------------------------------------------------ inputs that come into force

    def _advance(self, op_index: int, changes: Sequence[Change]) -> None:
        """Apply the changes and surveys that come into force up to this call, in order of their indices."""
        if op_index < self._next_in_force and len(changes) == self._changes_seen:
            return
        self._changes.extend(changes[self._changes_seen :])
        self._changes_seen = len(changes)
        while True:
            change = self._changes[0].from_op if self._changes else NEVER
            self._next_in_force = min(self._agreement.horizon, change)
            if self._next_in_force > op_index:
                return
            # At the same index, surveys come before changes. A rank that is ahead may have planned that call,
            # and so applied the survey, before it hears of the change.
            if (survey := self._agreement.pop_due(self._next_in_force)) is not None:
                self._learn(survey)
            else:
                self._change(self._changes.popleft())

    def _change(self, change: Change) -> None:
        """Mark rails as down or back. Classes start again, but the costs of rails stay."""
        for rail in self.rails:
            if not change.alive[rail.index]:
                self.rail_states[rail.index] = RailState.DOWN
                self.reasons[rail.index] = change.reasons[rail.index]
            elif self.rail_states[rail.index] is RailState.DOWN:
                self.rail_states[rail.index] = RailState.RECOVERING
                del self.reasons[rail.index]
                self.table.distrust(rail.index)
        self._counted_from = change.from_op
        self._agreement.forget()
        self._entries.clear()
        self._classes.clear()

    def _learn(self, survey: Survey) -> None:
        if survey.opens:
            self._open(survey.result or ())
        for item, time_s in self._agreement.times(survey, self._counted_from):
            if self.rail_states.get(item.rail) is RailState.RECOVERING:
                self.rail_states[item.rail] = RailState.UP
            if (call_class := self._classes.get((item.key, item.rails))) is not None:
                (call_class.compare if item.until else call_class.observe)(item, time_s)

    def _open(self, result: Sequence[int]) -> None:
        """Check that all ranks start from the same options and costs."""
        same_options, same_costs = surveys.agreed(result)
        if not same_options:
            raise InvalidOption(
                f"the ranks plan differently; this one has {self._options()}",
                "the same rails, rates, shares and costs on all ranks",
                "correct the rank that differs",
            )
        if not same_costs:
            self.table = CostTable(self.rails, self.world_size)
            self.note = "the ranks have loaded different costs: none are used"
            self._classes.clear()
            self._entries.clear()

    def _options(self) -> str:
        rails = ", ".join(
            f"{rail.name} ({rail.kind}, {rail.rate_bps} bit/s, share {rail.share:g})" for rail in self.rails
        )
        how = "fixed" if self.fixed else "learning" if self.learning else "deterministic"
        return f"{how}, rails {rails}"

    # ------------------------------------------------------------ reports

    def in_force(self, call: CallKey) -> tuple[Split, CallClass]:
        """Return the present split of such a call, and its class. Raises the errors of `plan`."""
        entry = self._entries.get(call)
        if entry is None or not entry.plans:
            self._split(entry := self._entry(call))
        return entry.split, entry.call_class


def cost_key(collective: Collective, dtype: DType, size: int) -> CostKey:
    """Return the class of a call of `size` bytes of the whole tensor."""
    return CostKey(capabilities.COLLECTIVE_NAMES[collective], numbers_of(collective, dtype), size_class(size))
