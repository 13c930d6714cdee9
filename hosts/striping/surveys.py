# SPDX-License-Identifier: Apache-2.0
"""Surveys: small int32 MAX allreduces that give all ranks the same measurements.

The time of a slice is from the last start to the last end over the ranks, so a late rank does not count
against a rail. Clocks differ between hosts. So a rank counts start and end from the end of an earlier survey.
Surveys end at nearly the same time on all ranks. In any case, the result lies between the shortest and the
longest time of a rank. A rank without a time sends a constant that wins the MAX. Then the time is unknown on
all ranks, and the next survey asks again.

For a block of successive calls, the ranks agree on the mean time from one end to the next, and on the mean
time of each part. The least value over the ranks counts. A lane holds it negated, so MAX selects the least.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from railweave.hosts.striping.costs import SURE, CostKey
from railweave.hosts.striping.splits import Way

LANES = 64  # lanes of every survey: 256 bytes, one packet on any rail
MOST = LANES // 2  # slices: each has one lane for its start and one for its end
TICK_NS = 100  # unit of time
ABSENT = (1 << 31) - 1  # this rank has no time of the slice, or a time over 214 s after the survey
NEVER = 1 << 62

Lanes = NDArray[np.int32]
Slices = NDArray[np.int64]  # (n, 5): op index, rail, start and end in ns, bytes


@dataclass(frozen=True)
class Item:
    """One slice of a call, or one block. The ranks agree on its time."""

    op_index: int
    rail: int
    key: CostKey
    rails: tuple[int, ...]  # rails of its class
    size: int  # bytes
    alone: bool  # whether the slice is the whole call
    survey: int  # op index of a survey: times count from its end
    until: int = 0  # of a block: op index of its last call; `op_index` is its first call
    way: Way = ()  # arm of a block
    again: bool = False  # an earlier survey asked, but some rank had no time yet


@dataclass
class Survey:
    """A survey in flight."""

    in_force: int  # op index of the first call that uses the result
    items: tuple[Item, ...]
    opens: bool  # the first survey: it compares the ranks' options and costs
    result: list[int] | None = None


class Agreement:
    """Items on their way from a measured call, through a survey, to an agreed time."""

    def __init__(self, opening: Lanes | None) -> None:
        """Begin with the input of the opening survey, if the ranks compare options and costs."""
        self._opening = opening
        self._surveys: dict[int, Survey] = {}  # by index
        self._pending: deque[Item] = deque(maxlen=MOST)
        self._last = -1  # index of the latest measured call
        self._slices: Slices = np.empty((0, 5), np.int64)  # ended on this rank
        self.latest = 0  # index of the latest survey

    @property
    def horizon(self) -> int:
        """Return the first op index at which a survey comes into force."""
        return min((survey.in_force for survey in self._surveys.values()), default=NEVER)

    def measure(self, item: Item) -> None:
        """Record a slice or block of submitted calls."""
        self._pending.append(item)
        self._last = item.op_index

    def observe(self, slices: Slices) -> None:
        """Add slices that have ended on this rank."""
        self._slices = np.concatenate((self._slices, slices))

    def forget(self) -> None:
        """Drop the items that no survey has asked for yet."""
        self._pending.clear()

    def asked(self) -> tuple[Item, ...]:
        """Return the items of the next survey, without the call right before it, which is in flight."""
        return tuple(item for item in self._pending if item.op_index != self._last)

    def survey_input(self) -> Lanes:
        """Return this rank's input of the next survey."""
        return encode(self.asked(), self._slices) if self._opening is None else self._opening

    def submitted(self, op_index: int, items: tuple[Item, ...], lag: int) -> None:
        """Record a submitted survey."""
        opens, self._opening = self._opening is not None, None
        self._surveys[op_index] = Survey(op_index + (1 if opens else lag), items, opens)
        self._pending = deque((item for item in self._pending if item not in items), MOST)
        self.latest = op_index
        waiting = [*self._pending, *(item for survey in self._surveys.values() for item in survey.items)]
        oldest = min((item.survey for item in waiting), default=op_index)
        self._slices = self._slices[self._slices[:, 0] >= oldest]

    def wanted(self, op_index: int) -> int | None:
        """Return the index of a survey whose result is missing and needed to plan this call."""
        due = (at for at, each in self._surveys.items() if each.in_force <= op_index and not each.result)
        return next(due, None)

    def take(self, op_index: int, result: Lanes) -> None:
        """Store the result of the survey at this index."""
        self._surveys[op_index].result = [int(lane) for lane in result]

    def pop_due(self, op_index: int) -> Survey | None:
        """Remove and return the earliest survey in force at this call, if any."""
        due = [(survey.in_force, index) for index, survey in self._surveys.items()]
        in_force, index = min(due, default=(NEVER, -1))
        if in_force > op_index:
            return None
        if self._surveys[index].result is None:
            raise RuntimeError(f"the result of the survey at #{index} has not been taken")
        return self._surveys.pop(index)

    def times(self, survey: Survey, counted_from: int) -> list[tuple[Item, float]]:
        """Return the agreed times of a survey, except those of calls before `counted_from`.

        The next survey asks once more for an unknown time.
        """
        known: list[tuple[Item, float]] = []
        for item, time_s in decode(survey.items, survey.result or ()):
            if item.op_index >= counted_from and time_s is not None:
                known.append((item, time_s))
            elif item.op_index >= counted_from and not item.again:
                self._pending.append(replace(item, again=True))
        return known


def encode(items: Sequence[Item], slices: Slices) -> Lanes:
    """Return this rank's input of a survey, from the slices that have ended here."""
    lanes = np.full(LANES, ABSENT, np.int32)
    ops, rails, starts_ns, ends_ns, sizes = slices.T
    for place, item in enumerate(items):
        if item.until:
            lanes[2 * place] = _block_lane(item, slices)
            continue
        own, survey = (ops == item.op_index) & (rails == item.rail), ops == item.survey
        if own.any() and survey.any() and sizes[own].sum() >= item.size:
            since_ns = int(ends_ns[survey].max())
            ticks = [(int(at) - since_ns) // TICK_NS for at in (starts_ns[own].min(), ends_ns[own].max())]
            if all(-ABSENT <= tick < ABSENT for tick in ticks):
                lanes[2 * place : 2 * place + 2] = ticks
    return lanes


def decode(items: Sequence[Item], result: Sequence[int]) -> list[tuple[Item, float | None]]:
    """Return each item's time in seconds; None if some rank had no time."""
    found: list[tuple[Item, float | None]] = []
    for item, start, end in zip(items, result[::2], result[1::2], strict=False):
        ticks = -start if item.until else end - start
        absent = start == ABSENT or (end == ABSENT and not item.until)
        found.append((item, None if absent else max(ticks, 1) * TICK_NS / 1e9))
    return found


def _block_lane(item: Item, slices: Slices) -> int:
    """Return the negated mean ticks from the end of one call to the end of the next, or of one part.

    The SURE longest times do not count: those calls may have waited for a processor.
    """
    first = item.op_index - 1
    ops, rails, starts_ns, ends_ns, _ = slices[(slices[:, 0] >= first) & (slices[:, 0] <= item.until)].T
    own = (rails == item.rail) | (item.rail < 0)
    begun_ns, ended_ns = (np.full(item.until - first + 1, none) for none in (NEVER, -NEVER))
    np.minimum.at(begun_ns, ops - first, starts_ns)
    np.maximum.at(ended_ns, ops[own] - first, ends_ns[own])
    if -NEVER in ended_ns:
        return ABSENT
    took_ns = np.sort(ended_ns[1:] - (ended_ns[:-1] if item.rail < 0 else begun_ns[1:]))
    counted = max(1, len(took_ns) - SURE)
    return -max(1, min(int(took_ns[:counted].sum()) // (counted * TICK_NS), ABSENT - 1))


def opening(*texts: str) -> Lanes:
    """Return the input of the first survey. It shows whether all ranks have the same two texts."""
    digests = b"".join(hashlib.sha256(text.encode()).digest()[:16] for text in texts)
    pieces = np.frombuffer(digests, "<i4")
    return np.pad(np.concatenate((pieces, ~pieces)), (0, LANES - 2 * len(pieces)))


def agreed(result: Sequence[int]) -> tuple[bool, bool]:
    """Return, for each of the two texts, whether all ranks have the same, by the first survey's result."""
    greatest, inverse = np.reshape(result[:16], (2, 2, 4))
    options, costs = np.all(greatest == ~inverse, axis=1)
    return bool(options), bool(costs)
