# SPDX-License-Identifier: Apache-2.0
"""Learn one class of calls: choose its arm, explore other arms, and decide when calls are measured.

The arms (type `Way`) are each rail alone, the best split, the split over all rails, and alternation. A single
timing of a short call is unreliable, so short calls are compared in blocks (docs/design/striping.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railweave.hosts.striping.costs import CLEAR, DOUBT, SAMPLES, SHORT_S, SURE, CostKey, CostTable
from railweave.hosts.striping.priors import Line
from railweave.hosts.striping.splits import ENGAGE, TURNS, Split, Way, balanced, best_split, choose
from railweave.hosts.striping.surveys import NEVER, Item

BUDGET = 0.004  # share of the time of calls for each of: surveys, slower calls, slower blocks


class CallClass:
    """State of one class of calls. It exists while the set of rails stays the same."""

    def __init__(self, key: CostKey, rails: Sequence[int], table: CostTable) -> None:
        """Begin with the costs in the table."""
        self.key = key
        self.rails = tuple(rails)
        self.version = 0  # grows with every new measurement
        self.left = 0  # calls until the next measured call; a survey follows it
        self.way: Way = ()  # arm of this block; () if costs decide
        self.comparing = False  # whether this block explores: it measures its arm
        self.short = table.short(key)
        self._table = table
        self._surveys = 0  # the first SAMPLES surveys ignore the budget
        self._calls = 0
        self._tried: dict[Way, int] = {}  # number of calls up to the latest trial of the arm
        self._tried_last = False  # whether the latest measured call was a trial
        self._held: Way = ()  # the fastest arm so far, by its blocks
        self._times: dict[Way, list[float]] = {}  # mean times of the latest blocks
        self._varied: set[Way] = set()  # arms whose blocks differ by CLEAR: all latest blocks count
        self._begun: dict[Way, int] = {}  # number of calls before the arm's latest block
        self._void = 0  # blocks in a row that other calls interrupted
        self._found = False  # converged, or comparing is given up
        self._first = self._last = 0  # indices of the calls since the latest survey of this class
        self._count = self._quiet = self._settling = self._span = 0  # elements; calls: all, settling, span

    # ------------------------------------------------------------ choosing the arm

    def choose(self, size: int, count: int, engaged: Sequence[int] = ()) -> Split:
        """Return the split of a call of `count` elements, `size` bytes. Rails in use are `engaged`."""
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
        """Return the split over these rails. Priors decide if costs would leave a rail out."""
        split = balanced(self._lines(rails), size, count)
        prior = {rail: self._table.prior(self.key, rail) for rail in rails}
        return split if split.rails == rails else balanced(prior, size, count)

    # ------------------------------------------------------------ exploring by single calls

    def trial(self, size: int, count: int, usual: Split) -> Split | None:
        """Return the split that this call explores instead of the `usual` split; None to exploit."""
        if self._tried_last and self.block() is None:
            return None  # the usual arm needs measurements, too
        due = [other for other in self._others(size, count, usual) if self._due(other, size, usual)]
        return min(due, key=lambda other: (self._tried.get(other.rails, -1), other.time_s), default=None)

    def _others(self, size: int, count: int, usual: Split) -> list[Split]:
        """Return the other arms: each rail alone, the usual rails plus one more rail, and all rails."""
        sets = {self.rails, *(tuple(sorted({*usual.rails, rail})) for rail in self.rails)}
        others = [balanced(self._lines(rails), size, count) for rails in sorted(sets)]
        others += [Split(((rail, 0, count),), time_s) for rail, time_s in self._singles(size).items()]
        return list({other.rails: other for other in others if other.rails != usual.rails}.values())

    def _due(self, other: Split, size: int, usual: Split) -> bool:
        """Whether to explore an arm now: at once if it may be faster, else within the BUDGET."""
        since = self._calls - self._tried.get(other.rails, 0)
        slower = other.time_s / usual.time_s
        if self._promising(other, size, usual):
            return other.rails not in self._tried or since * BUDGET >= ENGAGE - 1.0
        if self._times.get(self._held) and other.rails in self._times:
            slower = min(self._times[other.rails]) / min(self._times[self._held])
            if slower <= CLEAR:
                return False  # blocks explore it
        if self.short and len(other.parts) == 1 and self._samples(other) < SURE:
            # One or two calls, here or in another class, may have waited for a processor for any time.
            promise_s = self._table.prior(self.key, other.rails[0]).time_s(size)
            slower, since = min(slower, DOUBT * promise_s / usual.time_s), SURE * since
        return (self.short or slower <= ENGAGE * ENGAGE) and since * BUDGET >= max(ENGAGE, slower) - 1.0

    def _promising(self, other: Split, size: int, usual: Split) -> bool:
        """Whether an arm has no measurement yet, and may be faster than the usual arm."""
        alone = len(other.parts) == 1
        seen = all(self._table.like(self.key, rail, len(usual.parts) == 1) for rail in usual.rails)
        if self._samples(other) or (alone and len(usual.parts) > 1 and not seen):
            return False  # the parts of the usual split are measured first
        least_s = other.time_s
        if not all(self._table.like(self.key, rail, alone) for rail in other.rails):
            least_s = other.time_s / CLEAR
            if alone:  # the link may keep its promise, which says little about latency
                told = self._table.rates_known and not (self.short and len(usual.parts) == 1)
                promise_s = self._table.prior(self.key, other.rails[0]).time_s(size)
                least_s = min(least_s, promise_s) if told else 0.0
        return least_s < (usual.time_s * CLEAR if self.short else usual.time_s / ENGAGE)

    def _samples(self, split: Split) -> int:
        return min(self._table.samples(self.key, rail, len(split.parts) == 1) for rail in split.rails)

    # ------------------------------------------------------------ when to measure

    def counted(self, op_index: int, calls: int, count: int) -> None:
        """Count `calls` unmeasured calls of `count` elements. The last of these calls has `op_index`."""
        if count != self._count:  # all calls of a block have the same size
            self._first, self._quiet, self._count = op_index - calls + 1, 0, count
        self._calls += calls
        self._quiet += calls
        self.left -= calls
        self._last = op_index

    def block(self) -> tuple[int, int] | None:
        """Return the first and last index of the calls in a block; None if other calls interrupted it."""
        first = self._first + self._settling
        whole = self.way and self._last - self._first + 1 == self._quiet >= self._settling + self._span
        return (first, self._last) if whole else None

    def measured(self, index: int, tried: Way, size: int, count: int, usual: Split, survey_s: float) -> None:
        """Count a measured call. A survey follows the call and takes about `survey_s`."""
        self._calls += 1
        self._tried_last = tried != ()
        if tried:
            self._tried[tried] = self._calls
        self._void = self._void + 1 if self.way and self.block() is None else 0
        self._first, self._quiet = index + 2, 0
        call_s = min(self._times.get(self._held, (usual.time_s,)))
        # A rested link bursts above its rate. Settling calls let the burst pass; a long block dilutes it.
        calls = min(int(SHORT_S / call_s), SURE * SAMPLES)
        self._settling, self._span = 2 * SURE + min(calls, SAMPLES), max(calls, SAMPLES)
        self._next_block(size, count, usual, survey_s)
        self.version += 1
        self._surveys += 1
        pause = 0 if self._surveys <= SAMPLES else int(survey_s / (BUDGET * call_s))
        block = self._settling + self._span if self.way and self._void <= SURE else 0
        self.left = block if self.comparing else max(block, pause)

    def _next_block(self, size: int, count: int, usual: Split, survey_s: float) -> None:
        """Choose the arm of the next block: exploit the fastest arm so far, or explore another arm.

        Costs name the fastest arm until a block has a time. Then another arm replaces it in two cases: its
        median of SURE blocks is faster by ENGAGE, or all its blocks (one is enough) are faster by CLEAR.
        """
        ways = self._ways(size, count, usual)
        self.way, self.comparing, self._found = (), False, False
        if not ways:
            return
        if self._held not in ways or self._held not in self._times:
            self._held = ways[0]
        if faster := [way for way in ways if self._beats(way)]:
            self._held = min(faster, key=lambda way: (max(self._times[way]), way))
        own = self._times.get(self._held, [])
        unsure = [way for way in ways if self._unsure(way, own)]
        self._found = not unsure or self._void > SURE
        unsure = unsure or [way for way in ways if own and self._retried(way, own, survey_s, len(ways) - 1)]
        self.comparing = bool(unsure) and self._void <= SURE
        other = self.comparing and own and not self._void
        self.way = min(unsure, key=lambda way: (self._begun.get(way, 0), way)) if other else self._held
        self._begun[self.way] = self._calls

    def _ways(self, size: int, count: int, usual: Split) -> list[Way]:
        """Return the arms that may be fastest, the best by cost first. Return no arm if calls are long."""
        if not self.short or not self._settled(usual):
            return []
        lines = self._lines(self.rails)
        prior = {rail: self._table.prior(self.key, rail) for rail in self.rails}
        split = best_split(lines, size, count, usual.rails)
        # Costs of other classes may be far off. So a rail needs a measured call alone before a block.
        tested = [rail for rail in self.rails if self._table.samples(self.key, rail, True)] or self.rails
        seen = {rail: self._table.seen_s(self.key, rail, size) for rail in tested}
        # A fast block alone excludes no rail, except a rail whose link cannot come near its time.
        quickest_s = max(min(seen.values()), *self._times.get(self._held, ()), 0.0)
        fair = tuple(rail for rail in tested if seen[rail] <= DOUBT * quickest_s)
        longest_s = max(self._times.get(self._held, seen.values()))
        least_rate = size / CLEAR / longest_s if self._table.rates_known else 0
        near = [rail for rail in fair if max(prior[rail].rate, lines[rail].rate) >= least_rate]
        alike = tuple(rail for rail in near if prior[rail] == prior[near[0]])  # same kind and rate
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
        """Whether an arm needs more blocks before it can be set aside."""
        times = self._times.get(way, ())
        clear = CLEAR if len(times) < 2 else ENGAGE
        return len(times) < SURE and not (times and own and min(times) > clear * max(own))

    def _retried(self, way: Way, own: Sequence[float], survey_s: float, others: int) -> bool:
        """Whether it is time to explore a slower arm again."""
        slower = min(self._times[way]) / min(own)
        calls = (self._settling + self._span) * (max(slower, ENGAGE) - 1.0) + survey_s / min(own)
        return way != self._held and (self._calls - self._begun.get(way, 0)) * BUDGET >= others * calls

    # ------------------------------------------------------------ measurements

    @property
    def stage(self) -> str:
        """Return the stage of learning: `cold`, `warm`, `comparing`, or `hot` (converged)."""
        size, count = self.key.size_class, max(1, self.key.size_class // 4)
        usual = self.choose(size, count)
        others = self._others(size, count, usual)
        if not self._samples(usual) or any(self._promising(other, size, usual) for other in others):
            return "cold"
        if not self._settled(usual):
            return "warm"
        return "hot" if self._found or not self.short else "comparing"

    def _settled(self, usual: Split) -> bool:
        """Whether the usual arm has enough measurements."""
        return self.way != () or self._samples(usual) >= (1 if self.short else SURE)

    def compare(self, item: Item, time_s: float) -> None:
        """Add the agreed mean time of a block, or of one part. The first outlier replaces earlier times."""
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
        """Add the agreed time of a slice. If the rail changed its speed, its block times may be outdated."""
        factor = self._table.observe((self.key, item.rail, item.alone), item.size, time_s)
        self.version += 1
        if factor is None:
            return
        held_s = max(self._times.get(self._held, (0.0,)))
        for way in [way for way in self._times if item.rail in way]:
            if self._void > SURE:
                del self._times[way]
            elif way != self._held and min(self._times[way]) * factor < held_s:
                self._begun[way] = -NEVER  # the arm may be faster now: a new block is due
