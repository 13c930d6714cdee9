# SPDX-License-Identifier: Apache-2.0
"""A ring with members at several switches. Leaves sum first, then the root adds the sums of leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dataplane.harness import Switch
from dataplane.packets import Station
from dataplane.ring import Ring, RingMember

from railweave._native import roce
from railweave._native.roce import Opcode
from railweave.controller import desired
from railweave.controller.ring_trees import parts
from railweave.controller.slots import SlotRange
from railweave.controller.state import SwitchState
from railweave.controller.tables import NOWHERE, Connection, Endpoint
from railweave.controller.tree import Contributor, Node, Parent, Tree

LINK_QP = 0x7AFE00  # plus the ring's number: the queue pair of packets between switches
LINK_UDP_PORT = 0xC000
NAMES: dict[int | None, str] = {None: "root", 0: "leaf 0", 1: "leaf 1"}
PLACES = {name: place for place, name in NAMES.items()}


@dataclass(frozen=True)
class Leaf(Station):
    """A switch below the root: its address, its port to the root, and the root's port to it."""

    up: int
    down: int

    def frame(self, ring: Ring, index: int, payload: bytes, opcode: Opcode, **fields: Any) -> bytes:
        """Return a packet between this switch and the root, in either direction."""
        fields = {"qpn": LINK_QP + ring.number, "psn": index & 0xFFFFFF} | fields
        mac = self.mac.to_bytes(6)
        path = roce.Path(mac, mac, self.ip, self.ip, LINK_UDP_PORT)
        return roce.seal(path, index & 0xFFFF, roce.build(opcode, payload=payload, **fields))


def leaves(count: int, up: int = 4, first_down: int = 1) -> tuple[Leaf, ...]:
    """Return leaves at the root's ports from `first_down` on. A leaf's port `up` leads to the root."""
    return tuple(
        Leaf(ip=0x0A02FF01 + n, mac=0x02FE0A02FF01 + n, up=up, down=first_down + n) for n in range(count)
    )


@dataclass(frozen=True)
class RingTree:
    """A ring's parts, as the controller writes them. A leaf is named by its index, the root by None.

    A member's `port` is a port of the switch that the member is attached to.
    """

    ring: Ring
    leaves: Sequence[Leaf]
    at: Mapping[int, int | None]  # by member's number: its switch

    def install(self, switch: Switch, leaf: int | None) -> RingTree:
        """Set up forwarding and sums on a switch, as a leaf or as the root (None)."""
        self.bridge(switch, leaf)
        switch.install(self.states[leaf])
        return self

    def bridge(self, switch: Switch, leaf: int | None) -> None:
        """Insert entries that forward frames to members and drop frames to switches."""
        for m in self.ring.members:
            switch.insert("mac_table", {"destination": m.mac}, "forward", {"port": self.way(leaf, m)})
        for each in self.leaves:
            switch.insert("mac_table", {"destination": each.mac}, "forward", {"port": NOWHERE})

    def way(self, leaf: int | None, m: RingMember) -> int:
        """Return the port of a switch towards a member."""
        there = self.at[m.number]
        if there == leaf:
            return m.port
        return self.leaves[leaf].up if leaf is not None else self.leaves[there or 0].down

    @cached_property
    def states(self) -> dict[int | None, SwitchState]:
        """The entries and multicast groups of each leaf and of the root (None)."""
        ring = self.ring
        slots = SlotRange(ring.slot_base // 2, ring.slots // 2, ring.epoch)
        found = parts(self._tree(), [self._connection(m) for m in ring.members], self._link, self._way)
        return {
            place: desired.ring(desired.Ring(ring.number, found[NAMES[place]], slots, ring.header_base))
            for place in (None, *self._used())
        }

    def _used(self) -> list[int]:
        return sorted({leaf for leaf in self.at.values() if leaf is not None})

    def _tree(self) -> Tree:
        used = self._used()
        here = self._contributors(None)
        below = [
            Contributor(len(here) + n, self.leaves[leaf].down, None, NAMES[leaf])
            for n, leaf in enumerate(used)
        ]
        nodes = [Node(NAMES[None], (*here, *below), None)]
        for contributor, leaf in zip(below, used, strict=True):
            parent = Parent(NAMES[None], self.leaves[leaf].up, contributor.child)
            nodes.append(Node(NAMES[leaf], tuple(self._contributors(leaf)), parent))
        return Tree(tuple(nodes))

    def _contributors(self, place: int | None) -> list[Contributor]:
        members = [m for m in self.ring.members if self.at[m.number] == place]
        return [Contributor(n, m.port, m.number) for n, m in enumerate(members)]

    def _connection(self, m: RingMember) -> Connection:
        to = self.ring.next(m)
        ends = Endpoint(m.mac, m.ip, m.udp_port), m.port, Endpoint(to.mac, to.ip), to.port
        return Connection(*ends, m.sent_qp, m.qp, m.first_psn)

    def _link(self, name: str, port: int) -> Connection:
        leaf = self.leaves[PLACES[name] or 0]
        end, number = Endpoint(leaf.mac, leaf.ip, LINK_UDP_PORT), LINK_QP + self.ring.number
        return Connection(end, port, end, port, number, number, 0)

    def _way(self, name: str, member: int) -> int:
        return self.way(PLACES[name], self.ring.members[member])
