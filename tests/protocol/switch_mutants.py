# SPDX-License-Identifier: Apache-2.0
"""Mutants of the switch and of a move. Some schedule of the in-network rail must catch each mutant."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from protocol.network import Node, Shape, tree_of
from protocol.schedules import Job, Schedule
from protocol.seeds import Make
from protocol.switch_model import Membership, Output, Packet, SwitchModel

# --- mutants of the switch: each lacks one rule ---


class NoTagCheck(SwitchModel):
    """The switch treats late packets of an earlier round as packets of the current round."""

    def _contribute(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        return super()._contribute(packet, member, index, max(age, 0))


class OneCopy(SwitchModel):
    """Ranks reuse a slot while others may still miss its last result."""

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
    """A leaf forgets that its slot holds the result, and sends the result up as its children's sum."""

    def _from_parent(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        outputs = super()._from_parent(packet, member, index, age)
        self.present[index] = False
        return outputs


class NoSeen(SwitchModel):
    """The switch adds a retransmission once more."""

    def _contribute(self, packet: Packet, member: Membership, index: int, age: int) -> list[Output]:
        bit = np.uint32(1 << packet.child)
        if age == 0 and self.seen[index] & bit:
            self.values[index] += self._contributed(packet)
        return super()._contribute(packet, member, index, age)


def tree_with(switch: type[SwitchModel], shape: Shape, lanes: int) -> Node:
    """Build a tree of switches of one type."""
    root = tree_of(shape, lanes)
    for node in root.nodes():
        node.switch = switch(lanes, [])
    return root


# --- mutants of a move ---


def own_position(positions: list[int]) -> list[int]:
    """Let each rank resume from its own first missing result."""
    return positions


class SameStart(Schedule):
    """A group takes over a slot range, and reuses serial numbers of the earlier group."""

    def leave(self, job: Job) -> None:
        start = job.start
        super().leave(job)
        job.start = start


SAME = partial(tree_with, SwitchModel)
MUTANTS: dict[str, Make] = {
    "no tag check": partial(Schedule, tree=partial(tree_with, NoTagCheck)),
    "one copy": partial(Schedule, tree=partial(tree_with, OneCopy)),
    "no RESULT PRESENT": partial(Schedule, tree=partial(tree_with, NoResultPresent)),
    "no bitmap": partial(Schedule, tree=partial(tree_with, NoSeen)),
    "resume from the own position": partial(Schedule, tree=SAME, resume_from=own_position),
    "the same start again": partial(SameStart, tree=SAME),
}
UNCHANGED: Make = partial(Schedule, tree=SAME)
