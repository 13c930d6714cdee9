# SPDX-License-Identifier: Apache-2.0
"""A reference of the switch that sums the WRITEs of rings, and random packets for it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from dataplane.harness import Frames
from dataplane.ring import IMMEDIATE, RETH, WRITES, Ring, lanes
from dataplane.ring_tree import RingTree, leaves
from numpy.typing import NDArray

from railweave._native.roce import Opcode

ABOVE = 31  # the sender's number of the switch above
HALF = 2**23  # of the circle of indices
CORNERS = (0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1)

Lanes = NDArray[np.uint64]


class Way(NamedTuple):
    """A member's connection to the next member, or the link of a leaf and the root."""

    of: str  # "member" or "leaf"
    number: int


class Copy(NamedTuple):
    """A way of a sum. Its RETH, immediate data and ACK request are those of the sender `kept`."""

    way: Way
    kept: int


def member(number: int) -> Way:
    return Way("member", number)


def leaf(number: int) -> Way:
    return Way("leaf", number)


@dataclass(frozen=True)
class World:
    """A switch of a tree. The members 0, 1, … have the ports 1, 2, …; a leaf's port to the root is 4.

    `answers` has a copy for each contributor, for a repeated packet. `down` has the copies of the sum of all.
    """

    at: Mapping[int, int | None]  # by member: its leaf, or None for the root
    place: int | None  # of this switch
    contributors: tuple[Way, ...]
    answers: tuple[Copy, ...]
    down: tuple[Copy, ...]
    up: Copy | None = None

    @property
    def senders(self) -> dict[int, Way]:
        above = {ABOVE: self.up.way} if self.up else {}
        return dict(enumerate(self.contributors)) | above

    def tree(self, ring: Ring) -> RingTree:
        return RingTree(ring, leaves(2), self.at)


def _alone(count: int) -> World:
    copies = tuple(Copy(member(n), n) for n in range(count))
    return World(dict.fromkeys(range(count)), None, tuple(map(member, range(count))), copies, copies)


_TWO_LEAVES = {0: 0, 1: 0, 2: 1}
_AT_ROOT = (Copy(leaf(0), 1), Copy(leaf(1), 0))
WORLDS = {
    "three members": _alone(3),
    "two members": _alone(2),
    "one member": _alone(1),
    "a leaf of two": World(
        *(_TWO_LEAVES, 0, (member(0), member(1))),
        answers=(Copy(member(0), 0), Copy(member(1), 1)),
        down=(Copy(member(2), ABOVE), Copy(member(0), 0)),
        up=Copy(leaf(0), 1),
    ),
    "a leaf of one": World(
        *(_TWO_LEAVES, 1, (member(2),)),
        answers=(Copy(member(2), 0),),
        down=(Copy(member(1), ABOVE),),
        up=Copy(leaf(1), 0),
    ),
    "a root of leaves": World(_TWO_LEAVES, None, (leaf(0), leaf(1)), _AT_ROOT, _AT_ROOT),
    "a root of a member and a leaf": World(
        *({0: 0, 1: 0, 2: None}, None, (member(2), leaf(0))),
        answers=(Copy(member(2), 0), Copy(leaf(0), 0)),
        down=(Copy(leaf(0), 0), Copy(member(1), 1)),
    ),
}


@dataclass(frozen=True)
class Sent:
    """A packet of a sender. `shape` is its opcode and partition. None as values means an empty packet."""

    ring: Ring
    sender: int
    index: int
    shape: tuple[Opcode, int]
    values: Lanes | None
    own: Mapping[str, Any]
    ack_request: bool


@dataclass
class Slot:
    """The state of a slot. It holds the sum so far, and the other fields that its senders have sent."""

    epoch: int
    index: int
    shape: tuple[Opcode, int]
    values: Lanes
    seen: set[int] = field(default_factory=set)
    requests: set[int] = field(default_factory=set)
    own: dict[int, Mapping[str, Any]] = field(default_factory=dict)


class RingModel:
    """The slots of one switch, and the effect of each packet on them."""

    def __init__(self, world: World, width: int) -> None:
        self.world = world
        self.width = width
        self.slots: dict[int, Slot] = {}

    def process(self, packet: Sent) -> tuple[str, Frames]:
        """Return the name of the switch's decision, and the packets that leave."""
        ring, above = packet.ring, packet.sender == ABOVE
        if packet.values is None:
            return ("late_result" if above else "bad_length"), []
        cell = ring.slot_base + packet.index % ring.slots
        slot = self.slots.get(cell)
        if slot is None or _newer(packet, slot):
            empty = np.zeros(self.width, np.uint64)
            slot = self.slots[cell] = Slot(ring.epoch, packet.index, packet.shape, empty)
        elif (ring.epoch, packet.index) != (slot.epoch, slot.index):
            return ("late_result", []) if above else ("acknowledge", [self._empty(packet)])
        if packet.shape != slot.shape:
            return "mismatch", []
        slot.own[packet.sender] = packet.own
        slot.requests |= {packet.sender} if packet.ack_request else set()
        again = packet.sender in slot.seen
        has_result = ABOVE in slot.seen
        slot.seen.add(packet.sender)
        if above:
            slot.values = slot.values if again else packet.values
        elif not again and not has_result:
            slot.values = (slot.values + packet.values) % 2**32
        complete = set(range(len(self.world.contributors))) <= slot.seen
        action, copies = self._decide(packet.sender, again, complete, has_result)
        return action, [self._copy(ring, slot, copy) for copy in copies]

    def _decide(
        self, sender: int, again: bool, complete: bool, has_result: bool
    ) -> tuple[str, Sequence[Copy]]:
        up, down = self.world.up, self.world.down
        if sender == ABOVE:
            if again:
                return "late_result", ()
            return ("deliver_down", down) if complete else ("early_result", ())
        if has_result or (again and complete and not up):
            return "repeat", [self.world.answers[sender]]
        if not complete:
            return ("duplicate" if again else "absorb"), ()
        if up:
            return ("forward_up_again" if again else "forward_up"), [up]
        return "result", down

    def _copy(self, ring: Ring, slot: Slot, copy: Copy) -> tuple[int, bytes]:
        opcode, partition = slot.shape
        fields = dict(slot.own[copy.kept]) | {"partition": partition}
        fields["ack_request"] = copy.kept in slot.requests
        return self._leaves(ring, copy.way, slot.index, lanes(slot.values), opcode, fields)

    def _empty(self, packet: Sent) -> tuple[int, bytes]:
        """Return an empty duplicate, which the receiver answers by an acknowledgement."""
        way, kept = self.world.answers[packet.sender]
        fields = {"ack_request": kept == packet.sender, "partition": packet.shape[1]}
        return self._leaves(packet.ring, way, packet.index, b"", Opcode.WRITE_MIDDLE, fields)

    def _leaves(
        self, ring: Ring, way: Way, index: int, payload: bytes, opcode: Opcode, fields: Mapping[str, Any]
    ) -> tuple[int, bytes]:
        tree = self.world.tree(ring)
        if way.of == "leaf":
            there = tree.leaves[way.number]
            port = there.down if self.world.place is None else there.up
            return port, there.frame(ring, index, payload, opcode, **fields)
        m = ring.members[way.number]
        data = ring.frame(m, index, payload, opcode, **{"qpn": m.qp, **fields})
        return tree.way(self.world.place, ring.next(m)), data


def _newer(packet: Sent, slot: Slot) -> bool:
    """Compare epochs, then indices as serial numbers of 24 bits (RFC 1982)."""
    if packet.ring.epoch != slot.epoch:
        return packet.ring.epoch > slot.epoch
    return 0 < (packet.index - slot.index) % 2**24 < HALF


def arrives(world: World, packet: Sent) -> tuple[int, bytes]:
    """Return the port and the frame of a packet that a sender sends to the switch."""
    ring, way = packet.ring, world.senders[packet.sender]
    payload = b"" if packet.values is None else lanes(packet.values)
    opcode, partition = packet.shape
    fields = {**packet.own, "partition": partition, "ack_request": packet.ack_request}
    if way.of == "member":
        m = ring.members[way.number]
        return m.port, ring.frame(m, packet.index, payload, opcode, **fields)
    there = world.tree(ring).leaves[way.number]
    port = there.down if world.place is None else there.up
    return port, there.frame(ring, packet.index, payload, opcode, **fields)


def lap(world: World, rng: random.Random, ring: Ring, first: int, width: int) -> Iterator[Sent]:
    """Yield the packets of all slots from index `first` on, shuffled.

    Most chunks get all contributions. Some senders repeat a packet, or send a late, empty or foreign one.
    """
    events: list[tuple[float, Sent]] = []
    for index in range(first, first + ring.slots):
        opcode = rng.choice(WRITES)
        for sender in world.senders:
            if rng.random() < 0.05:
                continue  # the chunk stays incomplete
            values = np.array(rng.choices([*CORNERS, rng.getrandbits(32)], k=width), np.uint64)
            own: dict[str, Any] = {}
            if opcode in RETH:
                own["reth"] = (rng.getrandbits(64), rng.getrandbits(32), rng.getrandbits(32))
            if opcode in IMMEDIATE:
                own["immediate"] = rng.getrandbits(32)
            packet = Sent(ring, sender, index % 2**24, (opcode, 0xFFFF), values, own, rng.random() < 0.3)
            late = 0.5 if sender == ABOVE else 0.0  # the sum of all usually follows all contributions
            events.append((late + rng.random(), packet))
            for _ in range(rng.choice((0, 0, 1, 2))):
                again = rng.choice((packet, packet, replace(packet, ack_request=True), *_odd(packet)))
                events.append((rng.random() * 1.5, again))
    yield from (packet for _, packet in sorted(events, key=lambda event: event[0]))


def _odd(packet: Sent) -> Iterator[Sent]:
    yield replace(packet, values=None, shape=(Opcode.WRITE_MIDDLE, 0xFFFF), own={})
    yield replace(packet, shape=(Opcode.WRITE_MIDDLE, 0x7FFF), own={})
    for behind in (packet.ring.slots, HALF):
        yield replace(packet, index=(packet.index - behind) % 2**24)
