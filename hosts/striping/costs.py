# SPDX-License-Identifier: Apache-2.0
"""What a rail costs: T(s) = a + s / b, learnt from measured times by least squares that forget.

All ranks must come to the same numbers bit for bit, so floats see only + - * / and comparisons, one after the
other: no sums of the library, no roots, no logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

KEEP, LONGEST_KEEP = 0.75, 0.95  # what an observation still weighs after the next; the more, the noisier
CLIP = 1.5  # a time further than this factor from what was predicted counts as that far, once
STEADY = 0.2  # of a deviation that counts
NOISY = 3.0  # by how much of the mean deviation that band is wider, and memory longer
ANCHOR_WEIGHT = 0.05  # of the latency at size 0, beside observations of weight 1
WARM_UP = 2  # observations in which the least counts: the first call on a rail finds it cold
COLDER = 1.25  # how much slower than the next a first call must have been to be forgotten
FASTER = 1.5  # bandwidth that parts may show, over that of the rail alone
LIKE_SIZE = 2  # sizes up to this factor apart have times that can be compared
LEAST_SLOPE = 0.01  # of the mean time per unit of size: where measured times fall with size


@dataclass(frozen=True)
class Line:
    """T(s) = a_s + s / rate: seconds for `s` bytes."""

    a_s: float
    rate: float  # bytes per second

    def time_s(self, size: float) -> float:
        """Return the time of `size` bytes."""
        return self.a_s + size / self.rate


class Fit:
    """One line through decaying observations (size, time) of sizes up to about `unit` bytes.

    Observations seldom differ enough in size to tell latency from bandwidth. So the line is held at size 0 by
    an anchor, the latency as it is known otherwise; with observations of one size it goes through both.
    """

    def __init__(self, unit: int, anchor_s: float) -> None:
        """Begin without observations; sizes are measured in `unit`s of bytes."""
        self.unit = unit
        self.anchor_s = anchor_s
        self.samples = 0  # since the last time that the rail's speed changed
        self._stale = False
        self.noise = 0.0  # mean relative deviation of times from what was predicted
        self._side = 0  # where the last observation was, if out of band: +1 slower, -1 faster
        self._before: tuple[Line, int] | None = None  # what was known before it, of which mean size
        self._forget()

    def _forget(self) -> None:
        self.samples = 0
        self._w = self._x = self._xx = self._t = self._xt = 0.0

    @property
    def known(self) -> bool:
        """Whether anything has been observed."""
        return self.samples > 0

    def observe(self, size: int, time_s: float) -> float | None:
        """Take a time. Returns the factor by which the rail has become slower, if it has changed for good.

        One time out of band is clipped; a second one on the same side is believed, and what was before
        forgotten.
        """
        if not self.known:
            self._restart(size, time_s)
            return None
        before, mean_size = self._reference()
        before_s = before.time_s(size)
        clip = CLIP + NOISY * self.noise
        side = (time_s > before_s * clip) - (time_s * clip < before_s)
        if self._stale or (side and side == self._side):
            self._restart(size, time_s)
            return time_s / before_s if side else None
        if self.samples < WARM_UP and time_s * COLDER < before_s:
            self._restart(size, time_s)
            return None
        self._side, self._before = side, (before, mean_size) if side else None
        if side:
            time_s = before_s * clip if side > 0 else before_s / clip
        else:
            deviation = abs(time_s - before_s) / max(time_s, before_s)
            self.noise = self.noise + STEADY * (deviation - self.noise)
        self._add(size, time_s)
        return None

    def _reference(self) -> tuple[Line, int]:
        """Return what a time is held against: an outlier just before is no measure for it."""
        return self._before or (self.line(), self.mean_size)

    def is_like(self, size: int) -> bool:
        """Whether what a time of this size is held against has been measured about there."""
        _, mean_size = self._reference()
        return size <= LIKE_SIZE * mean_size and mean_size <= LIKE_SIZE * size

    def _restart(self, size: int, time_s: float) -> None:
        self._stale, self._side, self._before = False, 0, None
        self._forget()
        self._add(size, time_s)

    def _add(self, size: int, time_s: float) -> None:
        x = size / self.unit
        keep = KEEP + (LONGEST_KEEP - KEEP) * min(1.0, NOISY * self.noise)
        self._w = self._w * keep + 1.0
        self._x = self._x * keep + x
        self._xx = self._xx * keep + x * x
        self._t = self._t * keep + time_s
        self._xt = self._xt * keep + x * time_s
        self.samples += 1

    def restore(self, line: Line, size: int, samples: int) -> None:
        """Take what was learnt before: a line through observations of about `size` bytes."""
        self.anchor_s = line.a_s
        self._restart(size, line.time_s(size))
        self.samples = samples

    def distrust(self) -> None:
        """Let the next observation count alone; until then, what is known holds."""
        self._stale = True

    def rescale(self, factor: float) -> None:
        """Take all times as if they had been `factor` times as long: the rail has changed its speed."""
        self._t = self._t * factor
        self._xt = self._xt * factor

    @property
    def mean_s(self) -> float:
        """Return the mean of the times, the latest weighing most."""
        return self._t / self._w

    @property
    def mean_size(self) -> int:
        """Return the mean of the sizes in bytes, likewise."""
        return max(1, int(self._x / self._w * self.unit))

    def line(self) -> Line:
        """Return the line, with a >= 0 and b > 0. There must be observations."""
        weight = self._w + ANCHOR_WEIGHT
        total_s = self._t + ANCHOR_WEIGHT * self.anchor_s
        determinant = weight * self._xx - self._x * self._x
        slope = (weight * self._xt - self._x * total_s) / determinant
        a_s = (total_s - slope * self._x) / weight
        mean_x, mean_s = self._x / self._w, self._t / self._w
        if a_s < 0:
            a_s, slope = 0.0, self._xt / self._xx
        if slope * mean_x < LEAST_SLOPE * mean_s:
            slope = LEAST_SLOPE * mean_s / mean_x
            a_s = mean_s - slope * mean_x
        return Line(a_s, self.unit / slope)


class RailCost:
    """What one rail costs in one class of calls: alone, and while others carry the rest of the call.

    Rails that share a processor or a link are slower together. So a split is judged by what was measured in
    splits, and a single rail by what was measured of it alone.
    """

    def __init__(self, unit: int, anchor_s: float) -> None:
        """Begin without observations."""
        self.alone = Fit(unit, anchor_s)
        self.shared = Fit(unit, anchor_s)

    @property
    def known(self) -> bool:
        """Whether anything has been observed."""
        return self.alone.known or self.shared.known

    @property
    def samples(self) -> int:
        """Return how many observations speak for the present speed."""
        return self.alone.samples + self.shared.samples

    def latency_s(self, prior: Line) -> float:
        """Return what is left of the least mean time without the time of the bytes on the link."""
        fits = [fit for fit in (self.alone, self.shared) if fit.known]
        return min(max(fit.mean_s - fit.mean_size / prior.rate, min(fit.mean_s, prior.a_s)) for fit in fits)

    def observe(self, size: int, time_s: float, alone: bool, anchor_s: float) -> bool:
        """Take a time of `size` bytes. Returns whether the rail has changed its speed for good.

        What is known of the other case was measured before the change, and changes with it. A time of quite
        another size than all before may only show that the line was wrong there.
        """
        fit, other = (self.alone, self.shared) if alone else (self.shared, self.alone)
        fit.anchor_s = anchor_s
        like = fit.known and fit.is_like(size)
        factor = fit.observe(size, time_s)
        if factor is None:
            return False
        if other.known and like:
            other.rescale(factor)
        return True

    def distrust(self) -> None:
        """Let the next observation of either case count alone."""
        self.alone.distrust()
        self.shared.distrust()

    def part(self) -> Line:
        """Return the line of a part of a split. The rail must be known.

        Small parts tell little of bandwidth: it is not taken for much more than that of the rail alone, but
        for no less than what parts have had.
        """
        if not self.shared.known:
            return self.alone.line()
        line, shared = self.shared.line(), self.shared
        if not self.alone.known or line.rate <= (rate := FASTER * self.alone.line().rate):
            return line
        rate = max(rate, shared.mean_size / shared.mean_s)
        return Line(max(0.0, shared.mean_s - shared.mean_size / rate), rate)

    def single_s(self, size: int) -> float:
        """Return the time of `size` bytes on this rail alone. The rail must be known."""
        return (self.alone if self.alone.known else self.shared).line().time_s(size)
