# SPDX-License-Identifier: Apache-2.0
"""One switch's slots: the taken ranges, and the serial numbers that each slot may have seen.

The switch compares a slot's `tag` register as a serial number (design: "Serial numbers never restart inside
a slot range"), and the controller never writes registers. So the controller keeps the first serial number
of a range's next user for as long as the switch keeps its registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from railweave.controller.errors import Refused
from railweave.p4src.config import CONFIG

MIN_SLOTS = CONFIG["GROUP_STEP"] // 2  # of a group
FIRST_START = 1  # registers are 0 when a switch starts, and 0 is not newer than 0
SERIAL_MASK = 2**32 - 1
FEWER = "lower --slots or --quota of the controller"  # what to do
HALF = 2**31  # RFC 1982 defines the order of two serial numbers up to this distance


@dataclass(frozen=True)
class SlotRange:
    """`size` slots (a power of two) from slot `base`, two copies each. `start` is added to rounds."""

    base: int
    size: int
    start: int

    @property
    def first_number(self) -> int:
        """The first slot number. Slot numbers count copies."""
        return 2 * self.base

    @property
    def mask(self) -> int:
        """The bits that a slot number within the range may have."""
        return 2 * self.size - 1


@dataclass(frozen=True)
class Serials:
    """In `size` slots from `base`, the next group starts at serial number `start`."""

    base: int
    size: int
    start: int


def newer(a: int, b: int) -> bool:
    """Return whether serial number a is newer than b (RFC 1982, 32 bits)."""
    return 0 < (a - b) & SERIAL_MASK < HALF


class SlotSpace:
    """First fit of aligned power-of-two ranges over the slots of one switch.

    A mask can check an aligned power-of-two range. First fit keeps the ranges of equal jobs dense.
    """

    def __init__(self, switch: str, slots: int) -> None:
        """Start with an empty switch with `slots` slots (pairs of copies)."""
        self.switch = switch
        self.slots = slots
        self._taken: dict[int, SlotRange] = {}
        self._start = [FIRST_START] * slots

    @property
    def taken(self) -> dict[int, SlotRange]:
        """The range of every group that has slots."""
        return dict(self._taken)

    def allocate(self, group: int, size: int) -> SlotRange:
        """Give a group `size` slots with unused serial numbers. Refused names the limit."""
        if size < 1 or size & (size - 1) or size > self.slots:
            raise Refused(f"{size} slots", f"a power of two up to {self.slots}", FEWER)
        for base in range(0, self.slots, size):
            if self._free(base, size):
                start = self._newest(base, size)
                self._taken[group] = SlotRange(base, size, start)
                return self._taken[group]
        used = sum(taken.size for taken in self._taken.values())
        raise Refused(
            f"no {size} slots in a row are free on switch {self.switch}, "
            f"where {len(self._taken)} groups hold {used} of {self.slots}",
            "fewer or smaller groups",
            f"end a job, or {FEWER}",
        )

    def adopt(self, group: int, taken: SlotRange) -> None:
        """Take over a range that the switch's tables already give to a group."""
        self._taken[group] = taken
        self._raise(taken.base, taken.size, taken.start)

    def release(self, group: int, rounds: int = 0) -> None:
        """End a group that has used up to `rounds` rounds. The next user's serial numbers start later."""
        taken = self._taken.pop(group, None)
        if taken:
            self._raise(taken.base, taken.size, (taken.start + rounds) & SERIAL_MASK)

    def reset(self) -> None:
        """Forget all groups, because the switch has lost its registers. Serial numbers may start again."""
        self._start = [FIRST_START] * self.slots
        self._taken.clear()

    def serials(self) -> tuple[Serials, ...]:
        """Return the used ranges with their next serial numbers, which must outlive the controller."""
        result, base = [], 0
        for start, run in groupby(self._start):
            size = len(list(run))
            if start != FIRST_START:
                result.append(Serials(base, size, start))
            base += size
        return tuple(result)

    def remember(self, serials: Iterable[Serials]) -> None:
        """Restore a result of `serials`, possibly of an earlier controller process. The newest counts."""
        for known in serials:
            self._raise(known.base, known.size, known.start)

    def _free(self, base: int, size: int) -> bool:
        return all(
            base + size <= taken.base or taken.base + taken.size <= base for taken in self._taken.values()
        )

    def _newest(self, base: int, size: int) -> int:
        newest = self._start[base]
        for start in self._start[base : base + size]:
            if newer(start, newest):
                newest = start
        return newest

    def _raise(self, base: int, size: int, start: int) -> None:
        for slot in range(base, min(base + size, self.slots)):
            if newer(start, self._start[slot]):
                self._start[slot] = start
