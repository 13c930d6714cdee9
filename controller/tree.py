# SPDX-License-Identifier: Apache-2.0
"""An aggregation tree as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Contributor:
    """One child of a switch: a rank's NIC, or a lower switch. `child` is its index at this switch."""

    child: int
    port: int
    rank: int | None = None
    switch: str | None = None


@dataclass(frozen=True)
class Parent:
    """The switch above, reached through `port`. This switch is its contributor `child`."""

    switch: str
    port: int
    child: int


@dataclass(frozen=True)
class Node:
    """A switch's place in a tree. The root has no parent."""

    switch: str
    contributors: tuple[Contributor, ...]
    parent: Parent | None


@dataclass(frozen=True)
class Tree:
    """All nodes, root first, every parent before its children."""

    nodes: tuple[Node, ...]

    @property
    def root(self) -> Node:
        """The switch that turns sums into results."""
        return self.nodes[0]

    def node(self, switch: str) -> Node:
        """Return the place of a switch in the tree. KeyError if it is not in the tree."""
        for node in self.nodes:
            if node.switch == switch:
                return node
        raise KeyError(switch)

    def place(self, rank: int) -> tuple[Node, Contributor]:
        """Return the first switch of a rank, and the rank's Contributor there."""
        for node in self.nodes:
            for contributor in node.contributors:
                if contributor.rank == rank:
                    return node, contributor
        raise KeyError(rank)

    def way(self, rank: int) -> list[str]:
        """Return the switches from a rank's first switch to the root, both included."""
        node, _ = self.place(rank)
        names = [node.switch]
        while node.parent:
            node = self.node(node.parent.switch)
            names.append(node.switch)
        return names

    def depth(self, rank: int) -> int:
        """Return the number of switches from a rank to the root, root included."""
        return len(self.way(rank))
