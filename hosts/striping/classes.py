# SPDX-License-Identifier: Apache-2.0
"""One class of calls as it is learnt: which call tries what, which are measured, when the ranks are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railweave.hosts.striping.filling import ALIGNMENT, ENGAGE, MOVE, Choice, Part, choose, cut, time_of
from railweave.hosts.striping.states import ClassEvent, ClassState, next_class
from railweave.hosts.striping.table import CostKey, CostTable

PROBES = 2  # calls that a rail is tried on before anything is known of it
ASK_AGAIN = 8  # calls after which a rail is tried once more, if no time of it has come
CALM = 3  # times of what is in force, without a move, that make a class hot
LONGEST_WARM = 24  # times after which it is called hot anyhow: such a network is never calm
MEASURED = 4  # calls measured before a survey at most, while hot
SURVEY_S = 300e-6  # what a survey costs a rank beside its time on the rail
LONGEST_SURVEY_S = 1e-3  # there: that of a small call, as far as is known
BUDGET = 0.02  # of the time of calls that surveys may take, while hot
SHORTEST, LONGEST = 4, 1024  # calls from survey to survey, while hot
EXPLORE_BUDGET = 0.01  # of the time of calls that trying other ways may take
EXPLORE_EVERY = 32  # calls, at least
CLEAR_GAIN = 1.5  # a split that is so much quicker than a rail alone need not be compared with it again
LEAST_SLICE = 8 * ALIGNMENT  # elements
DEAR = 2.0  # a rail that takes so many times longer than the best is tried on a slice


class CallClass:
    """What all calls of one class share. It exists while the set of rails stays the same."""

    def __init__(self, key: CostKey, rails: Sequence[int], table: CostTable) -> None:
        """Begin cold, or where the costs that are known allow."""
        self.key = key
        self.rails = tuple(rails)
        self.state = ClassState.COLD
        self.version = 0  # changes with every new measurement
        self.generation = 0  # changes with every move of a split
        self.left = 0  # calls until one is measured
        self._table = table
        self._calls = 0  # in this state
        self._measured = 0  # calls since the last survey
        self._calm = self._times = 0
        self._interval = 1
        self._explore_in = EXPLORE_EVERY
        self._way = 0  # number of ways explored
        self._check_known()

    # ------------------------------------------------------------ what a call takes

    def choose(self, size: int, count: int, engaged: Sequence[int] = ()) -> Choice:
        """Return what is quickest for a call of `count` elements, `size` bytes, as far as is known."""
        singles = {rail: self._table.single_s(self.key, rail, size) for rail in self.rails}
        lines = {rail: self._table.part(self.key, rail) for rail in self.rails}
        return choose(singles, lines if count >= 2 * ALIGNMENT else {}, size, frozenset(engaged))

    def settle_parts(self, size: int, count: int, old: Sequence[Part]) -> tuple[tuple[Part, ...], float]:
        """Return the parts of a call and their time; the `old` ones if new ones are hardly quicker."""
        choice = self.choose(size, count, [rail for rail, _, _ in old])
        parts = cut(choice.sizes, count)
        time_s = self._time_of(parts, size, count)
        if not old or parts == tuple(old):
            return parts, time_s
        old_s = self._time_of(old, size, count)
        if old_s <= time_s * MOVE and {rail for rail, _, _ in old} == {rail for rail, _, _ in parts}:
            return tuple(old), old_s
        self.generation += 1
        self._calm = 0
        if old_s > time_s * ENGAGE:
            self._move(ClassEvent.DRIFTED)
        return parts, time_s

    def _time_of(self, parts: Sequence[Part], size: int, count: int) -> float:
        if len(parts) == 1:
            return self._table.single_s(self.key, parts[0][0], size)
        lines = {rail: self._table.part(self.key, rail) for rail, _, _ in parts}
        return time_of(parts, lines, size // count)

    def trial(self, size: int, count: int, usual: Choice) -> Mapping[int, float] | None:
        """Return the bytes by rail if this call is to try another way than the `usual` one; else None."""
        if self.state is ClassState.COLD:
            return self._probe(size, count, usual)
        if self.state is ClassState.HOT and self._explore_in <= 0:
            ways = self._ways(size, count, usual)
            return ways[self._way % len(ways)][0] if ways else None
        return None

    def _probe(self, size: int, count: int, usual: Choice) -> Mapping[int, float] | None:
        unknown = [rail for rail in self.rails if self._table.get(self.key, rail) is None]
        order = sorted(unknown, key=lambda rail: (self._table.single_s(self.key, rail, size), rail))
        if self._calls < PROBES * len(self.rails):
            return self._try(order[self._calls % len(order)], size, count, usual)
        if self._calls % ASK_AGAIN == 0:
            return self._try(order[self._calls // ASK_AGAIN % len(order)], size, count, usual)
        return None

    def _try(self, rail: int, size: int, count: int, usual: Choice) -> Mapping[int, float]:
        """Return a call that measures a rail: whole, or a slice that ends when the rest does elsewhere."""
        if self._table.single_s(self.key, rail, size) > DEAR * usual.time_s:
            line = self._table.part(self.key, rail)
            slice_bytes = (usual.time_s - line.a_s) * line.rate
            others = {other: part for other, part in usual.sizes.items() if other != rail}
            if slice_bytes * count >= LEAST_SLICE * size and others:
                left = (size - slice_bytes) / size
                sizes = {other: part * left for other, part in others.items()} | {rail: slice_bytes}
                return {each: sizes[each] for each in sorted(sizes)}
        return {rail: float(size)}

    def _ways(self, size: int, count: int, usual: Choice) -> list[tuple[Mapping[int, float], float]]:
        """Return what else could be tried for a call, each with the time that it is expected to take."""
        ways: list[tuple[Mapping[int, float], float]] = []
        singles = {rail: self._table.single_s(self.key, rail, size) for rail in self.rails}
        best = min(singles, key=lambda rail: (singles[rail], rail))
        if len(usual.sizes) > 1 and singles[best] < usual.time_s * CLEAR_GAIN:
            ways.append(({best: float(size)}, singles[best]))
        for rail in self.rails:
            if rail not in usual.sizes:
                sizes = self._try(rail, size, count, usual)
                ways.append((sizes, singles[rail] if len(sizes) == 1 else usual.time_s))
        if len(usual.sizes) == 1 and count >= LEAST_SLICE * len(self.rails):
            ways.append(self._even_split(size))
        return ways

    def _even_split(self, size: int) -> tuple[Mapping[int, float], float]:
        """Return a split by what the rails carry alone, which says whether they still disturb each other."""
        rates = {rail: size / self._table.single_s(self.key, rail, size) for rail in self.rails}
        total = 0.0
        for rate in rates.values():
            total = total + rate
        sizes = {rail: size * rate / total for rail, rate in rates.items()}
        return sizes, max(self._table.part(self.key, rail).time_s(part) for rail, part in sizes.items())

    # ------------------------------------------------------------ when calls are measured

    @property
    def survey_due(self) -> bool:
        """Whether the call that is measured next is followed by a survey."""
        return self._measured + 1 >= min(MEASURED, self._interval)

    def submitted(self, tried: bool, size: int, count: int, usual: Choice) -> None:
        """Count a call that is measured."""
        self._calls += 1
        self._measured += 1
        self._explore_in -= 1
        if tried and self.state is ClassState.HOT:
            self._way += 1
            self._explore_in = self._pause(size, count, usual)
        if self._measured < min(MEASURED, self._interval):
            return
        self._measured = 0
        self._interval = self._next_interval(usual.time_s) if self.state is ClassState.HOT else 1
        self.left = max(0, self._interval - MEASURED)
        self._explore_in -= self.left

    def _pause(self, size: int, count: int, usual: Choice) -> int:
        """Return how many calls the next trial of another way has to wait for, so that all cost little."""
        ways = self._ways(size, count, usual)
        if not ways:
            return EXPLORE_EVERY
        excess = ways[self._way % len(ways)][1] / usual.time_s - 1
        return max(EXPLORE_EVERY, int(excess / EXPLORE_BUDGET))

    def _next_interval(self, call_s: float) -> int:
        survey_s = SURVEY_S + min(call_s, LONGEST_SURVEY_S)
        wanted = int(survey_s / (BUDGET * call_s)) + 1
        return min(max(wanted, SHORTEST), LONGEST)

    # ------------------------------------------------------------ what measurements change

    def observe(self, rail: int, size: int, time_s: float, alone: bool, generation: int) -> None:
        """Take an agreed time."""
        self._table.observe(self.key, rail, size, time_s, alone)
        self.version += 1
        self._check_known()
        if self.state is ClassState.WARM:
            self._times += 1
            self._calm += generation == self.generation
            if self._calm >= CALM * len(self.rails) or self._times >= LONGEST_WARM:
                self._move(ClassEvent.SETTLED)

    def _check_known(self) -> None:
        if all(self._table.loaded(self.key, rail) for rail in self.rails):
            self._move(ClassEvent.LOADED)
        elif all(self._table.get(self.key, rail) for rail in self.rails):
            self._move(ClassEvent.PROBED)

    def _move(self, event: ClassEvent) -> None:
        state = next_class(self.state, event)
        if state is not self.state:
            self.state = state
            self._calls = self._calm = self._times = 0
            if state is not ClassState.HOT:
                self.left, self._interval = 0, 1
