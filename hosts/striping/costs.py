# SPDX-License-Identifier: Apache-2.0
"""What rails cost: what their links promise, times a slowness that is measured by class of calls.

All ranks must come to the same numbers bit for bit, so floats see only + - * / and comparisons, one after the
other, and of the library's sums the exact one, fsum: no roots, no logarithms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from railweave._native.collectives import Collective, DType, item_size
from railweave.hosts.arrays import NAMES
from railweave.hosts.capabilities import REDUCING
from railweave.hosts.striping.priors import Line, StripedRail, prior_lines

SURE = 3  # times, or blocks, of one way that tell what it costs
SAMPLES = 20  # times at most that an estimate is made of, and calls of a block at least
CLEAR = 1.25  # times as long is clearly slower: two such times in a row are believed at once
DOUBT = 3.0  # times as long as is thought a rail may take that has not been measured
LIKELY = 1.25  # times the time that other calls suggest is expected at most
SHORT_S = 0.016  # calls as short as that are latency for the most part, and are compared in blocks
LARGE_BYTES = 1 << 20  # of calls that are short on no link: rates matter, and none may take much too long

NUMBERS = {"int": 1, "int8": 4, "float": 1, "half": 2}  # lanes that an in-network rail sends for 4 bytes


def numbers_of(collective: Collective, dtype: DType) -> str:
    """Return one of NUMBERS, which cost alike; what is not reduced passes as it lies in memory."""
    if collective not in REDUCING:
        return "int"
    return {1: "int8", 2: "half"}.get(item_size(dtype)) or NAMES[dtype].rstrip("0123456789")


@dataclass(frozen=True, order=True)
class CostKey:
    """A class of calls as far as costs are concerned."""

    collective: str
    numbers: str  # of NUMBERS
    size_class: int  # bytes of the whole tensor: calls up to this size, and larger than half of it

    def same_but_size(self, other: CostKey) -> bool:
        """Whether calls of both classes differ in nothing but their size."""
        return (self.collective, self.numbers) == (other.collective, other.numbers)


class Slowness:
    """How many times longer than its link promises a rail has taken lately."""

    def __init__(self, values: Iterable[float] = (), samples: int = 0) -> None:
        """Take what is known from elsewhere, if anything."""
        self._latest = deque(values, maxlen=SAMPLES)
        self._block = 0.0  # in blocks of calls; 0 if there were none
        self.samples = samples  # since the rail's speed has changed

    @property
    def single(self) -> float:
        """Return what single calls show: the mean of the middle half, as others waited for a processor."""
        latest = self._latest or (self._block,)
        quarter = len(latest) // 4
        middle = sorted(latest)[quarter : len(latest) - quarter]
        return fsum(middle) / len(middle)

    @property
    def least(self) -> float:
        """Return the least that single calls show."""
        return min(self._latest, default=self._block)

    @property
    def value(self) -> float:
        """Return what holds: blocks of short calls tell more than single ones."""
        return self._block or self.single

    def observe(self, value: float) -> float | None:
        """Take a value. Returns by which factor the rail is slower, if it has changed its speed for good."""
        *earlier, before = self._latest or [value]
        factor = None
        if earlier:
            usual, quarter = sorted(earlier), len(earlier) // 4
            slower = min(before, value) > usual[-1 - quarter] * CLEAR
            if slower or max(before, value) * CLEAR < usual[quarter]:
                factor = (before + value) / 2 / self.single
                self.begin(before, 1)
        self._latest.append(value)
        self.samples += 1
        return factor

    def settle(self, value: float) -> None:
        """Take the mean of a block of calls; one far from those before counts alone."""
        near = value < self._block * CLEAR < value * CLEAR * CLEAR
        self._block = (self._block + value) / 2 if near else value
        self.samples = max(self.samples, SURE)

    def begin(self, value: float, samples: int) -> None:
        """Hold this for what is known, as if it had been measured so often."""
        self._latest = deque((value,), maxlen=SAMPLES)
        self._block, self.samples = 0.0, samples


Place = tuple[CostKey, int, bool]  # a class, a rail, and whether it carries calls alone


class CostTable:
    """Slowness by class, rail, and whether it carries calls alone, or parts of them beside other rails.

    Rails that share a processor or a link are slower together. So a split is judged by what was measured in
    splits, and a single rail by what was measured of it alone. What is known outlives the absence of a rail.
    """

    def __init__(self, rails: Sequence[StripedRail], hosts: int) -> None:
        """Begin with priors only."""
        self._rails = tuple(rails)
        self._hosts = hosts
        self.rates_known = all(rail.rate_bps > 0 for rail in rails)
        self.known: dict[Place, Slowness] = {}
        self._priors: dict[CostKey, dict[int, Line]] = {}
        self._short: dict[CostKey, bool] = {}
        self._nearest: dict[Place, Place | None] = {}  # as far as asked, while no further place is known

    def put(self, place: Place, slowness: Slowness) -> None:
        """Take what is known from elsewhere."""
        self.known[place] = slowness
        self._nearest.clear()

    def distrust(self, rail: int) -> None:
        """Hold what is known of a rail for true only until it is measured again."""
        for (_, of, _), slowness in self.known.items():
            if of == rail:
                slowness.begin(slowness.single, 0)

    def doubt(self, key: CostKey, rails: Sequence[int], size: int) -> None:
        """Have rails measured anew of which all calls so far may have waited for a processor at once."""
        seen = {rail: self.seen_s(key, rail, size) for rail in rails if self.samples(key, rail, True)}
        for rail, seen_s in seen.items():
            # What is quicker gets a block anyway; what is slower would cost more than the chance is worth.
            if DOUBT < seen_s / min(seen.values()) < DOUBT * DOUBT:
                self.known[key, rail, True].samples = 1

    def samples(self, key: CostKey, rail: int, alone: bool) -> int:
        """Return how many measurements speak for a rail's present speed."""
        known = self.known.get((key, rail, alone))
        return known.samples if known is not None else 0

    def observe(self, place: Place, size: int, time_s: float, block: bool = False) -> float | None:
        """Take a measured time, or the mean of a block of calls.

        Returns by which factor the rail has become slower, if single times show that it has for good: the
        other case was measured before, and is forgotten.
        """
        key, rail, alone = place
        known, prior = self.known.get(place), self.prior(key, rail)
        if known is None:
            near, value = self.place(key, rail, alone), time_s / prior.time_s(size)
            like = self.known[near].single if near is not None and near[2] is alone else 0.0
            known = Slowness([like] if like < value * CLEAR < like * CLEAR * CLEAR else ())
            self.put(place, known)
        if block:  # links that have rested let more pass than they promise, but not for long
            whole = self.known.get((key, rail, True))
            faster = min(1.0, whole.value) if whole is not None else 1.0
            time_s = max(time_s, faster * size / prior.rate) if self.rates_known and not alone else time_s
            known.settle(time_s / prior.time_s(size))
            return None
        factor = known.observe(time_s / prior.time_s(size))
        if factor is not None and self.known.pop((key, rail, not alone), None) is not None:
            self._nearest.clear()
        return factor

    def line(self, key: CostKey, rail: int, alone: bool = False) -> Line:
        """Return what a rail costs alone or beside others; not measured here, as in the nearest class."""
        place, prior = self.place(key, rail, alone), self.prior(key, rail)
        return prior if place is None else prior.slower(self.known[place].value)

    def single_s(self, key: CostKey, rail: int, size: int) -> float:
        """Return the time of a whole call on one rail."""
        return self.line(key, rail, alone=True).time_s(size)

    def seen_s(self, key: CostKey, rail: int, size: int) -> float:
        """Return the least that single calls have shown: of short calls more than what blocks tell."""
        place, prior = self.place(key, rail, True), self.prior(key, rail)
        return prior.time_s(size) * (1.0 if place is None else self.known[place].least)

    def expected_s(self, key: CostKey, rail: int, size: int, alone: bool) -> float:
        """Return the longest that a part may be expected to take; 0 if nothing is known of the rail.

        Such calls may have been measured only in other sizes, or before the rail was last out. Then the rail
        is as slow as they were, or as the slowest of all calls since.
        """
        time_s, place = self.line(key, rail, alone).time_s(size), self.place(key, rail, alone)
        if self.samples(key, rail, True) or self.samples(key, rail, False):
            return time_s
        lately = [
            slowness.value
            for (of, where, _), slowness in self.known.items()
            if where == rail and slowness.samples and self.short(of) is self.short(key)
        ]
        if lately and place is not None and place[0].same_but_size(key):
            return LIKELY * max(time_s, self.prior(key, rail).time_s(size) * max(lately))
        return DOUBT * time_s if self.rates_known else 0.0

    def like(self, key: CostKey, rail: int, alone: bool) -> bool:
        """Whether a rail has been measured so, alone or not, in this class or one like it."""
        return (place := self.place(key, rail, alone)) is not None and place[2] is alone

    def short(self, key: CostKey) -> bool:
        """Return whether calls are short as links promise, and not large."""
        if key not in self._short:
            promised = (self.prior(key, rail.index).time_s(key.size_class) for rail in self._rails)
            self._short[key] = key.size_class < LARGE_BYTES and min(promised) < SHORT_S
        return self._short[key]

    def prior(self, key: CostKey, rail: int) -> Line:
        """Return what a rail's link promises."""
        if key not in self._priors:
            lanes = NUMBERS[key.numbers]
            self._priors[key] = prior_lines(self._rails, self._hosts, key.collective, lanes, key.size_class)
        return self._priors[key][rail]

    def place(self, key: CostKey, rail: int, alone: bool) -> Place | None:
        """Return where a rail's slowness stands, if at all: here or in the nearest class as short or long."""

        def order(place: Place) -> tuple[object, ...]:
            of, _, case = place
            unlike = (of.collective != key.collective, of.numbers != key.numbers)
            distance = abs(of.size_class.bit_length() - key.size_class.bit_length())
            return (case is not alone, *unlike, distance, of)

        asked = (key, rail, alone)
        if asked not in self._nearest:
            like = (place for place in self.known if place[1] == rail)
            like = (place for place in like if self.short(place[0]) is self.short(key))
            self._nearest[asked] = min(like, key=order, default=None)
        return self._nearest[asked]
