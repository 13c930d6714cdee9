# SPDX-License-Identifier: Apache-2.0
"""Whether short calls take rails of one kind and rate in turn, found by doing both.

The link of one rail rests while another's works, which is quicker where calls follow each other faster than a
link sends them, and slower where processors are what calls wait for. No time of one call tells which.
"""

from __future__ import annotations

from collections import deque

BLOCK = 32  # calls of a comparison at least, beside those that are measured one by one
SETTLING = 8  # calls of a block that do not count: links have rested before them
COMPARED = 3  # blocks of each way
CLEAR = 1.25  # turns that were slower by this factor need no second block
GIVEN_UP = 4 * COMPARED  # blocks of both, when some have told nothing
RETRY = 16  # blocks of the quicker way to one of the other; more where that costs more
ANEW = 4 * RETRY  # blocks after which those that have told nothing are tried anew
GAIN = 1.02  # turns must be quicker by this factor: every block of them than every other


class Turns:
    """The two ways of one class of calls, which change from survey to survey: a block lies between two."""

    def __init__(self) -> None:
        """Begin with one rail."""
        self.on = False  # calls take turns now
        self.comparing = False  # this block is there to compare
        self._times = {on: deque[float](maxlen=COMPARED) for on in (False, True)}
        self._blocks = 0  # since both are compared or the latest retry

    def learn(self, on: bool, time_s: float) -> None:
        """Take the agreed mean time of the calls of a block."""
        self._times[on].append(time_s)

    def advance(self) -> None:
        """Choose the way of the next block."""
        self._blocks += 1
        one, turns = self._times[False], self._times[True]
        slower = bool(one) and bool(turns) and min(turns) > CLEAR * max(one)
        if min(len(one), len(turns)) < COMPARED and not slower:
            self.comparing = self._blocks % ANEW <= GIVEN_UP
            self.on = self.comparing and not self.on
            return
        better = max(turns) * GAIN < min(one)
        quicker, other = (turns, one) if better else (one, turns)
        self.comparing = self._blocks * min(quicker) > RETRY * min(other)
        self.on = better is not self.comparing
        if self.comparing:
            self._blocks = 0
