# SPDX-License-Identifier: Apache-2.0
"""Sums on RoCEv2 connections in trees of switches. The tests compare all bits of the output."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dataplane.harness import Frames, Switch
from dataplane.packets import frame
from dataplane.programs import netreduce
from dataplane.ring import IMMEDIATE, RETH, WRITES, Ring, RingMember, lanes, ring_members
from dataplane.ring_tree import RingTree, leaves

from railweave._native.roce import Opcode

MIDDLE = Opcode.WRITE_MIDDLE
LEAVES = {0: 1, 1: 2}  # by leaf: the member whose connection leads to the other leaf


@pytest.fixture(params=[256, 64], ids=lambda lanes: f"lanes{lanes}")
def switch(request: pytest.FixtureRequest, target: Switch) -> Switch:
    return target.load(netreduce(request.param))


class Part:
    """One switch of a tree, and the packets that it sums.

    Members 0 and 1 are on ports 1 and 2 of leaf 0. Member 2 is on port 3 of leaf 1.
    """

    def __init__(self, switch: Switch, leaf: int | None, tree: RingTree | None = None) -> None:
        self.switch = switch
        ring = Ring(switch, ring_members(3))
        self.tree = tree or RingTree(ring, leaves(2), {0: 0, 1: 0, 2: 1})
        self.ring = self.tree.ring
        self.leaf = leaf
        self.tree.install(switch, leaf)

    def ramp(self, factor: int) -> bytes:
        return lanes(np.arange(self.switch.lanes, dtype=np.int64) * factor)

    def own(self, m: RingMember, opcode: Opcode) -> dict[str, Any]:
        """Return the fields that are specific to this member's packet."""
        fields: dict[str, Any] = {}
        if opcode in RETH:
            fields["reth"] = (0xABCD_0123_0000 + m.number, 0xBEEF0000 + m.number, 4 * self.switch.lanes)
        if opcode in IMMEDIATE:
            fields["immediate"] = 0x1000 * m.number + 7
        return fields

    def contribute(
        self, number: int, index: int, factor: int, opcode: Opcode = MIDDLE, **fields: Any
    ) -> Frames:
        """Send a contribution of a member at this switch, and return the output."""
        m = self.ring.members[number]
        data = self.ring.frame(m, index, self.ramp(factor), opcode, **self.own(m, opcode) | fields)
        return self.switch.exchange(m.port, data)

    def arrives(self, number: int, index: int, factor: int, opcode: Opcode = MIDDLE, **fields: Any) -> bytes:
        """Return the sum as the switch sends it on a member's connection."""
        m = self.ring.members[number]
        fields = {"qpn": m.qp} | self.own(m, opcode) | fields
        return self.ring.frame(m, index, self.ramp(factor), opcode, **fields)

    def between(
        self, leaf: int, of: int, index: int, factor: int, opcode: Opcode = MIDDLE, **fields: Any
    ) -> bytes:
        """Return a packet between a leaf and the root, with the fields of member `of`."""
        fields = self.own(self.ring.members[of], opcode) | fields
        return self.tree.leaves[leaf].frame(self.ring, index, self.ramp(factor), opcode, **fields)

    def going_up(self, leaf: int, index: int, factor: int, opcode: Opcode = MIDDLE, **fields: Any) -> bytes:
        return self.between(leaf, LEAVES[leaf], index, factor, opcode, **fields)

    def going_down(self, leaf: int, index: int, factor: int, opcode: Opcode = MIDDLE, **fields: Any) -> bytes:
        """Return the root's packet to a leaf, for the connection that leads to this leaf."""
        return self.between(leaf, LEAVES[1 - leaf], index, factor, opcode, **fields)

    def decided(self) -> dict[str, int]:
        return {name: count for name, count in self.switch.action_packets("decide").items() if count}


class AtLeaf(Part):
    """Leaf 0."""

    def __init__(self, switch: Switch) -> None:
        super().__init__(switch, 0)
        self.uplink = self.tree.leaves[0]

    def from_above(self, data: bytes) -> Frames:
        return self.switch.exchange(self.uplink.up, data)

    def goes_up(self, index: int, factor: int, opcode: Opcode = MIDDLE, **fields: Any) -> Frames:
        return [(self.uplink.up, self.going_up(0, index, factor, opcode, **fields))]

    def down(self, index: int, factor: int, opcode: Opcode = MIDDLE, **fields: Any) -> bytes:
        return self.going_down(0, index, factor, opcode, **fields)

    def all_get(self, index: int, factor: int, opcode: Opcode = MIDDLE) -> Frames:
        """Return the sums on the connections to members here, from member 2 and from member 0."""
        return [
            (1, self.arrives(2, index, factor, opcode)),
            (2, self.arrives(0, index, factor, opcode)),
        ]

    def complete(self, index: int, factor: int) -> None:
        assert self.contribute(0, index, factor) == []
        assert self.contribute(1, index, factor) == self.goes_up(index, 2 * factor)


class AtRoot(Part):
    """The root of leaves 0 and 1."""

    def __init__(self, switch: Switch) -> None:
        super().__init__(switch, None)

    def contribute_leaf(
        self, leaf: int, index: int, factor: int, opcode: Opcode = MIDDLE, **fields: Any
    ) -> Frames:
        data = self.going_up(leaf, index, factor, opcode, **fields)
        return self.switch.exchange(self.tree.leaves[leaf].down, data)

    def goes_down(self, index: int, factor: int, opcode: Opcode = MIDDLE) -> Frames:
        return [
            (of.down, self.going_down(leaf, index, factor, opcode))
            for leaf, of in enumerate(self.tree.leaves)
        ]


@pytest.fixture
def leaf(switch: Switch) -> AtLeaf:
    return AtLeaf(switch)


@pytest.fixture
def root(switch: Switch) -> AtRoot:
    return AtRoot(switch)


# A leaf.


@pytest.mark.parametrize("asks", [0, 1])
@pytest.mark.parametrize("opcode", WRITES, ids=lambda opcode: opcode.name)
def test_a_leafs_own_sum_goes_up_and_that_of_all_goes_on(leaf: AtLeaf, opcode: Opcode, asks: int) -> None:
    """RETH, immediate data and the ACK request of the connection to the other leaf go up."""
    assert leaf.contribute(1, 5, 3, opcode, ack_request=asks == 1) == []
    up = leaf.goes_up(5, 7, opcode, ack_request=asks == 1)
    assert leaf.contribute(0, 5, 4, opcode, ack_request=asks == 0) == up
    assert sorted(leaf.from_above(leaf.down(5, 100, opcode, ack_request=asks == 1))) == [
        (1, leaf.arrives(2, 5, 100, opcode, ack_request=asks == 1)),
        (2, leaf.arrives(0, 5, 100, opcode, ack_request=asks == 0)),
    ]
    assert leaf.decided() == {"absorb": 1, "forward_up": 1, "deliver_down": 1}


def test_indices_between_switches_wrap_with_psns(leaf: AtLeaf) -> None:
    for index in (2**24 - 2, 2**24 - 1, 2**24, 2**24 + 5):
        leaf.complete(index, 2)
        assert sorted(leaf.from_above(leaf.down(index, 9))) == leaf.all_get(index, 9)


def test_a_packet_that_is_repeated_sends_the_leafs_sum_up_again(leaf: AtLeaf) -> None:
    assert leaf.contribute(0, 0, 1) == leaf.contribute(0, 0, 1) == []
    assert leaf.contribute(1, 0, 1) == leaf.goes_up(0, 2)
    for number in (0, 1, 1):
        assert leaf.contribute(number, 0, 1) == leaf.goes_up(0, 2)
    assert leaf.decided() == {"absorb": 1, "duplicate": 1, "forward_up": 1, "forward_up_again": 3}


@pytest.mark.parametrize("opcode", WRITES, ids=lambda opcode: opcode.name)
def test_a_leaf_that_has_the_sum_of_all_answers_itself(leaf: AtLeaf, opcode: Opcode) -> None:
    for number in (0, 1):
        leaf.contribute(number, 0, 1, opcode)
    leaf.from_above(leaf.down(0, 50, opcode))
    for number, port in ((0, 2), (1, leaf.uplink.up)):
        again = leaf.contribute(number, 0, 1, opcode, ack_request=True)
        assert again == [(port, leaf.arrives(number, 0, 50, opcode, ack_request=True))]
    assert leaf.decided()["repeat"] == 2


def test_a_sum_from_above_counts_once_and_not_too_late(leaf: AtLeaf) -> None:
    size = leaf.ring.slots
    for index in (0, size):
        leaf.complete(index, 1)
        down = leaf.down(index, 50 + index)
        assert sorted(leaf.from_above(down)) == leaf.all_get(index, 50 + index)
        assert leaf.from_above(down) == []
    assert leaf.from_above(leaf.down(0, 50)) == []
    assert leaf.decided()["late_result"] == 3
    assert leaf.contribute(0, size, 1) == [(2, leaf.arrives(0, size, 50 + size))]  # unchanged


def test_an_empty_packet_from_above_changes_nothing(leaf: AtLeaf) -> None:
    """The root sends an empty packet if its slot already holds a later index."""
    leaf.complete(0, 1)
    assert leaf.from_above(leaf.uplink.frame(leaf.ring, 0, b"", MIDDLE, ack_request=True)) == []
    assert leaf.decided()["late_result"] == 1
    assert sorted(leaf.from_above(leaf.down(0, 50))) == leaf.all_get(0, 50)


@pytest.mark.parametrize("before", [0, 1], ids=["first", "between"])
def test_a_sum_that_comes_before_what_members_repeat_is_kept_for_them(leaf: AtLeaf, before: int) -> None:
    """A restarted leaf holds a sum until it knows the headers of a member. It adds nothing to the sum."""
    if before:
        assert leaf.contribute(0, 3, 1, Opcode.WRITE_ONLY) == []
    assert leaf.from_above(leaf.down(3, 50, Opcode.WRITE_ONLY)) == []
    for number, port in ((0, 2), (1, leaf.uplink.up)):
        for _ in range(2):
            again = leaf.contribute(number, 3, 1, Opcode.WRITE_ONLY)
            assert again == [(port, leaf.arrives(number, 3, 50, Opcode.WRITE_ONLY))]
    assert leaf.decided() == {"early_result": 1, "repeat": 4} | ({"absorb": 1} if before else {})


def test_an_older_packet_at_a_leaf_goes_on_empty(leaf: AtLeaf) -> None:
    leaf.complete(leaf.ring.slots, 1)
    for number, port in ((0, 2), (1, leaf.uplink.up)):
        m = leaf.ring.members[number]
        empty = leaf.ring.frame(m, 0, b"", MIDDLE, qpn=m.qp, ack_request=True)
        assert leaf.contribute(number, 0, 1) == [(port, empty)]


def test_damage_and_other_shapes_from_above_are_refused(leaf: AtLeaf) -> None:
    leaf.complete(0, 1)
    down = leaf.down(0, 50)
    damaged = bytearray(down)
    damaged[-9] ^= 4
    assert leaf.from_above(bytes(damaged)) == []
    assert leaf.from_above(leaf.down(0, 50, Opcode.WRITE_LAST)) == []
    decided = leaf.decided()
    assert (decided["bad_icrc"], decided["mismatch"]) == (1, 1)
    assert sorted(leaf.from_above(down)) == leaf.all_get(0, 50)


def test_nobody_but_the_switch_above_speaks_for_it(leaf: AtLeaf) -> None:
    leaf.complete(0, 1)
    down = leaf.down(0, 50)
    for port in (1, 2):  # a member's
        assert leaf.switch.exchange(port, down) == []
    to_a_host = leaf.ring.members[0].mac.to_bytes(6) + down[6:]
    assert leaf.from_above(to_a_host) == [(1, to_a_host)]  # bridged as any other frame
    assert sorted(leaf.from_above(down)) == leaf.all_get(0, 50)


def test_what_is_for_members_elsewhere_passes_a_leaf_as_it_is(leaf: AtLeaf) -> None:
    ring, (a, _, c) = leaf.ring, leaf.ring.members
    acknowledgement = ring.frame(a, 0, b"", Opcode.ACKNOWLEDGE, aeth=(0, 0, 0))
    sum_of_c = leaf.arrives(2, 0, 50)  # made at member 2's leaf, for member 0
    assert leaf.from_above(sum_of_c) == [(a.port, sum_of_c)]
    to_c = c.mac.to_bytes(6) + acknowledgement[6:]
    assert leaf.switch.exchange(a.port, to_c) == [(leaf.uplink.up, to_c)]


def test_a_leaf_of_one_member_sends_everything_up(switch: Switch) -> None:
    part = Part(switch, 1)
    up = part.tree.leaves[1].up
    for _ in range(2):
        assert part.contribute(2, 7, 6, Opcode.WRITE_ONLY) == [
            (up, part.going_up(1, 7, 6, Opcode.WRITE_ONLY))
        ]
    down = part.going_down(1, 7, 60, Opcode.WRITE_ONLY)
    assert switch.exchange(up, down) == [(3, part.arrives(1, 7, 60, Opcode.WRITE_ONLY))]
    # The member's connection leads to the other leaf, which sends the sum. Here that sum was lost.
    assert part.contribute(2, 7, 6, Opcode.WRITE_ONLY) == [(up, part.arrives(2, 7, 60, Opcode.WRITE_ONLY))]


# A root.


@pytest.mark.parametrize("opcode", WRITES, ids=lambda opcode: opcode.name)
def test_the_roots_sum_goes_once_to_each_leaf(root: AtRoot, opcode: Opcode) -> None:
    assert root.contribute_leaf(1, 5, 3, opcode) == []
    assert sorted(root.contribute_leaf(0, 5, 4, opcode)) == root.goes_down(5, 7, opcode)
    assert root.decided() == {"absorb": 1, "result": 1}


def test_a_leaf_that_asks_again_is_answered_alone(root: AtRoot) -> None:
    assert root.contribute_leaf(0, 0, 1) == root.contribute_leaf(0, 0, 1) == []
    root.contribute_leaf(1, 0, 1)
    for number, of in enumerate(root.tree.leaves):
        assert root.contribute_leaf(number, 0, 1) == [(of.down, root.going_down(number, 0, 2))]
    assert root.decided() == {"absorb": 1, "duplicate": 1, "result": 1, "repeat": 2}


def test_a_leafs_older_packet_is_answered_by_an_empty_one(root: AtRoot) -> None:
    for number in (0, 1):
        root.contribute_leaf(number, root.ring.slots, 1)
    for number, of in enumerate(root.tree.leaves):
        assert root.contribute_leaf(number, 0, 1) == [(of.down, of.frame(root.ring, 0, b"", MIDDLE))]


def test_leaves_at_different_places_of_a_message_are_not_added(root: AtRoot) -> None:
    root.contribute_leaf(0, 0, 1, Opcode.WRITE_LAST)
    assert root.contribute_leaf(1, 0, 1, Opcode.WRITE_MIDDLE) == []
    assert sorted(root.contribute_leaf(1, 0, 1, Opcode.WRITE_LAST)) == root.goes_down(0, 2, Opcode.WRITE_LAST)


def test_packets_of_an_earlier_tree_reach_nobody(root: AtRoot) -> None:
    """Earlier packets have another queue pair number. Only a leaf itself can speak for it."""
    first, _ = root.tree.leaves
    root.contribute_leaf(0, 0, 1)
    assert root.contribute_leaf(1, 0, 9, qpn=0x7AFE77) == []
    assert root.switch.exchange(first.down, root.going_up(1, 0, 9)) == []
    assert root.switch.exchange(3, root.going_up(1, 0, 9)) == []
    assert sorted(root.contribute_leaf(1, 0, 1)) == root.goes_down(0, 2)


def test_the_root_passes_members_packets_as_they_are(root: AtRoot) -> None:
    """The packets include sums on connections between leaves. The root knows no host's connection."""
    a, b, c = root.ring.members
    for data, port in ((root.arrives(1, 0, 5), 2), (root.arrives(2, 0, 5), 1)):
        assert root.switch.exchange(3 - port, data) == [(port, data)]
    data = frame(c, b, b"anything", {"dport": 4791})
    assert root.switch.exchange(2, data) == [(1, data)]
    assert all(m.mac for m in (a, b, c))


def test_a_root_has_members_of_its_own_beside_leaves(switch: Switch) -> None:
    ring = Ring(switch, tuple(replace(m, port=3 if m.number == 2 else m.port) for m in ring_members(3)))
    part = Part(switch, None, RingTree(ring, leaves(1), {0: 0, 1: 0, 2: None}))
    (below,) = part.tree.leaves
    assert part.contribute(2, 4, 5, Opcode.WRITE_ONLY) == []
    up = part.between(0, 1, 4, 6, Opcode.WRITE_ONLY)
    assert sorted(switch.exchange(below.down, up)) == [
        (below.down, part.between(0, 2, 4, 11, Opcode.WRITE_ONLY)),
        (3, part.arrives(1, 4, 11, Opcode.WRITE_ONLY)),  # from the leaf to the member here
    ]
    assert part.contribute(2, 4, 5, Opcode.WRITE_ONLY) == [
        (below.down, part.arrives(2, 4, 11, Opcode.WRITE_ONLY))
    ]


def test_the_roots_copies_ask_for_what_the_connections_senders_ask(root: AtRoot) -> None:
    root.contribute_leaf(0, 0, 1, ack_request=True)
    assert sorted(root.contribute_leaf(1, 0, 1)) == [
        (1, root.going_down(0, 0, 2)),
        (2, root.going_down(1, 0, 2, ack_request=True)),
    ]
