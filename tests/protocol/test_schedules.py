# SPDX-License-Identifier: Apache-2.0
"""Some hundred seeded schedules; and mutants of switch and endpoint, which some schedule must catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from protocol import schedules
from protocol.network import HangError, Node, Shape, tree_of
from protocol.schedules import LANES, Schedule, run_seed
from protocol.seeds import total
from protocol.switch_model import Membership, Output, Packet, SwitchModel

SEEDS = range(240)
MUTANT_SEEDS = range(400)


@pytest.mark.parametrize("part", range(4))
def test_schedules(part: int, record_property: Callable[[str, object], None]) -> None:
    counts = total(run_seed, SEEDS[part::4])
    assert set(counts) == {"move", "restart", "cut", "death", "packets"}


def test_a_seed_repeats_itself() -> None:
    first, second = run_seed(3), run_seed(3)
    assert first == second
    assert first.packets > 0


# --- mutants of the switch: one rule less ---


class NoTagCheck(SwitchModel):
    """Late packets of an earlier round are taken for those of this one."""

    def _contribute(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        return super()._contribute(packet, member, index, max(age, 0))


class OneCopy(SwitchModel):
    """A slot is used again while ranks may still lack its last result."""

    def process(self, port: int | str, data: bytes) -> list[Output]:
        packet = Packet.parse(data)
        if packet is None or packet.kind == 2:
            return super().process(port, data)
        once = replace(packet, slot=packet.slot & ~1, round=packet.round * 2 + (packet.slot & 1))
        return [(out, self._undo(each)) for out, each in super().process(port, once.encode())]

    @staticmethod
    def _undo(data: bytes) -> bytes:
        packet = Packet.parse(data)
        assert packet is not None
        twice = replace(packet, slot=packet.slot | (packet.round & 1), round=packet.round >> 1)
        return twice.encode()


class NoResultPresent(SwitchModel):
    """A leaf forgets that what it holds is the result, and sends it up as its children's sum."""

    def _from_parent(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        outputs = super()._from_parent(packet, member, index, age)
        self.present[index] = False
        return outputs


class NoSeen(SwitchModel):
    """A retransmission is added once more."""

    def _contribute(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        bit = np.uint32(1 << packet.child)
        if age == 0 and self.seen[index] & bit:
            self.values[index] += np.frombuffer(packet.lanes, ">i4").astype(np.int32)
        return super()._contribute(packet, member, index, age)


def tree_with(switch: type[SwitchModel]) -> Callable[[Shape], Node]:
    """Trees of such switches."""

    def make(shape: Shape) -> Node:
        root = tree_of(shape, LANES)
        for node in root.nodes():
            node.switch = switch(LANES, [])
        return root

    return make


# --- mutants of a move ---


def own_position(positions: list[int]) -> list[int]:
    """Each rank resumes from where it lacks results itself."""
    return positions


class SameStart(Schedule):
    """A group takes a range over without going beyond the serial numbers used in it."""

    def leave(self, job: schedules.Job) -> None:
        start = job.start
        super().leave(job)
        job.start = start


@dataclass(frozen=True)
class Mutant:
    """What a schedule is made with."""

    switch: type[SwitchModel] = SwitchModel
    resume_from: schedules.Choose = schedules.least
    schedule: type[Schedule] = Schedule


MUTANTS = {
    "no tag check": Mutant(NoTagCheck),
    "one copy": Mutant(OneCopy),
    "no RESULT PRESENT": Mutant(NoResultPresent),
    "no bitmap": Mutant(NoSeen),
    "resume from the own position": Mutant(resume_from=own_position),
    "the same start again": Mutant(schedule=SameStart),
}


def caught(mutant: Mutant, seed: int) -> bool:
    """Whether this seed's schedule shows the mutant."""
    schedule = mutant.schedule(seed, tree_with(mutant.switch), mutant.resume_from)
    try:
        schedule.run()
    except (AssertionError, HangError, ValueError):
        return True
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str) -> None:
    assert any(caught(MUTANTS[name], seed) for seed in MUTANT_SEEDS)


def test_the_model_itself_is_not_caught() -> None:
    assert not any(caught(Mutant(), seed) for seed in range(60))
