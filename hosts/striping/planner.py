# SPDX-License-Identifier: Apache-2.0
"""Plans calls alike on all ranks: from the index of the call, agreed changes of rails and agreed surveys.

Nothing here reads a clock, a file or the network. All that a plan depends on comes in through `plan` (the
index, the call, the changes of rails) and `take_survey`, and is put to use at an index that all ranks share.
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

NO_GAIN = Verdict(Reason.THRESHOLD, "it would not make calls of this size quicker by 5 %")
TURN = Verdict(Reason.THRESHOLD, "calls of this size take it and others in turn, which is quicker")
TRYING = Verdict(Reason.PROBING, "another way was tried, to learn what it costs")
SMALL = Verdict(Reason.THRESHOLD, "its share of so small a tensor is not worth a second rail")
DOWN = Verdict(Reason.RAIL_DOWN, "the rail has failed; the others carry its part until it is back")

PLANS = 512  # kinds of calls whose plans are remembered
LAG = 6  # calls from a survey to the first one that its result is in force for

SURVEY_CALL = Call(DType.INT32, ReduceOp.MAX, surveys.LANES)
SURVEY_KEY = CostKey("all_reduce", "int", surveys.LANES * 4)

NO_SPLIT = Split((), 0.0)

# The numbers are the root and the count of elements.
CallKey = tuple[Collective, DType, ReduceOp, int, Called, int]


class RailState(enum.StrEnum):
    """A rail as the ranks have agreed."""

    UP = "up"
    DOWN = "down"
    RECOVERING = "recovering"  # back, with the costs of before: until it has been measured anew


@dataclass(frozen=True)
class Plan:
    """How one call goes. Plans of equal calls are the same object while nothing is learnt."""

    call: Call
    parts: tuple[Part, ...]
    tally: Tally
    size: int = 0  # bytes of the whole tensor
    expected_s: float = 0.0  # 0: nothing is known
    call_class: CallClass | None = None  # which learns
    usual: Split | None = None  # of a call that is measured: what it takes if nothing is tried
    survey: tuple[Item, ...] | None = None  # what a survey asks for

    @property
    def survey_after(self) -> bool:
        """Whether a survey follows this call."""
        return self.usual is not None

    @property
    def tried(self) -> bool:
        """Whether it takes another way than the usual one, to learn what that costs."""
        return self.usual is not None and self.usual.parts != self.parts


@dataclass
class _Entry:
    """One kind of calls: its plans while nothing changes, with the split in force."""

    key: CallKey
    size: int  # bytes of the whole tensor
    rails: tuple[StripedRail, ...]  # that can carry it
    call_class: CallClass
    plans: tuple[Plan, ...] = ()  # which calls follow in turn
    version: int = -1  # of the class, when the split was made
    split: Split = NO_SPLIT


class Planner:
    """Plans the calls of one communicator on one rank.

    Calls are planned by one thread at a time; what it knows may be asked for by others.
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

        With `fixed`, the rails' shares hold. With `deterministic`, splits follow from `costs` or priors and
        never change but with the rails. `costs_digest` stands for what `costs` were loaded; `opening` is for
        the ranks to compare it, and must be alike on all.
        """
        self.lock = threading.RLock()  # held while what is known changes, or is read by another thread
        self.rails = tuple(rails)
        self.world_size = world_size
        self.fixed = fixed
        several = not fixed and len(rails) > 1 and world_size > 1
        self.learning = several and not deterministic
        self.opening = several and (self.learning or opening)
        self.table = costs or CostTable(rails, world_size)
        self.rail_states = {rail.index: RailState.UP for rail in rails}
        self.reasons: dict[int, str] = {}  # why rails are down
        self.note = note  # what else is to be known of the costs
        self._ledger = ledger
        self._refused = dict(refused or {})
        self._entries: dict[CallKey, _Entry] = {}
        self._classes: dict[tuple[CostKey, tuple[int, ...]], CallClass] = {}
        self._changes_seen = 0
        self._changes: deque[Change] = deque()  # that are not in force yet
        self._next_in_force = 0  # index of the first call for which something new is in force
        # A survey's price: measured, it would let a single late call delay all that is learnt.
        promised = [self.table.prior(SURVEY_KEY, rail.index) for rail in rails]
        self._survey_s = DOUBT * min((line.time_s(SURVEY_KEY.size_class) for line in promised), default=0.0)
        self._agreement = Agreement(surveys.opening(self._options(), costs_digest) if self.opening else None)
        self._calls = 0  # that have been submitted; surveys are none
        self._last_rail = -1  # of the latest one
        self._counted_from = 0  # slices of calls before this one say nothing of the rails as they are

    # ------------------------------------------------------------ calls

    def plan(self, op_index: int, call: CallKey, changes: Sequence[Change]) -> Plan:
        """Return the plan of a call of `count` elements (of one shard, where the tensor has shards).

        Every index is planned, in order; again if it could not be submitted, perhaps with more `changes`,
        which are all there have been. UnsupportedDType if no rail can carry such calls; RailDown if those
        that can are down.
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
        """Count a call, or survey, that has been submitted by this plan."""
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
        """Return the plans that calls like this one have in turn from this index on, and for how many calls.

        For none if the next one has to be planned: also if not all these changes were known to the latest
        plan. `repeated` counts those that are made.
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
        """Count so many calls, the last before this index, that took these plans in turn."""
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
        """Return the rails that can carry such calls and are alive."""
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
        """Take the split that follows from what is known now."""
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
                verdicts[rail.name] = capabilities.barred(rail.kind, collective, dtype, op) or DOWN
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
        """Note a call that is measured, and the block before it."""
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
        """Return a survey whose result must be taken before this call can be planned, if there is one."""
        return None if op_index < self._next_in_force else self._agreement.wanted(op_index)

    def observe(self, slices: Slices) -> None:
        """Take slices that have ended on this rank."""
        self._agreement.observe(slices)

    def survey_input(self) -> Lanes:
        """Return what this rank gives to a survey that is submitted now."""
        return self._agreement.survey_input()

    def plan_survey(self, op_index: int, changes: Sequence[Change]) -> Plan:
        """Return the plan of a survey, which is a call like others. It rides the quickest rail."""
        with self.lock:
            self._advance(op_index, changes)
            able = [rail.index for rail in self._able(Collective.ALL_REDUCE, DType.INT32, ReduceOp.MAX)]
            quickest = min(able, key=lambda rail: self.table.single_s(SURVEY_KEY, rail, 4 * surveys.LANES))
            # Of rails that take turns the one that has just worked: all rest as long before a call.
            alike = self.table.prior(SURVEY_KEY, quickest)
            if self._last_rail in able and self.table.prior(SURVEY_KEY, self._last_rail) == alike:
                quickest = self._last_rail
            return Plan(SURVEY_CALL, ((quickest, 0, surveys.LANES),), Tally(), survey=self._agreement.asked())

    def take_survey(self, op_index: int, result: Lanes) -> None:
        """Take the result of the survey at this index."""
        self._agreement.take(op_index, result)

    # ------------------------------------------------------------ what comes into force

    def _advance(self, op_index: int, changes: Sequence[Change]) -> None:
        """Put to use what comes into force up to this call, in the order of its indices."""
        if op_index < self._next_in_force and len(changes) == self._changes_seen:
            return
        self._changes.extend(changes[self._changes_seen :])
        self._changes_seen = len(changes)
        while True:
            change = self._changes[0].from_op if self._changes else NEVER
            self._next_in_force = min(self._agreement.horizon, change)
            if self._next_in_force > op_index:
                return
            # Of the same index, surveys come first: a rank that leads may have planned that call, and so have
            # learnt them, before it hears of the change.
            if (survey := self._agreement.pop_due(self._next_in_force)) is not None:
                self._learn(survey)
            else:
                self._change(self._changes.popleft())

    def _change(self, change: Change) -> None:
        """Take rails out, or in again. Classes begin anew, but what rails cost is kept."""
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
        """Look whether all ranks start from the same."""
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
        """Return how such a call would go now, and its class; RailDown and UnsupportedDType as `plan`."""
        entry = self._entries.get(call)
        if entry is None or not entry.plans:
            self._split(entry := self._entry(call))
        return entry.split, entry.call_class


def cost_key(collective: Collective, dtype: DType, size: int) -> CostKey:
    """Return the class of a call of `size` bytes of the whole tensor."""
    return CostKey(capabilities.COLLECTIVE_NAMES[collective], numbers_of(collective, dtype), size_class(size))
