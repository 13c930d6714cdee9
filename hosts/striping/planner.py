# SPDX-License-Identifier: Apache-2.0
"""Plans calls alike on all ranks: from the index of the call, agreed changes of rails and agreed surveys.

Nothing here reads a clock, a file or the network. All that a plan depends on comes in through `plan` (the
index, the call, the changes of rails) and `take_survey`, and is put to use at an index that all ranks share.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from railweave._native.agent import Call
from railweave._native.collectives import Collective, DType, ReduceOp, item_size
from railweave.hosts import capabilities
from railweave.hosts.arrays import NAMES
from railweave.hosts.decisions import Ledger, Tally, Verdict, size_class
from railweave.hosts.errors import InvalidOption, RailDown, UnsupportedDType
from railweave.hosts.striping import saved, surveys
from railweave.hosts.striping.agreement import NEVER, Agreement, SliceRecord, Survey
from railweave.hosts.striping.classes import SHORT_S, CallClass
from railweave.hosts.striping.filling import Part, Split
from railweave.hosts.striping.fixed import fixed_split
from railweave.hosts.striping.plan import DOWN, NO_GAIN, NO_SHARE, TRYING, TURN, Measurement, Plan, use
from railweave.hosts.striping.priors import StripedRail
from railweave.hosts.striping.states import ClassState, RailEvent, RailState, next_rail
from railweave.hosts.striping.surveys import Item, Lanes
from railweave.hosts.striping.table import CostKey, CostTable, numbers_of

PLANS = 512  # kinds of calls whose plans are remembered
LEARNING_LAG, HOT_LAG = 4, 8  # calls from a survey to the first one that its result is in force for
LARGE_BYTES = 64 << 20  # whose split `shares` reports

SURVEY_CALL = Call(DType.INT32, ReduceOp.MAX, surveys.LANES)
SURVEY_KEY = CostKey("all_reduce", "int", surveys.LANES * 4)

CallKey = tuple[Collective, DType, ReduceOp, int, int]  # the last two: root, and count of elements


class Change(Protocol):
    """Which rails are alive from a call on."""

    @property
    def from_op(self) -> int:
        """Index of the first call."""

    @property
    def alive(self) -> Sequence[bool]:
        """By the rail's index in the agent."""

    @property
    def reasons(self) -> Sequence[str]:
        """Why a rail is not alive, likewise."""


@dataclass
class _Entry:
    """One kind of calls: its plans while nothing changes, with the split in force."""

    collective: Collective
    dtype: DType
    op: ReduceOp
    count: int
    size: int  # bytes of the whole tensor
    rails: tuple[StripedRail, ...]  # that can carry it
    plans: tuple[Plan, ...]  # which calls follow in turn
    call_class: CallClass | None = None
    version: int = -1  # of the class, when the split was made
    time_s: float = 0.0
    cold: bool = True  # the split is a guess, and not in force


class Planner:
    """Plans the calls of one communicator on one rank.

    Calls are planned by one thread at a time; `shares`, `save` and `predict` may be asked by others.
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
        self.learning = not fixed and not deterministic and len(rails) > 1 and world_size > 1
        self.table = costs or CostTable(rails, world_size)
        self.opening = self.learning or (opening and not fixed and len(rails) > 1 and world_size > 1)
        self.rail_states = {rail.index: RailState.UP for rail in rails}
        self.reasons: dict[int, str] = {}  # why rails are down
        self.note = ""  # what else is to be known of the costs
        self._ledger = ledger
        self._refused = dict(refused or {})
        self._entries: dict[CallKey, _Entry] = {}
        self._classes: dict[tuple[CostKey, tuple[int, ...]], CallClass] = {}
        self._changes_seen = 0
        self._changes: deque[Change] = deque()  # that are not in force yet
        self._next_in_force = 0  # index of the first call for which something new is in force
        self._agreement = Agreement(surveys.opening(self._options(), costs_digest) if self.opening else None)
        self._lag = LEARNING_LAG
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
            if op_index >= self._next_in_force or len(changes) != self._changes_seen:
                self._advance(op_index, changes)
            entry = self._entries.get(call) or self._enter(call)
            call_class = entry.call_class
            if call_class is not None and entry.version != call_class.version:
                self._split(entry, call_class)
            plan = entry.plans[self._calls % len(entry.plans)]
            if call_class is not None and call_class.left <= 0:
                plan = self._measured(entry, call_class, plan)
            return plan.in_sequence() if self.reasons else plan

    def submitted(self, op_index: int, plan: Plan) -> None:
        """Count a call, or survey, that has been submitted by this plan."""
        plan.tally.calls += 1
        with self.lock:
            if plan.survey is None:
                self._calls += 1
                self._last_rail = plan.parts[0][0]
            if plan.quiet is not None:
                plan.quiet.left -= 1
                plan.quiet.last_quiet = op_index
            elif plan.measurement is not None:
                self._measure(op_index, plan, plan.measurement)
            elif plan.survey is not None:
                self._agreement.submitted(op_index, plan.survey, self._lag)
                self._next_in_force = min(self._next_in_force, self._agreement.horizon)

    def ahead(self, op_index: int, call: CallKey) -> tuple[tuple[Plan, ...], int]:
        """Return the plans that calls like this one have in turn from this index on, and for how many calls.

        For none if the next one has to be planned. `repeated` counts those that are made.
        """
        with self.lock:
            entry = self._entries.get(call)
            if entry is None or self.reasons:
                return (), 0
            call_class, first = entry.call_class, self._calls % len(entry.plans)
            most = self._next_in_force - op_index
            if call_class is not None:
                most = min(most, call_class.left if entry.version == call_class.version else 0)
            return entry.plans[first:] + entry.plans[:first], max(0, most)

    def repeated(self, op_index: int, plans: Sequence[Plan], calls: int) -> None:
        """Count so many calls, the last before this index, that took these plans in turn."""
        with self.lock:
            for number, plan in enumerate(plans):
                plan.tally.calls += len(range(number, calls, len(plans)))
            last = plans[(calls - 1) % len(plans)]
            self._calls += calls
            self._last_rail = last.parts[0][0]
            if last.quiet is not None:
                last.quiet.left -= calls
                last.quiet.last_quiet = op_index - 1

    def _enter(self, key: CallKey) -> _Entry:
        collective, dtype, op, root, count = key
        size = capabilities.size_bytes(collective, count, item_size(dtype), self.world_size)
        able = self._able(collective, dtype, op)
        call = Call(dtype, op, count, collective, root)
        entry = _Entry(collective, dtype, op, count, size, able, (Plan(call, (), Tally()),))
        if self.fixed:
            parts, verdicts = fixed_split(able, count, size // count)
            entry.plans = (Plan(call, parts, self._tally(entry, parts, verdicts)),)
        elif self.learning and len(able) > 1:
            entry.call_class = self._class_of(entry)
            self._split(entry, entry.call_class)
        else:
            self._split(entry, CallClass(_cost_key(entry), _indices(able), self.table))
        if len(self._entries) >= PLANS:
            self._entries.clear()
        self._entries[key] = entry
        return entry

    def _able(self, collective: Collective, dtype: DType, op: ReduceOp) -> tuple[StripedRail, ...]:
        """Return the rails that can carry such calls and are alive."""
        able = [rail for rail in self.rails if _barred(rail, collective, dtype, op) is None]
        name = capabilities.COLLECTIVE_NAMES[collective]
        call = " ".join(filter(None, (name, capabilities.op_name(collective, op), "of", NAMES[dtype])))
        if not able or (self.fixed and all(rail.share <= 0 for rail in able)):
            limits = "; ".join(
                f"{rail.name}: {NO_SHARE.text if rail in able else capabilities.limits(rail.kind)}"
                for rail in self.rails
            )
            advice = f"give rail {able[0].name} a share" if able else "add a tcp or rdma rail"
            raise UnsupportedDType(f"no rail can carry {call} ({limits}): {advice}")
        alive = tuple(rail for rail in able if self.rail_states[rail.index] is not RailState.DOWN)
        if not alive:
            reasons = "; ".join(f"{rail.name}: {self.reasons.get(rail.index, '')}" for rail in able)
            names = ", ".join(rail.name for rail in able)
            raise RailDown(names, f"{reasons}; no other rail can carry {call}")
        return alive

    def _class_of(self, entry: _Entry) -> CallClass:
        key = (_cost_key(entry), _indices(entry.rails))
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = CallClass(*key, self.table)
        return found

    def _split(self, entry: _Entry, call_class: CallClass) -> None:
        """Take the split that follows from what is known now."""
        old = tuple(plan.parts for plan in entry.plans)
        split = call_class.settle(entry.size, entry.count, () if entry.cold else old)
        entry.cold = call_class.state is ClassState.COLD
        entry.time_s, entry.version = split.time_s, call_class.version
        if split.ways != old or not entry.plans[0].expected_s:
            spared = TRYING if call_class.comparing else TURN if split.turns else NO_GAIN
            entry.plans = tuple(self._plan_of(entry, call_class, parts, spared) for parts in split.ways)

    def _plan_of(
        self, entry: _Entry, call_class: CallClass, parts: tuple[Part, ...], spared: Verdict
    ) -> Plan:
        tally = self._tally(entry, parts, _verdicts(entry, spared))
        known = all(self.table.get(call_class.key, rail) for rail, _, _ in parts)
        expected_s = entry.time_s if known else self._expected_s(entry, call_class, parts)
        return Plan(entry.plans[0].call, parts, tally, expected_s, quiet=entry.call_class)

    def _measured(self, entry: _Entry, call_class: CallClass, plan: Plan) -> Plan:
        """Return the plan of a call whose parts are measured; it may try another way."""
        usual = Split(plan.parts, entry.time_s)
        parts = call_class.trial(entry.size, entry.count, usual)
        survey_after = call_class.survey_due
        measurement = Measurement(call_class, entry.size, entry.count, usual, parts is not None)
        if parts is None:
            return replace(plan, survey_after=survey_after, quiet=None, measurement=measurement)
        tally = self._tally(entry, parts, _verdicts(entry, TRYING))
        expected_s = self._expected_s(entry, call_class, parts)
        return Plan(plan.call, parts, tally, expected_s, survey_after, measurement=measurement)

    def _expected_s(self, entry: _Entry, call_class: CallClass, parts: Sequence[Part]) -> float:
        """Return the longest that the slowest of these parts may be expected to take; 0: nothing is known."""
        element_bytes = entry.size // entry.count
        times = [
            self.table.expected_s(call_class.key, rail, count * element_bytes) for rail, _, count in parts
        ]
        return max(times) if all(times) else 0.0

    def _measure(self, op_index: int, plan: Plan, measurement: Measurement) -> None:
        """Note a call that is measured."""
        call_class = measurement.call_class
        element_bytes = measurement.size // measurement.count
        of_class = Item(
            op_index=op_index,
            rail=plan.parts[0][0],
            key=call_class.key,
            rails=call_class.rails,
            size=measurement.size,
            alone=len(plan.parts) == 1,
            survey=self._agreement.latest,
            generation=-1 if measurement.tried else call_class.generation,
        )
        block = call_class.block()
        if block is not None:
            first, last = block
            self._agreement.measure([replace(of_class, op_index=first, until=last, way=call_class.way)])
        self._agreement.measure(
            replace(of_class, rail=rail, size=count * element_bytes) for rail, _, count in plan.parts
        )
        self._lag = HOT_LAG if call_class.state is ClassState.HOT else LEARNING_LAG
        call_class.submitted(
            op_index, measurement.tried, measurement.size, measurement.count, measurement.usual
        )

    def _tally(self, entry: _Entry, parts: Sequence[Part], verdicts: Mapping[str, Verdict]) -> Tally:
        """Return the ledger's count of such calls, with a verdict on every rail."""
        counts = {rail: count for rail, _, count in parts}
        used = {
            rail.name: use(rail, entry.collective, entry.dtype, counts[rail.index], self.world_size)
            for rail in entry.rails
            if rail.index in counts
        }
        verdicts = {**verdicts, **used}
        on_all = {
            rail.name: verdicts.get(rail.name)
            or _barred(rail, entry.collective, entry.dtype, entry.op)
            or DOWN
            for rail in self.rails
        }
        return self._ledger.tally(
            capabilities.COLLECTIVE_NAMES[entry.collective],
            NAMES[entry.dtype],
            capabilities.op_name(entry.collective, entry.op),
            entry.size,
            {**on_all, **self._refused},
        )

    # ------------------------------------------------------------ surveys

    def survey_index(self, op_index: int) -> int | None:
        """Return a survey whose result must be taken before this call can be planned, if there is one."""
        return None if op_index < self._next_in_force else self._agreement.wanted(op_index)

    def observe(self, records: Iterable[SliceRecord]) -> None:
        """Take slices that have ended on this rank."""
        self._agreement.observe(records)

    def survey_input(self) -> Lanes:
        """Return what this rank gives to a survey that is submitted now."""
        return self._agreement.survey_input()

    def plan_survey(self, op_index: int, changes: Sequence[Change]) -> Plan:
        """Return the plan of a survey, which is a call like others. It rides the quickest rail."""
        with self.lock:
            return self._plan_survey(op_index, changes)

    def _plan_survey(self, op_index: int, changes: Sequence[Change]) -> Plan:
        if op_index >= self._next_in_force or len(changes) != self._changes_seen:
            self._advance(op_index, changes)
        size = SURVEY_KEY.size_class
        able = _indices(self._able(Collective.ALL_REDUCE, DType.INT32, ReduceOp.MAX))
        quickest = min(able, key=lambda rail: (self.table.single_s(SURVEY_KEY, rail, size), rail))
        # Of rails that take turns the one that has just worked: all rest as long before a call.
        if self._last_rail in able and self.table.alike(SURVEY_KEY, self._last_rail, quickest):
            quickest = self._last_rail
        parts = ((quickest, 0, surveys.LANES),)
        return Plan(SURVEY_CALL, parts, Tally(), survey=self._agreement.asked())

    def take_survey(self, op_index: int, result: Lanes) -> None:
        """Take the result of the survey at this index."""
        self._agreement.take(op_index, result)

    # ------------------------------------------------------------ what comes into force

    def _advance(self, op_index: int, changes: Sequence[Change]) -> None:
        """Put to use what comes into force up to this call, in the order of its indices."""
        self._changes.extend(changes[self._changes_seen :])
        self._changes_seen = len(changes)
        while (first := min(self._agreement.horizon, self._next_change())) <= op_index:
            # Of the same index, surveys come first: a rank that leads may have planned that call, and so have
            # learnt them, before it hears of the change.
            if (survey := self._agreement.pop_due(first)) is not None:
                self._learn(survey)
            else:
                self._change(self._changes.popleft())
        self._next_in_force = first

    def _next_change(self) -> int:
        return self._changes[0].from_op if self._changes else NEVER

    def _change(self, change: Change) -> None:
        """Take rails out, or in again. Classes begin anew, but what rails cost is kept."""
        for rail in self.rails:
            alive = change.alive[rail.index]
            before = self.rail_states[rail.index]
            event = RailEvent.RETURNED if alive else RailEvent.DIED
            self.rail_states[rail.index] = next_rail(before, event)
            if not alive:
                self.reasons[rail.index] = change.reasons[rail.index]
            elif before is RailState.DOWN:
                self.reasons.pop(rail.index, None)
                self.table.distrust(rail.index)
        self._counted_from = change.from_op
        self._agreement.forget()
        self._entries.clear()
        self._classes.clear()

    def _learn(self, survey: Survey) -> None:
        if survey.opens:
            self._open(survey.result or ())
            return
        times = self._agreement.times(survey, self._counted_from)
        for item, time_s in quickest_of_short(times):
            state = self.rail_states[item.rail]
            self.rail_states[item.rail] = next_rail(state, RailEvent.MEASURED)
            call_class = self._classes.get((item.key, item.rails))
            if call_class is None:
                continue
            if item.until:
                call_class.compare(item.way, time_s)
            else:
                call_class.observe(item, time_s)

    def _open(self, result: Sequence[int]) -> None:
        """Look whether all ranks start from the same."""
        same_options, same_costs = surveys.agreed(result)
        if not same_options:
            raise InvalidOption(
                "the ranks do not plan alike: give all of them the same rails, rates, shares and costs; "
                f"this one has {self._options()}"
            )
        if not same_costs:
            self.table.clear()
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

    def save(self, path: str | Path) -> None:
        """Write what has been learnt to a file of costs, which other kinds of jobs may share."""
        with self.lock:
            costs = saved.dump(self.table, self.rails, self.world_size)
        saved.write(Path(path), costs)

    def in_force(self, key: CallKey) -> tuple[tuple[tuple[Part, ...], ...], str | None]:
        """Return the parts that such calls take in turn, if there have been any, and their class's stage."""
        entry = self._entries.get(key)
        if entry is None:
            return (), None
        ways = tuple(plan.parts for plan in entry.plans)
        return ways, entry.call_class.stage if entry.call_class is not None else None

    def shares(self) -> dict[str, float]:
        """Return the shares of large allreduces now, by rail."""
        if self.fixed:
            return {rail.name: rail.share for rail in self.rails}
        with self.lock:
            return self._learned_shares()

    def _learned_shares(self) -> dict[str, float]:
        alive = [rail for rail in self.rails if self.rail_states[rail.index] is not RailState.DOWN]
        key = CostKey("all_reduce", "float", LARGE_BYTES)
        count = LARGE_BYTES // 4
        split = CallClass(key, _indices(alive), self.table).choose(LARGE_BYTES, count)
        carried = {rail: part for rail, _, part in split.parts}
        return {rail.name: carried.get(rail.index, 0) / count for rail in self.rails}


def quickest_of_short(times: Iterable[tuple[Item, float]]) -> list[tuple[Item, float]]:
    """Return agreed times, but of short calls that went alike only the quickest.

    The others waited for a processor, or for a rank that did.
    """
    groups: dict[object, list[tuple[Item, float]]] = {}
    for item, time_s in times:
        like = item.key, item.rails, item.rail, item.size, item.alone, item.generation, item.until
        groups.setdefault(like if time_s < SHORT_S else item, []).append((item, time_s))
    return [min(group, key=lambda each: each[1]) for group in groups.values()]


def _barred(rail: StripedRail, collective: Collective, dtype: DType, op: ReduceOp) -> Verdict | None:
    """Return why a rail takes no part in such calls of any size; None if it does."""
    reason = capabilities.obstacle(rail.kind, dtype, op, collective)
    return Verdict(reason, capabilities.limits(rail.kind)) if reason is not None else None


def _cost_key(entry: _Entry) -> CostKey:
    name = capabilities.COLLECTIVE_NAMES[entry.collective]
    return CostKey(name, numbers_of(entry.collective, entry.dtype), size_class(entry.size))


def _indices(rails: Sequence[StripedRail]) -> tuple[int, ...]:
    return tuple(rail.index for rail in rails)


def _verdicts(entry: _Entry, spared: Verdict) -> dict[str, Verdict]:
    return {rail.name: spared for rail in entry.rails}
