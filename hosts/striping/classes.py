# SPDX-License-Identifier: Apache-2.0
"""One class of calls as it is learnt: which way calls take, which one tries another, when they are measured.

Ways are each rail alone, the best split, the one over all rails, and rails of one kind and rate in turn. No
time of one short call tells which is the quickest (docs/design/striping.md says why), so blocks are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railweave.hosts.striping.costs import CLEAR, DOUBT, SAMPLES, SHORT_S, SURE, CostKey, CostTable
from railweave.hosts.striping.priors import Line
from railweave.hosts.striping.splits import ENGAGE, TURNS, Split, Way, balanced, best_split, choose
from railweave.hosts.striping.surveys import NEVER, Item

BUDGET = 0.004  # of the time of calls that each of these may take: surveys, slower calls, slower blocks


class CallClass:
    """What all calls of one class share. It exists while the set of rails stays the same."""

    def __init__(self, key: CostKey, rails: Sequence[int], table: CostTable) -> None:
        """Begin with what the table knows."""
        self.key = key
        self.rails = tuple(rails)
        self.version = 0  # changes with everything that is learnt
        self.left = 0  # calls until one is measured, which a survey follows
        self.way: Way = ()  # of this block; () where costs decide
        self.comparing = False  # whether it is there to find out what its way costs
        self.short = table.short(key)
        self._table = table
        self._surveys = 0  # the first few may follow whatever they cost
        self._calls = 0
        self._tried: dict[Way, int] = {}  # after how many calls one has tried a way
        self._tried_last = False  # the latest call that was measured has
        self._held: Way = ()  # the quickest so far, as blocks tell
        self._times: dict[Way, list[float]] = {}  # of the latest blocks
        self._varied: set[Way] = set()  # whose blocks were far from each other: all of the latest count
        self._begun: dict[Way, int] = {}  # after how many calls its latest block has begun
        self._void = 0  # blocks in a row into which other calls came
        self._found = False  # nothing has to be compared for now
        self._first = self._last = 0  # indices of the calls since the latest survey of this class
        self._count = self._quiet = self._settling = self._span = 0  # elements; calls, before a block, in it

    # ------------------------------------------------------------ what a call takes

    def choose(self, size: int, count: int, engaged: Sequence[int] = ()) -> Split:
        """Return how a call of `count` elements, `size` bytes goes; costs keep rails that are `engaged`."""
        if not self.way:
            split = best_split(self._lines(self.rails), size, count, engaged)
            return choose(self._singles(size), split, count, engaged)
        if len(self.way) > 1 and self.way[0] != TURNS:
            return self._over(self.way, size, count)
        rail = self.way[-1]
        return Split(((rail, 0, count),), self._table.single_s(self.key, rail, size), self.way[1:])

    def _singles(self, size: int, rails: Sequence[int] = ()) -> Mapping[int, float]:
        return {rail: self._table.single_s(self.key, rail, size) for rail in rails or self.rails}

    def _lines(self, rails: Sequence[int]) -> Mapping[int, Line]:
        return {rail: self._table.line(self.key, rail) for rail in sorted(rails)}

    def _over(self, rails: Way, size: int, count: int) -> Split:
        """Return the split over these rails, by what links promise where costs would leave one out."""
        split = balanced(self._lines(rails), size, count)
        prior = {rail: self._table.prior(self.key, rail) for rail in rails}
        return split if split.rails == rails else balanced(prior, size, count)

    # ------------------------------------------------------------ which call tries another way

    def trial(self, size: int, count: int, usual: Split) -> Split | None:
        """Return how this call goes if it is to try another way than the `usual` one."""
        if self._tried_last and self.block() is None:
            return None  # the usual way has to be measured, too
        due = [other for other in self._others(size, count, usual) if self._due(other, size, usual)]
        return min(due, key=lambda other: (self._tried.get(other.rails, -1), other.time_s), default=None)

    def _others(self, size: int, count: int, usual: Split) -> list[Split]:
        """Return the other ways: each rail alone, the usual ones with each further rail, and all of them."""
        sets = {self.rails, *(tuple(sorted({*usual.rails, rail})) for rail in self.rails)}
        others = [balanced(self._lines(rails), size, count) for rails in sorted(sets)]
        others += [Split(((rail, 0, count),), time_s) for rail, time_s in self._singles(size).items()]
        return list({other.rails: other for other in others if other.rails != usual.rails}.values())

    def _due(self, other: Split, size: int, usual: Split) -> bool:
        """Whether a way is tried now: at once if it may be quicker, else so seldom that it costs little."""
        since = self._calls - self._tried.get(other.rails, 0)
        slower = other.time_s / usual.time_s
        if self._promising(other, size, usual):
            return other.rails not in self._tried or since * BUDGET >= ENGAGE - 1.0
        if self._times.get(self._held) and other.rails in self._times:
            slower = min(self._times[other.rails]) / min(self._times[self._held])
            if slower <= CLEAR:
                return False  # blocks try it
        if self.short and len(other.parts) == 1 and self._samples(other) < SURE:
            # One or two calls, here or in another class, may have waited for a processor, however long.
            promise_s = self._table.prior(self.key, other.rails[0]).time_s(size)
            slower, since = min(slower, DOUBT * promise_s / usual.time_s), SURE * since
        return (self.short or slower <= ENGAGE * ENGAGE) and since * BUDGET >= max(ENGAGE, slower) - 1.0

    def _promising(self, other: Split, size: int, usual: Split) -> bool:
        """Whether a way has no time yet, and may be quicker than the usual one."""
        alone = len(other.parts) == 1
        seen = all(self._table.like(self.key, rail, len(usual.parts) == 1) for rail in usual.rails)
        if self._samples(other) or (alone and len(usual.parts) > 1 and not seen):
            return False  # parts tell first
        least_s = other.time_s
        if not all(self._table.like(self.key, rail, alone) for rail in other.rails):
            least_s = other.time_s / CLEAR
            if alone:  # a link may keep all that it promises, but that tells little of latency
                told = self._table.rates_known and not (self.short and len(usual.parts) == 1)
                promise_s = self._table.prior(self.key, other.rails[0]).time_s(size)
                least_s = min(least_s, promise_s) if told else 0.0
        return least_s < (usual.time_s * CLEAR if self.short else usual.time_s / ENGAGE)

    def _samples(self, split: Split) -> int:
        return min(self._table.samples(self.key, rail, len(split.parts) == 1) for rail in split.rails)

    # ------------------------------------------------------------ when calls are measured

    def counted(self, op_index: int, calls: int, count: int) -> None:
        """Count calls of `count` elements that are not measured; the index of the last one."""
        if count != self._count:  # a block is of equal calls
            self._first, self._quiet, self._count = op_index - calls + 1, 0, count
        self._calls += calls
        self._quiet += calls
        self.left -= calls
        self._last = op_index

    def block(self) -> tuple[int, int] | None:
        """Return the first and last index of the calls of a block, if no others came in between."""
        first = self._first + self._settling
        whole = self.way and self._last - self._first + 1 == self._quiet >= self._settling + self._span
        return (first, self._last) if whole else None

    def measured(self, index: int, tried: Way, size: int, count: int, usual: Split, survey_s: float) -> None:
        """Count a call that is measured and followed by a survey, which costs the time of `survey_s`."""
        self._calls += 1
        self._tried_last = tried != ()
        if tried:
            self._tried[tried] = self._calls
        self._void = self._void + 1 if self.way and self.block() is None else 0
        self._first, self._quiet = index + 2, 0
        call_s = min(self._times.get(self._held, (usual.time_s,)))
        # A link that has rested exceeds its rate for a while: that is to be over, or to matter little.
        calls = min(int(SHORT_S / call_s), SURE * SAMPLES)
        self._settling, self._span = 2 * SURE + min(calls, SAMPLES), max(calls, SAMPLES)
        self._next_block(size, count, usual, survey_s)
        self.version += 1
        self._surveys += 1
        pause = 0 if self._surveys <= SAMPLES else int(survey_s / (BUDGET * call_s))
        block = self._settling + self._span if self.way and self._void <= SURE else 0
        self.left = block if self.comparing else max(block, pause)

    def _next_block(self, size: int, count: int, usual: Split, survey_s: float) -> None:
        """Choose the way of the next block: the quickest so far, or one that is compared with it.

        Until a block has told anything, it is what costs speak for, as where other calls come in between.
        A way is left for another of which the middle block is quicker by ENGAGE, or one clearly.
        """
        ways = self._ways(size, count, usual)
        self.way, self.comparing, self._found = (), False, False
        if not ways:
            return
        if self._held not in ways or self._held not in self._times:
            self._held = ways[0]
        if quicker := [way for way in ways if self._beats(way)]:
            self._held = min(quicker, key=lambda way: (max(self._times[way]), way))
        own = self._times.get(self._held, [])
        unsure = [way for way in ways if self._unsure(way, own)]
        self._found = not unsure or self._void > SURE
        unsure = unsure or [way for way in ways if own and self._retried(way, own, survey_s, len(ways) - 1)]
        self.comparing = bool(unsure) and self._void <= SURE
        other = self.comparing and own and not self._void
        self.way = min(unsure, key=lambda way: (self._begun.get(way, 0), way)) if other else self._held
        self._begun[self.way] = self._calls

    def _ways(self, size: int, count: int, usual: Split) -> list[Way]:
        """Return the ways that may be quickest, first what costs speak for; none if calls are long."""
        if not self.short or not self._settled(usual):
            return []
        lines = self._lines(self.rails)
        prior = {rail: self._table.prior(self.key, rail) for rail in self.rails}
        split = best_split(lines, size, count, usual.rails)
        # What other classes tell may be far from it: a call comes before a block.
        tested = [rail for rail in self.rails if self._table.samples(self.key, rail, True)] or self.rails
        seen = {rail: self._table.seen_s(self.key, rail, size) for rail in tested}
        # No block of one rail keeps out another that had none, but one quicker than its link can be does.
        quickest_s = max(min(seen.values()), *self._times.get(self._held, ()), 0.0)
        fair = tuple(rail for rail in tested if seen[rail] <= DOUBT * quickest_s)
        longest_s = max(self._times.get(self._held, seen.values()))
        least_rate = size / CLEAR / longest_s if self._table.rates_known else 0
        near = [rail for rail in fair if max(prior[rail].rate, lines[rail].rate) >= least_rate]
        alike = tuple(rail for rail in near if prior[rail] == prior[near[0]])  # of one kind and rate
        by_cost = choose(self._singles(size, tested), split, count, usual.rails).rails
        splits = split, balanced(lines, size, count), self._over(fair, size, count)
        ways = [by_cost, *((rail,) for rail in near), *(each.rails for each in splits if len(each.parts) > 1)]
        return list(dict.fromkeys([*ways, *([(TURNS, *alike)] if len(alike) > 1 else ()), *self._times]))

    def _beats(self, way: Way) -> bool:
        times, own = self._times.get(way, ()), self._times.get(self._held, ())
        if len(times) == len(own) == SURE:
            return sorted(times)[SURE // 2] * ENGAGE < sorted(own)[SURE // 2]
        return bool(times and own) and max(times) * CLEAR < min(own)

    def _unsure(self, way: Way, own: Sequence[float]) -> bool:
        """Whether a way has to be compared yet."""
        times = self._times.get(way, ())
        clear = CLEAR if len(times) < 2 else ENGAGE
        return len(times) < SURE and not (times and own and min(times) > clear * max(own))

    def _retried(self, way: Way, own: Sequence[float], survey_s: float, others: int) -> bool:
        """Whether it is time to see whether a way that is slower is still so."""
        slower = min(self._times[way]) / min(own)
        calls = (self._settling + self._span) * (max(slower, ENGAGE) - 1.0) + survey_s / min(own)
        return way != self._held and (self._calls - self._begun.get(way, 0)) * BUDGET >= others * calls

    # ------------------------------------------------------------ what is known

    @property
    def stage(self) -> str:
        """Say how much is known."""
        size, count = self.key.size_class, max(1, self.key.size_class // 4)
        usual = self.choose(size, count)
        others = self._others(size, count, usual)
        if not self._samples(usual) or any(self._promising(other, size, usual) for other in others):
            return "cold"
        if not self._settled(usual):
            return "warm"
        return "hot" if self._found or not self.short else "comparing"

    def _settled(self, usual: Split) -> bool:
        """Whether it is known what the usual way costs."""
        return self.way != () or self._samples(usual) >= (1 if self.short else SURE)

    def compare(self, item: Item, time_s: float) -> None:
        """Take an agreed mean time of a block, or of a part of it; far from the others one counts alone."""
        self.version += 1
        if item.rail >= 0:
            self._table.observe((self.key, item.rail, len(item.way) == 1), item.size, time_s, block=True)
            return
        if not self._times:
            self._table.doubt(self.key, self.rails, item.size)
        known = self._times.get(item.way, [])
        if known and (time_s > CLEAR * max(known) or time_s * CLEAR < min(known)):
            known = known if item.way in self._varied else []
            self._varied.add(item.way)
        self._times[item.way] = [*known, time_s][-SURE:]

    def observe(self, item: Item, time_s: float) -> None:
        """Take an agreed time. Where a rail has changed, what blocks have told of it may hold no longer."""
        factor = self._table.observe((self.key, item.rail, item.alone), item.size, time_s)
        self.version += 1
        if factor is None:
            return
        held_s = max(self._times.get(self._held, (0.0,)))
        for way in [way for way in self._times if item.rail in way]:
            if self._void > SURE:
                del self._times[way]
            elif way != self._held and min(self._times[way]) * factor < held_s:
                self._begun[way] = -NEVER  # it may be quicker now: a block tells
