# SPDX-License-Identifier: Apache-2.0
"""Aggregation trees: which switches of a plane add which ranks, computed from the topology alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import networkx as nx
from railweave.controller.errors import Refused
from railweave.p4src.config import CONFIG
from railweave.topologies.model import Nic, Plane

MAX_FAN_IN = CONFIG["MAX_CHILDREN"]


@dataclass(frozen=True)
class Contributor:
    """One child of a switch: a rank's NIC, or the switch below. `child` is its index at this switch."""

    child: int
    port: int
    rank: int | None = None
    switch: str | None = None


@dataclass(frozen=True)
class Parent:
    """The switch above: reached through `port`, where this switch is the contributor `child`."""

    switch: str
    port: int
    child: int


@dataclass(frozen=True)
class Node:
    """A switch's place in a tree; the root has no parent."""

    switch: str
    contributors: tuple[Contributor, ...]
    parent: Parent | None


@dataclass(frozen=True)
class Tree:
    """All nodes, root first, every parent before its children."""

    nodes: tuple[Node, ...]

    @property
    def root(self) -> Node:
        """The switch where contributions turn into results."""
        return self.nodes[0]

    def node(self, switch: str) -> Node:
        """The place of a switch in the tree; KeyError if it has none."""
        for node in self.nodes:
            if node.switch == switch:
                return node
        raise KeyError(switch)

    def place(self, rank: int) -> tuple[Node, Contributor]:
        """The first switch of a rank, and the rank as that switch sees it."""
        for node in self.nodes:
            for contributor in node.contributors:
                if contributor.rank == rank:
                    return node, contributor
        raise KeyError(rank)

    def depth(self, rank: int) -> int:
        """Switches between the rank and the root, root included."""
        node, _ = self.place(rank)
        depth = 1
        while node.parent:
            node = self.node(node.parent.switch)
            depth += 1
        return depth


def graph(plane: Plane) -> nx.Graph:
    """The switches of a plane joined by its trunks; every edge knows each end's port by the switch's name."""
    switches = nx.Graph()
    switches.add_nodes_from(sorted(switch.name for switch in plane.switches))
    for trunk in plane.trunks:
        ports = {trunk.lower: trunk.lower_port, trunk.upper: trunk.upper_port}
        switches.add_edge(trunk.lower, trunk.upper, ports=ports)
    return switches


def build(
    plane: Plane, ranks: Mapping[int, Nic], usable: Collection[str], load: Mapping[str, int] | None = None
) -> Tree:
    """Compute the tree that joins the ranks' NICs over the `usable` switches of a plane.

    Every usable switch is tried as root. Of the trees with an allowed fan-in, the one with the fewest levels,
    then the fewest switches, then the least loaded ones (`load`: groups per switch) wins, so that groups
    spread over several spines. Raises Refused, naming the limit, where there is none.
    """
    switches = graph(plane).subgraph(usable)
    load = load or {}
    leaves = sorted({nic.switch for nic in ranks.values()})
    for leaf in leaves:
        if leaf not in switches:
            raise Refused(f"switch {leaf} of plane {plane.name!r} is not usable")
    trees = [tree for root in sorted(switches) if (tree := _rooted(switches, root, ranks, leaves, load))]
    if not trees:
        raise Refused(f"no usable switch of plane {plane.name!r} reaches all of {', '.join(leaves)}")
    best = min(trees, key=lambda tree: _cost(tree, ranks, load))
    widest = max(best.nodes, key=lambda node: len(node.contributors))
    if len(widest.contributors) > MAX_FAN_IN:
        fan_in = len(widest.contributors)
        raise Refused(f"switch {widest.switch} would add {fan_in} contributors; its limit is {MAX_FAN_IN}")
    return best


def _cost(tree: Tree, ranks: Mapping[int, Nic], load: Mapping[str, int]) -> tuple[bool, int, int, int]:
    too_wide = any(len(node.contributors) > MAX_FAN_IN for node in tree.nodes)
    levels = max(tree.depth(rank) for rank in ranks)
    return too_wide, levels, len(tree.nodes), sum(load.get(node.switch, 0) for node in tree.nodes)


def _rooted(
    switches: nx.Graph, root: str, ranks: Mapping[int, Nic], leaves: list[str], load: Mapping[str, int]
) -> Tree | None:
    """The shortest paths from one root to all leaves, as a tree; None where a leaf is out of reach."""

    def weight(_: str, upper: str, __: object) -> float:
        return 1 + load.get(upper, 0) / 2**20  # load only decides between paths of one length

    paths = nx.single_source_dijkstra_path(switches, root, weight=weight)
    if any(leaf not in paths for leaf in leaves):
        return None
    below: dict[str, set[str]] = {root: set()}
    for leaf in leaves:
        for upper, lower in zip(paths[leaf], paths[leaf][1:], strict=False):
            below.setdefault(upper, set()).add(lower)
            below.setdefault(lower, set())
    nodes: list[Node] = []
    _descend(switches, root, None, below, ranks, nodes)
    return Tree(tuple(nodes))


def _descend(
    switches: nx.Graph,
    switch: str,
    parent: Parent | None,
    below: Mapping[str, set[str]],
    ranks: Mapping[int, Nic],
    nodes: list[Node],
) -> None:
    """Number the contributors of a switch (ranks by rank, then switches by name), then do its children."""
    own = [(nic.port, rank, None) for rank, nic in sorted(ranks.items()) if nic.switch == switch]
    lower = [(switches.edges[switch, s]["ports"][switch], None, s) for s in sorted(below[switch])]
    contributors = tuple(
        Contributor(child, port, rank, name) for child, (port, rank, name) in enumerate([*own, *lower])
    )
    nodes.append(Node(switch, contributors, parent))
    for contributor in contributors:
        if name := contributor.switch:
            port = switches.edges[switch, name]["ports"][name]
            _descend(switches, name, Parent(switch, port, contributor.child), below, ranks, nodes)
