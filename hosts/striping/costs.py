# SPDX-License-Identifier: Apache-2.0
"""Costs of rails: the promise of the link, times a slowness that is measured per class of calls.

All ranks must compute the same numbers bit for bit. So floats use only + - * /, comparisons and the exact sum
fsum, in a fixed order. Roots and logarithms may differ between machines.
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

SURE = 3  # measurements, or blocks, that settle the cost of one arm
SAMPLES = 20  # most measurements in one estimate, and fewest calls in one block
CLEAR = 1.25  # factor of a clear difference: two such times in a row are believed at once
DOUBT = 3.0  # an unmeasured rail may take this many times its expected time
LIKELY = 1.25  # upper bound of an expected time, relative to the time that other calls suggest
SHORT_S = 0.016  # shorter calls are mostly latency, and are compared in blocks
LARGE_BYTES = 1 << 20  # calls above half of this are never short: rates matter, and a slow trial costs much

NUMBERS = {"int": 1, "int8": 4, "float": 1, "half": 2}  # lanes that an in-network rail sends for 4 bytes


def numbers_of(collective: Collective, dtype: DType) -> str:
    """Return the cost group of a type: a key of NUMBERS. Data that is not reduced is sent as raw bytes."""
    if collective not in REDUCING:
        return "int"
    return {1: "int8", 2: "half"}.get(item_size(dtype)) or NAMES[dtype].rstrip("0123456789")


@dataclass(frozen=True, order=True)
class CostKey:
    """A class of calls: calls of one class share their costs."""

    collective: str
    numbers: str  # key of NUMBERS
    size_class: int  # bytes of the whole tensor: calls up to this size, and larger than half of it

    def same_but_size(self, other: CostKey) -> bool:
        """Whether both classes are equal, or differ only in size."""
        return (self.collective, self.numbers) == (other.collective, other.numbers)


class Slowness:
    """Recent times of a rail, relative to the promise of its link."""

    def __init__(self, values: Iterable[float] = (), samples: int = 0) -> None:
        """Begin with values from elsewhere, if any."""
        self._latest = deque(values, maxlen=SAMPLES)
        self._block = 0.0  # mean of blocks; 0 before the first block
        self.samples = samples  # measurements since the rail's speed changed

    @property
    def single(self) -> float:
        """Return the mean of the middle half of single calls. Slow calls may have waited for a processor."""
        latest = self._latest or (self._block,)
        quarter = len(latest) // 4
        middle = sorted(latest)[quarter : len(latest) - quarter]
        return fsum(middle) / len(middle)

    @property
    def least(self) -> float:
        """Return the least slowness of single calls."""
        return min(self._latest, default=self._block)

    @property
    def value(self) -> float:
        """Return the slowness in force. Blocks of short calls are more reliable than single calls."""
        return self._block or self.single

    def observe(self, value: float) -> float | None:
        """Add a value. Return the factor by which the rail became slower; None if its speed is the same."""
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
        """Add the mean of a block to the average. A mean far from the average replaces it."""
        near = value < self._block * CLEAR < value * CLEAR * CLEAR
        self._block = (self._block + value) / 2 if near else value
        self.samples = max(self.samples, SURE)

    def begin(self, value: float, samples: int) -> None:
        """Start again from this value, as if it had been measured `samples` times."""
        self._latest = deque((value,), maxlen=SAMPLES)
        self._block, self.samples = 0.0, samples


Place = tuple[CostKey, int, bool]  # class, rail, and whether the rail carries calls alone


class CostTable:
    """Table of slowness by class, rail, and use: a rail carries calls alone, or parts beside other rails.

    Rails that share a processor or a link slow each other down. So splits are judged by measurements in
    splits, and a rail alone by measurements of the rail alone. Costs stay known while a rail is down.
    """

    def __init__(self, rails: Sequence[StripedRail], hosts: int) -> None:
        """Begin with priors only."""
        self._rails = tuple(rails)
        self._hosts = hosts
        self.rates_known = all(rail.rate_bps > 0 for rail in rails)
        self.known: dict[Place, Slowness] = {}
        self._priors: dict[CostKey, dict[int, Line]] = {}
        self._short: dict[CostKey, bool] = {}
        self._nearest: dict[Place, Place | None] = {}  # cache of `place`, valid until a place is added

    def put(self, place: Place, slowness: Slowness) -> None:
        """Set the slowness of a place."""
        self.known[place] = slowness
        self._nearest.clear()

    def distrust(self, rail: int) -> None:
        """Keep the costs of a rail only until it is measured again."""
        for (_, of, _), slowness in self.known.items():
            if of == rail:
                slowness.begin(slowness.single, 0)

    def doubt(self, key: CostKey, rails: Sequence[int], size: int) -> None:
        """Request new measurements of rails whose calls may all have waited for a processor at once."""
        seen = {rail: self.seen_s(key, rail, size) for rail in rails if self.samples(key, rail, True)}
        for rail, seen_s in seen.items():
            # A faster rail gets a block anyway. Exploring a slower rail would cost more than it may gain.
            if DOUBT < seen_s / min(seen.values()) < DOUBT * DOUBT:
                self.known[key, rail, True].samples = 1

    def samples(self, key: CostKey, rail: int, alone: bool) -> int:
        """Return the number of measurements since a rail's speed last changed."""
        known = self.known.get((key, rail, alone))
        return known.samples if known is not None else 0

    def observe(self, place: Place, size: int, time_s: float, block: bool = False) -> float | None:
        """Add a measured time, or the mean of a block of calls.

        Returns the factor by which the rail became slower, if single times show a lasting change. Then the
        costs of its other use (alone or beside others) are outdated, and are deleted.
        """
        key, rail, alone = place
        known, prior = self.known.get(place), self.prior(key, rail)
        if known is None:
            near, value = self.place(key, rail, alone), time_s / prior.time_s(size)
            like = self.known[near].single if near is not None and near[2] is alone else 0.0
            known = Slowness([like] if like < value * CLEAR < like * CLEAR * CLEAR else ())
            self.put(place, known)
        if block:  # a part faster than its link is a burst of a rested link
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
        """Return a rail's cost alone or beside others: of this class if measured, else of the nearest."""
        place, prior = self.place(key, rail, alone), self.prior(key, rail)
        return prior if place is None else prior.slower(self.known[place].value)

    def single_s(self, key: CostKey, rail: int, size: int) -> float:
        """Return the time of a whole call on one rail."""
        return self.line(key, rail, alone=True).time_s(size)

    def seen_s(self, key: CostKey, rail: int, size: int) -> float:
        """Return the time by the fastest single call. Short calls are usually faster in blocks."""
        place, prior = self.place(key, rail, True), self.prior(key, rail)
        return prior.time_s(size) * (1.0 if place is None else self.known[place].least)

    def expected_s(self, key: CostKey, rail: int, size: int, alone: bool) -> float:
        """Return the longest expected time of a part; 0 if nothing is known about the rail.

        Perhaps only calls of other sizes were measured, or calls before the rail was last down. Then the rail
        counts as slow as these calls, or as slow as the slowest class since.
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
        """Whether this use of a rail (alone or not) was measured in this class or a similar one."""
        return (place := self.place(key, rail, alone)) is not None and place[2] is alone

    def short(self, key: CostKey) -> bool:
        """Return whether calls are short by the promise of the links, and are not large."""
        if key not in self._short:
            promised = (self.prior(key, rail.index).time_s(key.size_class) for rail in self._rails)
            self._short[key] = key.size_class < LARGE_BYTES and min(promised) < SHORT_S
        return self._short[key]

    def prior(self, key: CostKey, rail: int) -> Line:
        """Return the promise of a rail's link."""
        if key not in self._priors:
            lanes = NUMBERS[key.numbers]
            self._priors[key] = prior_lines(self._rails, self._hosts, key.collective, lanes, key.size_class)
        return self._priors[key][rail]

    def place(self, key: CostKey, rail: int, alone: bool) -> Place | None:
        """Return the nearest measured place of a rail, if any. Short calls and others are kept apart."""

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
