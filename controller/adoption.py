# SPDX-License-Identifier: Apache-2.0
"""Read a group's tree back from the entries that an earlier controller process has left in switches."""

from __future__ import annotations

from collections.abc import Mapping

from railweave.controller.errors import Refused
from railweave.controller.state import SwitchState
from railweave.controller.tree import Contributor, Node, Parent, Tree
from railweave.topologies.model import Nic, Plane

MOVES_SOON = "wait until the controller has moved the group"  # what to do


def tree_of(plane: Plane, ranks: Mapping[int, Nic], parts: Mapping[str, SwitchState]) -> Tree:
    """Return the tree that a group's entries, by switch, describe. Refused if they do not form a tree.

    This function reads only links between switches. The caller compares all entries with the expected ones.
    """
    ends = {(nic.switch, nic.port): (rank, "") for rank, nic in ranks.items()}
    neighbours: dict[tuple[str, int], tuple[int | None, str]] = dict(ends)
    for trunk in plane.trunks:
        neighbours[trunk.lower, trunk.lower_port] = None, trunk.upper
        neighbours[trunk.upper, trunk.upper_port] = None, trunk.lower
    nodes = {name: _node(name, part, neighbours) for name, part in parts.items()}
    roots = [name for name, node in nodes.items() if node.parent is None]
    if len(roots) != 1:
        raise Refused(f"{len(roots)} of the group's {len(nodes)} switches are roots", "one root", MOVES_SOON)
    ordered: list[Node] = []
    waiting = roots
    while waiting:
        node = nodes.pop(waiting.pop(), None)
        if node is None:
            raise Refused("the group's switches do not form a tree", "a tree", MOVES_SOON)
        ordered.append(node)
        waiting += [c.switch for c in node.contributors if c.switch]
    found = sorted(c.rank for node in ordered for c in node.contributors if c.rank is not None)
    if nodes or found != sorted(ranks):
        raise Refused(
            f"the group's tree joins ranks {found} and leaves out switches {sorted(nodes)}",
            "all ranks and switches",
            MOVES_SOON,
        )
    return Tree(tuple(ordered))


def _node(name: str, part: SwitchState, neighbours: Mapping[tuple[str, int], tuple[int | None, str]]) -> Node:
    contributors, parent = [], None
    for entry in part.entries:
        match, params = dict(entry.match), dict(entry.params)
        port = params["port"] if entry.table == "uplinks" else match.get("ingress_port", 0)
        rank, switch = neighbours.get((name, port), (None, ""))
        if entry.table == "uplinks":
            parent = Parent(switch, port, params["child"])
        elif entry.action == "contributor":
            contributors.append(Contributor(match["child"], port, rank, switch or None))
    return Node(name, tuple(sorted(contributors, key=lambda c: c.child)), parent)
