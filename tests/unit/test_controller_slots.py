# SPDX-License-Identifier: Apache-2.0
"""Slot ranges never overlap, and no slot gets a serial number that it may have seen before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from railweave.controller.errors import Refused
from railweave.controller.slots import FIRST_START, HALF, SlotRange, SlotSpace, newer

SLOTS = 64


class SlotsInUse(RuleBasedStateMachine):
    """A switch's registers and its SlotSpace. The model remembers the newest tag of every slot."""

    def __init__(self) -> None:
        super().__init__()
        self.space = SlotSpace("s", SLOTS)
        self.registers = [0] * SLOTS
        self.running: dict[int, SlotRange] = {}
        self.rounds: dict[int, int] = {}  # by group: completed rounds
        self.counted: dict[int, int] = {}  # by group: rounds completed since the switch started
        self.next_group = 1

    @rule(exponent=st.integers(0, 6))
    def begin(self, exponent: int) -> None:
        group, size = self.next_group, 1 << exponent
        self.next_group += 1
        bases = range(0, SLOTS, size)
        if not any(all(self.owner(slot) is None for slot in range(b, b + size)) for b in bases):
            with pytest.raises(Refused, match=f"no {size} slots in a row are free on switch s"):
                self.space.allocate(group, size)
            return
        taken = self.space.allocate(group, size)
        assert taken.base % size == 0
        for slot in range(taken.base, taken.base + size):
            assert self.owner(slot) is None
            assert newer(taken.start, self.registers[slot])
        self.running[group] = taken

    def owner(self, slot: int) -> int | None:
        for group, taken in self.running.items():
            if taken.base <= slot < taken.base + taken.size:
                return group
        return None

    @precondition(lambda self: self.running)
    @rule(data=st.data(), rounds=st.integers(1, 5000))
    def work(self, data: st.DataObject, rounds: int) -> None:
        group = data.draw(st.sampled_from(sorted(self.running)))
        taken = self.running[group]
        self.rounds[group] = self.rounds.get(group, 0) + rounds
        self.counted[group] = self.counted.get(group, 0) + rounds
        for slot in range(taken.base, taken.base + taken.size):
            tag = taken.start + self.rounds[group] - 1
            assert newer(tag, self.registers[slot])
            self.registers[slot] = tag

    @precondition(lambda self: self.running)
    @rule(data=st.data(), margin=st.integers(1, 4096))
    def end(self, data: st.DataObject, margin: int) -> None:
        group = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[group]
        self.space.release(group, self.counted.get(group, 0) + margin)

    @rule()
    def restart_controller(self) -> None:
        """Start a new controller. It learns from the switch's notes and from running groups' entries."""
        notes, space = self.space.serials(), SlotSpace("s", SLOTS)
        space.remember(notes)
        for group, taken in self.running.items():
            space.adopt(group, taken)
        self.space = space

    @rule()
    def restart_switch(self) -> None:
        self.space.reset()
        self.registers = [0] * SLOTS
        self.counted.clear()
        self.running.clear()

    @invariant()
    def ranges_are_disjoint(self) -> None:
        assert self.space.taken == self.running
        slots = [slot for r in self.running.values() for slot in range(r.base, r.base + r.size)]
        assert len(slots) == len(set(slots))


TestSlotsInUse = SlotsInUse.TestCase


@given(a=st.integers(0, 2**32 - 1), step=st.integers(1, HALF - 1))
def test_serial_numbers_compare_across_the_wrap(a: int, step: int) -> None:
    later = (a + step) % 2**32
    assert newer(later, a)
    assert not newer(a, later)
    assert not newer(a, a)


def test_starts_go_on_across_the_wrap_and_from_the_first_after_registers_are_lost() -> None:
    space = SlotSpace("s", 8)
    space.adopt(1, SlotRange(0, 8, 2**32 - 10))
    space.release(1, 100)
    assert space.allocate(2, 8).start == 90
    space.reset()
    assert space.allocate(3, 8).start == FIRST_START


@pytest.mark.parametrize("size", [0, 3, 12, SLOTS * 2])
def test_sizes_are_powers_of_two_that_fit(size: int) -> None:
    with pytest.raises(Refused, match=f"{size} slots: expected a power of two up to {SLOTS}"):
        SlotSpace("s", SLOTS).allocate(1, size)


def test_numbers_count_both_copies() -> None:
    taken = SlotRange(base=512, size=256, start=1)
    assert (taken.first_number, taken.mask) == (1024, 511)
