# SPDX-License-Identifier: Apache-2.0
"""Which rail short calls take, or which ones in turn, found by doing it: blocks of calls, one way each.

No time of one call tells. It counts from the last rank's start, and where calls wait for processors, that
rank finds more of the others' work done on one kind of rail than on another. In turn, the link of one rail
rests while another's works, which is quicker where calls follow each other faster than a link sends them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

COUNTED = 24  # calls of a comparison at least, beside those that are measured one by one
SETTLING, SETTLING_S = 8, 0.008  # calls before them, and seconds: links that have rested let bursts pass
MOST_SETTLING = 80
COMPARED = 3  # blocks of each way
CLEAR = 1.25  # ways that differ by this factor need no second block
GIVEN_UP = 6 * COMPARED  # blocks, when some have told nothing
RETRY = 16  # blocks of the quickest way to one of another, at least
RETRY_BUDGET = 0.01  # of the time of calls that such blocks may take
FELL = 1.5  # single calls that cost less by this factor are a reason to compare
VOID = 4  # blocks in a row that have told nothing: what earlier ones told holds no longer
ANEW = 64  # blocks after which those that have told nothing are tried anew
GAIN = 1.02  # a way must be quicker by this factor: every block of it than every one of the way in use

Way = tuple[int, ...]  # rails that take whole calls in turn, or the one that takes them all


class Ways:
    """The ways of one class of calls, which change from survey to survey: a block lies between two."""

    def __init__(self, *, found: bool = False) -> None:
        """Begin with nothing to compare; with `found`, there will not be anything."""
        self.found = found  # the quickest is known
        self.held: Way = ()  # the quickest so far
        self.now: Way = ()  # what calls take; () if there is nothing to compare
        self.comparing = False  # this block is there to compare
        self._times: dict[Way, deque[float]] = {}
        self._costs: dict[Way, float] = {}  # as they were when a way had its latest block
        self._since: dict[Way, int] = {}  # blocks since then
        self._blocks = 0  # since there was something new to compare
        self._void = 0  # blocks since one has told anything

    def learn(self, way: Way, time_s: float) -> None:
        """Take the agreed mean time of the calls of a block."""
        self._void = 0
        self._times.setdefault(way, deque(maxlen=COMPARED)).append(time_s)

    def held_s(self) -> float | None:
        """Return what a call takes the way that is in use; None if that is not known."""
        return min(self._of(self.held), default=None)

    def advance(self, ways: Mapping[Way, float]) -> None:
        """Choose the way of the next block among these, given with what single calls are known to cost.

        Until a block has told anything, it is the first one.
        """
        self._void += 1
        if self._void > VOID:
            self._times.clear()
        if self.held not in ways or not self._of(self.held):
            self.held = next(iter(ways))
        self._blocks += 1
        self._move(ways)
        others = [way for way in ways if way != self.held]
        for way in others:
            if way not in self._since or ways[way] * FELL < self._costs.get(way, 0.0):
                self._times.pop(way, None)
                self._blocks = 0
            self._since[way] = self._since.get(way, 0) + 1
        unsure = self._unsure(others)
        self.found = not unsure or self._blocks % ANEW > GIVEN_UP
        if unsure:
            self.comparing = not self.found
        else:
            unsure = [way for way in others if self._due(way)]
            self.comparing = bool(unsure)
        self.now = self.held
        if self.comparing and self._of(self.held):
            self.now = min(unsure, key=lambda way: (len(self._of(way)), -self._since.get(way, 0), way))
        self._since[self.now], self._costs[self.now] = 0, ways[self.now]

    def _of(self, way: Way) -> Sequence[float]:
        return self._times.get(way, ())

    def _move(self, ways: Iterable[Way]) -> None:
        """Take a quicker way, if one is known."""
        own = self._of(self.held)
        known = [way for way in ways if own and self._of(way)]
        sure = {way: min(len(own), len(self._of(way))) == COMPARED for way in known}
        quicker = [way for way in known if max(self._of(way)) * (GAIN if sure[way] else CLEAR) < min(own)]
        self.held = min(quicker, key=lambda way: (max(self._of(way)), way), default=self.held)

    def _unsure(self, others: Sequence[Way]) -> list[Way]:
        """Return the ways that have to be compared yet, with the one in use."""
        own = self._of(self.held)
        unsure = [
            way
            for way in others
            if len(self._of(way)) < COMPARED
            and not (own and self._of(way) and min(self._of(way)) > CLEAR * max(own))
        ]
        return [*unsure, self.held] if len(own) < COMPARED else unsure

    def _due(self, way: Way) -> bool:
        """Whether it is time to see whether a slower way is still so."""
        since, own_s = self._since[way], min(self._of(self.held))
        excess_s = min(self._of(way)) - own_s
        return since >= RETRY and since * own_s * RETRY_BUDGET >= excess_s
