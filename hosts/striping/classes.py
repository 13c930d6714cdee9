# SPDX-License-Identifier: Apache-2.0
"""One class of calls as it is learnt: which call tries what, which are measured, when the ranks are asked."""

from __future__ import annotations

from collections.abc import Sequence

from railweave.hosts.striping.filling import (
    ALIGNMENT,
    ENGAGE,
    MOVE,
    Part,
    Split,
    choose,
    cut,
    time_of,
    water_fill,
)
from railweave.hosts.striping.states import ClassEvent, ClassState, next_class
from railweave.hosts.striping.surveys import Item
from railweave.hosts.striping.table import CostKey, CostTable
from railweave.hosts.striping.ways import COUNTED, FELL, MOST_SETTLING, SETTLING, SETTLING_S, Way, Ways

PROBES = 2  # calls that a rail is tried on at first, for each time of it that is wanted
SHORT_S, SHORT_TIMES = 0.02, 2  # calls as short as that are noisy: so many times are wanted of a rail
ASK_AGAIN = 8  # calls after which a rail is tried once more, if no time of it has come
CALM = 3  # times of what is in force, without a move, that make a class hot
LONGEST_WARM = 24  # times after which it is called hot anyhow: such a network is never calm
TRIES = 2  # calls that another way is tried on while hot, if they are short
MEASURED = 8  # calls measured before a survey at most, while hot
SURVEY_S = 300e-6  # what a survey costs a rank beside its time on the rail
LONGEST_SURVEY_S = 1e-3  # there: that of a small call, as far as is known
BUDGET, WARM_BUDGET = 0.02, 0.2  # of the time of calls that surveys may take, while hot, and while warm again
SHORTEST, LONGEST = 4, 1024  # calls from survey to survey, while hot
LONGEST_S = 0.25  # likewise: of calls that are shorter than surveys may be, and have stayed as they are
EXPLORE_BUDGET = 0.01  # of the time of calls that trying other ways may take
EXPLORE_EVERY = 32  # calls, at least
CLEAR_GAIN = 1.25  # a split that is so much quicker than a rail alone need not be compared with it again
UNSURE = 3.0  # times as long as a block of calls that a rail may seem to take, and be quicker yet
NOISE_S = 0.001  # by about which single calls are measured wrong, where ranks wait for processors
DISTURBED = 1.25  # times as many as there are rails: by how much each may be slower beside the others
LEAST_SLICE = 8 * ALIGNMENT  # elements
MUCH_SLOWER = 2.0  # a rail that takes so many times longer than the best is known well by one time


class CallClass:
    """What all calls of one class share. It exists while the set of rails stays the same."""

    def __init__(self, key: CostKey, rails: Sequence[int], table: CostTable) -> None:
        """Begin cold, or where the costs that are known allow."""
        self.key = key
        self.rails = tuple(rails)
        self.state = ClassState.COLD
        self.version = 0  # changes with every new measurement
        self._table = table
        self.generation = 0  # changes with every move of a split
        self.left = 0  # calls until one is measured
        self.last_quiet = 0  # index of the latest call that was not measured
        self._calls = 0  # in this state
        self._measured = 0  # calls since the last survey
        self._was_hot = False
        self._calm = self._times = 0
        self._interval = 1
        self._explore_in = EXPLORE_EVERY
        self._way = 0  # number of ways explored
        self._tried = 0  # calls that the latest one has been tried on
        self._short = Ways()
        self._block = range(0)  # indices of the calls since the survey that count, if all are of this class
        self._check_known()

    # ------------------------------------------------------------ what a call takes

    def choose(self, size: int, count: int, engaged: Sequence[int] = ()) -> Split:
        """Return what is quickest for a call of `count` elements, `size` bytes, as far as is known."""
        singles = {rail: self._table.single_s(self.key, rail, size) for rail in self.rails}
        lines = {rail: self._table.part(self.key, rail) for rail in self.rails}
        split = choose(singles, lines, size, count, frozenset(engaged))
        if len(split.parts) > 1 or not self.way:
            return split
        turns = self.way if len(self.way) > 1 else ()
        return Split(((self.way[0], 0, count),), singles[self.way[0]], turns)

    def settle(self, size: int, count: int, ways: Sequence[tuple[Part, ...]]) -> Split:
        """Return how to cut a call; once hot, as before if the new way is hardly quicker.

        `ways` are the parts that such calls have taken in turn.
        """
        old = ways[0] if ways else ()
        new = self.choose(size, count, [rail for rail, _, _ in old])
        if not old or new.parts == old:
            return new
        old_s = self._time_of(old, size, count)
        same_rails = {rail for rail, _, _ in old} == {rail for rail, _, _ in new.parts}
        if same_rails and old_s <= new.time_s * MOVE:
            return Split(old, old_s) if self.state is ClassState.HOT else new
        self.generation += 1
        self._calm = 0
        if len(new.parts) > 1 and old_s > new.time_s * ENGAGE:  # one rail alone has no balance to settle
            self._move(ClassEvent.DRIFTED)
        return new

    def _time_of(self, parts: Sequence[Part], size: int, count: int) -> float:
        if len(parts) == 1:
            return self._table.single_s(self.key, parts[0][0], size)
        lines = {rail: self._table.part(self.key, rail) for rail, _, _ in parts}
        return time_of(parts, lines, size // count)

    def trial(self, size: int, count: int, usual: Split) -> tuple[Part, ...] | None:
        """Return the parts of this call if it is to try another way than the `usual` one; else None."""
        self._check_known()  # classes over other rails may have measured these
        if self.state is ClassState.COLD:
            return self._probe(size, count, usual)
        if self.state is ClassState.HOT and self._explore_in <= 0:
            ways = self._ways(size, count, usual)
            return ways[self._way % len(ways)].parts if ways else None
        return None

    def _probe(self, size: int, count: int, usual: Split) -> tuple[Part, ...] | None:
        unknown = [rail for rail in self.rails if not self._known_well(rail)]
        used = {rail for rail, _, _ in usual.parts}  # which it measures
        unknown = [rail for rail in unknown if rail not in used or self._doubtful(rail)]
        if not unknown:
            return None
        order = sorted(unknown, key=lambda rail: (self._table.single_s(self.key, rail, size), rail))
        calls_each = PROBES * self._wanted
        if self._calls < calls_each * len(self.rails):
            return self._try(order[self._calls % len(order)], size, count, usual)
        if self._calls % ASK_AGAIN == 0:
            return self._try(order[self._calls // ASK_AGAIN % len(order)], size, count, usual)
        return None

    def _try(self, rail: int, size: int, count: int, usual: Split) -> tuple[Part, ...]:
        """Return a call that measures a rail: whole, or a slice that ends when the rest does elsewhere."""
        others = [part for part in usual.parts if part[0] != rail]
        if others and not self._doubtful(rail):
            line = self._table.part(self.key, rail)
            elements = max(LEAST_SLICE, int((usual.time_s - line.a_s) * line.rate * count / size))
            if elements < count:
                carried = sum(part for _, _, part in others)
                sizes = {other: part * (count - elements) / carried for other, _, part in others}
                sizes[rail] = float(elements)
                return cut({each: sizes[each] for each in sorted(sizes)}, count)
        return ((rail, 0, count),)

    def _ways(self, size: int, count: int, usual: Split) -> list[Split]:
        """Return what else could be tried for a call, each with the time that it is expected to take."""
        ways: list[Split] = []
        singles = {rail: self._table.single_s(self.key, rail, size) for rail in self.rails}
        best = min(singles, key=lambda rail: (singles[rail], rail))
        if len(usual.parts) > 1 and singles[best] < usual.time_s * CLEAR_GAIN:
            ways.append(Split(((best, 0, count),), singles[best]))
        for rail in self.rails:
            if all(rail != used for used, _, _ in usual.parts):
                parts = self._try(rail, size, count, usual)
                ways.append(Split(parts, singles[rail] if len(parts) == 1 else usual.time_s))
        if len(usual.parts) == 1 and count >= LEAST_SLICE * len(self.rails):
            # Do rails that disturbed each other still do so?
            lines = {rail: self._table.part(self.key, rail) for rail in self.rails}
            parts = cut(water_fill(lines, size), count)
            ways.append(Split(parts, time_of(parts, lines, size // count)))
        return ways

    # ------------------------------------------------------------ when calls are measured

    @property
    def survey_due(self) -> bool:
        """Whether the call that is measured next is followed by a survey."""
        return self._measured + 1 >= min(MEASURED, self._interval)

    def submitted(self, op_index: int, tried: bool, size: int, count: int, usual: Split) -> None:
        """Count a call that is measured."""
        self._calls += 1
        self._measured += 1
        self._explore_in -= 1
        if tried and self.state is ClassState.HOT:
            self._tried += 1
            if self._tried >= (TRIES if usual.time_s < SHORT_S else 1):
                self._explore_in = self._tried * self._pause(size, count, usual)
                self._way += 1
                self._tried = 0
        if self._measured < min(MEASURED, self._interval):
            return
        self._measured = 0
        self._interval = self._next_interval(usual.time_s)
        before, ways = self.way, self._ways_of_short(size, usual)
        if len(ways) > 1:
            self._short.advance(ways)
        else:
            self._short = Ways(found=self.state is ClassState.HOT)
        self.version += self.way != before
        settling = max(SETTLING, int(SETTLING_S / max(usual.time_s, self._short.held_s() or 0.0)))
        block = min(settling, MOST_SETTLING) + COUNTED
        self.left = block if self.comparing else max(0, self._interval - MEASURED)
        self._explore_in -= self.left
        end = op_index + 2 + self.left  # the survey is behind this call
        self._block = range(end - self.left + block - COUNTED, end) if self.way else range(0)

    def _ways_of_short(self, size: int, usual: Split) -> dict[Way, float]:
        """Return the ways that short calls could take, and what single ones are known to cost.

        The first one is the rail in use, or, while no block has told anything, what costs speak for. Of rails
        of one kind and rate there is only one, but for others that are clearly quicker, and all of them in
        turn. None if calls are not short.
        """
        if self.state is not ClassState.HOT or len(usual.parts) > 1 or usual.time_s >= SHORT_S:
            return {}
        singles = {rail: self._table.single_s(self.key, rail, size) for rail in self.rails}
        used, held_s = usual.parts[0][0], self._short.held_s()
        if held_s is not None:
            used = self._short.held[0]
        elif singles[used] > ENGAGE * min(singles.values()):
            used = min(self.rails, key=lambda rail: (singles[rail], rail))
        most_s = UNSURE * max(held_s or 0.0, singles[used], NOISE_S)
        ways: dict[Way, float] = {}
        for rail in sorted(self.rails, key=lambda rail: (rail != used, singles[rail], rail)):
            like = [way for way in ways if self._table.alike(self.key, rail, way[0])]
            if singles[rail] <= most_s and all(singles[rail] * FELL < ways[way] for way in like):
                ways[(rail,)] = singles[rail]
        alike = (rail for rail in self.rails if self._table.alike(self.key, rail, used))
        in_turn = tuple(rail for rail in alike if singles[rail] <= most_s)
        if len(in_turn) > 1:
            ways[in_turn] = singles[used]
        return ways

    def _pause(self, size: int, count: int, usual: Split) -> int:
        """Return how many calls the next trial of another way has to wait for, so that all cost little."""
        ways = self._ways(size, count, usual)
        if not ways:
            return EXPLORE_EVERY
        excess = ways[self._way % len(ways)].time_s / usual.time_s - 1
        return max(EXPLORE_EVERY, int(excess / EXPLORE_BUDGET))

    def _next_interval(self, call_s: float) -> int:
        survey_s = SURVEY_S + min(call_s, LONGEST_SURVEY_S)
        if self.state is ClassState.HOT:
            least = max(int(survey_s / (BUDGET * call_s)) + 1, SHORTEST)
            rarer = min(2 * self._interval, int(LONGEST_S / call_s)) if call_s < LONGEST_SURVEY_S else 0
            return min(max(least, rarer), LONGEST)
        if self.state is ClassState.WARM and self._was_hot:
            return min(int(survey_s / (WARM_BUDGET * call_s)) + 1, LONGEST)
        return 1

    # ------------------------------------------------------------ what measurements change

    @property
    def way(self) -> Way:
        """Return the rails that short calls take in turn now; () if that follows from the costs."""
        return self._short.now

    @property
    def stage(self) -> str:
        """Return the state, or "comparing" where it is hot but which way short calls take is not known."""
        return "comparing" if self.state is ClassState.HOT and not self._short.found else self.state

    @property
    def comparing(self) -> bool:
        """Whether calls take the way that they take to find out what it costs."""
        return self._short.comparing

    def block(self) -> tuple[int, int] | None:
        """Return the first and last index of the calls that count, if no other call was in between."""
        block, self._block = self._block, range(0)
        if len(block) < COUNTED or self.last_quiet != block[-1]:
            return None
        return block[0], block[-1]

    def compare(self, way: Way, time_s: float) -> None:
        """Take the agreed time of a call of a block whose calls went this way."""
        self._short.learn(way, time_s)

    def observe(self, item: Item, time_s: float) -> None:
        """Take an agreed time."""
        self._table.observe(self.key, item.rail, item.size, time_s, item.alone)
        self.version += 1
        self._check_known()
        if self.state is ClassState.WARM:
            self._times += 1
            self._calm += item.generation == self.generation
            if self._calm >= CALM * len(self.rails) or self._times >= LONGEST_WARM:
                self._move(ClassEvent.SETTLED)

    def _check_known(self) -> None:
        """Leave the cold if all rails have a cost from elsewhere, or are known well enough."""
        if self.state is not ClassState.COLD:
            return
        if all(self._table.loaded(self.key, rail) for rail in self.rails):
            self._move(ClassEvent.LOADED)
        elif all(self._known_well(rail) for rail in self.rails):
            self._move(ClassEvent.PROBED)

    def _known_well(self, rail: int) -> bool:
        cost = self._table.get(self.key, rail)
        if cost is None or self._doubtful(rail):
            return False
        if cost.samples >= self._wanted:
            return True
        size = self.key.size_class
        best_s = min(self._table.single_s(self.key, each, size) for each in self.rails)
        return cost.single_s(size) > MUCH_SLOWER * best_s

    def _doubtful(self, rail: int) -> bool:
        """Whether a rail alone may be quicker than any split: rails that disturb each other hide that."""
        cost = self._table.get(self.key, rail)
        if cost is None or cost.alone.known:
            return False
        size = self.key.size_class
        alone_s = max(
            cost.single_s(size) / (DISTURBED * len(self.rails)), self._table.least_s(self.key, rail, size)
        )
        return alone_s < self.choose(size, size).time_s

    @property
    def _wanted(self) -> int:
        """Return how many times of each rail a cold class waits for."""
        size = self.key.size_class
        best_s = min(self._table.single_s(self.key, rail, size) for rail in self.rails)
        return SHORT_TIMES if best_s < SHORT_S else 1

    def _move(self, event: ClassEvent) -> None:
        state = next_class(self.state, event)
        if state is not self.state:
            self.state = state
            self._was_hot |= state is ClassState.HOT
            self._calls = self._calm = self._times = 0
            if state is not ClassState.HOT:
                self.left, self._interval = 0, 1
