# SPDX-License-Identifier: Apache-2.0
"""Surveys: small int32 MAX allreduces by which all ranks come to the same measurements.

A slice's time is that from the last start to the last end over the ranks: lateness is no rail's. Clocks
differ from host to host, so a rank counts both from the end of a survey before the call: surveys end on all
ranks at nearly the same time. As far as they do not, the time found still lies between the least and the
longest that the slice took on a rank. A rank that has no time yet gives a constant that wins: what one rank
lacks is unknown to all, and asked again by the next survey.

Of a block of calls, one after the other, the ranks agree on the mean time from one end to the next, and on
that of each part, where it is the least. A lane holds it negated, so that the least wins.
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

LANES = 64  # of every survey: 256 bytes, one packet on any rail
MOST = LANES // 2  # slices: each has a lane for its start, and one for its end
TICK_NS = 100  # unit of times
ABSENT = (1 << 31) - 1  # of a slice that this rank has no time of, or one more than 214 s after the survey
NEVER = 1 << 62

Lanes = NDArray[np.int32]
Slices = NDArray[np.int64]  # (n, 5): of each its op index, rail, start and end in ns, and bytes


@dataclass(frozen=True)
class Item:
    """One slice of one call, or one block, whose time the ranks are to agree on."""

    op_index: int
    rail: int
    key: CostKey
    rails: tuple[int, ...]  # of its class
    size: int  # bytes
    alone: bool  # whether it is the whole call
    survey: int  # index of the survey from whose end its times count
    until: int = 0  # of a block: index of its last call; it begins with op_index
    way: Way = ()  # of a block
    again: bool = False  # a survey has asked for it when some rank had no time yet


@dataclass
class Survey:
    """A survey under way."""

    in_force: int  # from the call of this index on
    items: tuple[Item, ...]
    opens: bool  # the first one, which compares what the ranks start from
    result: list[int] | None = None


class Agreement:
    """The slices that are measured, from call to survey to what all ranks know."""

    def __init__(self, opening: Lanes | None) -> None:
        """Begin with the input of the first survey, if one is to compare what the ranks start from."""
        self._opening = opening
        self._surveys: dict[int, Survey] = {}  # by index
        self._pending: deque[Item] = deque(maxlen=MOST)
        self._last = -1  # index of the last call that is measured
        self._slices: Slices = np.empty((0, 5), np.int64)  # here, that have ended
        self.latest = 0  # index of the latest survey

    @property
    def horizon(self) -> int:
        """Return the index of the first call before which a survey comes into force."""
        return min((survey.in_force for survey in self._surveys.values()), default=NEVER)

    def measure(self, item: Item) -> None:
        """Note a slice or block of calls that have been submitted."""
        self._pending.append(item)
        self._last = item.op_index

    def observe(self, slices: Slices) -> None:
        """Take slices that have ended on this rank."""
        self._slices = np.concatenate((self._slices, slices))

    def forget(self) -> None:
        """Ask for nothing that has been submitted so far."""
        self._pending.clear()

    def asked(self) -> tuple[Item, ...]:
        """Return what the next survey asks for: not the call right before it, which is still under way."""
        return tuple(item for item in self._pending if item.op_index != self._last)

    def survey_input(self) -> Lanes:
        """Return what this rank gives to the next survey."""
        return encode(self.asked(), self._slices) if self._opening is None else self._opening

    def submitted(self, op_index: int, items: tuple[Item, ...], lag: int) -> None:
        """Note a survey that has been submitted."""
        opens, self._opening = self._opening is not None, None
        self._surveys[op_index] = Survey(op_index + (1 if opens else lag), items, opens)
        self._pending = deque((item for item in self._pending if item not in items), MOST)
        self.latest = op_index
        waiting = [*self._pending, *(item for survey in self._surveys.values() for item in survey.items)]
        oldest = min((item.survey for item in waiting), default=op_index)
        self._slices = self._slices[self._slices[:, 0] >= oldest]

    def wanted(self, op_index: int) -> int | None:
        """Return the index of a survey whose result is needed to plan a call, and has not been taken."""
        due = (at for at, each in self._surveys.items() if each.in_force <= op_index and not each.result)
        return next(due, None)

    def take(self, op_index: int, result: Lanes) -> None:
        """Take the result of the survey at this index."""
        self._surveys[op_index].result = [int(lane) for lane in result]

    def pop_due(self, op_index: int) -> Survey | None:
        """Return the survey that came into force first, up to this call, and forget it."""
        due = [(survey.in_force, index) for index, survey in self._surveys.items()]
        in_force, index = min(due, default=(NEVER, -1))
        if in_force > op_index:
            return None
        if self._surveys[index].result is None:
            raise RuntimeError(f"the result of the survey at #{index} has not been taken")
        return self._surveys.pop(index)

    def times(self, survey: Survey, counted_from: int) -> list[tuple[Item, float]]:
        """Return the agreed times of a survey, but for calls before `counted_from`.

        What no rank could tell is asked once more.
        """
        known: list[tuple[Item, float]] = []
        for item, time_s in decode(survey.items, survey.result or ()):
            if item.op_index >= counted_from and time_s is not None:
                known.append((item, time_s))
            elif item.op_index >= counted_from and not item.again:
                self._pending.append(replace(item, again=True))
        return known


def encode(items: Sequence[Item], slices: Slices) -> Lanes:
    """Return a survey's input from the slices that have ended on this rank."""
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
    """Return each item's time in seconds; None where a rank had none."""
    found: list[tuple[Item, float | None]] = []
    for item, start, end in zip(items, result[::2], result[1::2], strict=False):
        ticks = -start if item.until else end - start
        absent = start == ABSENT or (end == ABSENT and not item.until)
        found.append((item, None if absent else max(ticks, 1) * TICK_NS / 1e9))
    return found


def _block_lane(item: Item, slices: Slices) -> int:
    """Return the mean ticks from one call's end to the next one's, or of a part of them, negated.

    The longest do not count: they waited for a processor.
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
    """Return the input of the first survey, which shows whether all ranks start from the same two texts."""
    digests = b"".join(hashlib.sha256(text.encode()).digest()[:16] for text in texts)
    pieces = np.frombuffer(digests, "<i4")
    return np.pad(np.concatenate((pieces, ~pieces)), (0, LANES - 2 * len(pieces)))


def agreed(result: Sequence[int]) -> tuple[bool, bool]:
    """Return whether all ranks have the same of each of two texts, by the first survey's result."""
    greatest, inverse = np.reshape(result[:16], (2, 2, 4))
    options, costs = np.all(greatest == ~inverse, axis=1)
    return bool(options), bool(costs)
