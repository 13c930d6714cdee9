# SPDX-License-Identifier: Apache-2.0
"""Mixed planes, where only some switches aggregate: find racks of ranks, and order all ranks in a ring."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from railweave.controller.errors import Refused
from railweave.controller.trees import graph
from railweave.errors import explain
from railweave.topologies.model import Nic, Plane

MAX_COLUMNS = 32  # parts of a tensor in the ring; the ranks of every rack share them equally


@dataclass(frozen=True)
class Member:
    """A member of the ring: a rack, or a single rank and the reason why no switch adds its data."""

    ranks: tuple[int, ...]
    reason: str = ""


def mixed(plane: Plane) -> bool:
    """Return whether some switches of a plane cannot aggregate."""
    return not all(switch.p4runtime for switch in plane.switches)


def racks(plane: Plane, ranks: Mapping[int, Nic]) -> list[tuple[int, ...]]:
    """Return the ranks of each connected set of aggregating switches, sets of two or more, largest first."""
    p4 = [switch.name for switch in plane.switches if switch.p4runtime]
    islands = nx.connected_components(graph(plane).subgraph(p4))
    behind = (tuple(r for r, nic in sorted(ranks.items()) if nic.switch in island) for island in islands)
    return sorted((rack for rack in behind if len(rack) > 1), key=lambda rack: (-len(rack), rack))


def columns(sizes: Iterable[int]) -> int:
    """Return the number of columns in which racks of these sizes can share a tensor equally."""
    return math.lcm(*sizes)


def fits(size: int, others: Iterable[int]) -> bool:
    """Return whether a rack of `size` ranks can share the columns with racks of the `others` sizes."""
    return columns([size, *others]) <= MAX_COLUMNS


def alone(plane: Plane, rank: int, ranks: Mapping[int, Nic]) -> Member:
    """Return the member for a rank that is in no rack."""
    leaf = ranks[rank].switch
    if any(switch.name == leaf and switch.p4runtime for switch in plane.switches):
        reason = explain(
            f"no other rank is behind {leaf}, and no switch that aggregates above it",
            "two ranks at least",
            "place two ranks there, or add `p4runtime` to a switch above",
        )
        return Member((rank,), reason)
    return Member((rank,), str(not_p4(leaf)))


def not_p4(switch: str) -> Refused:
    """Return the reason why a switch without P4 adds nothing."""
    return Refused(
        f"{switch} is no P4 switch",
        "a switch with `p4runtime`",
        "add it to the switch in the topology or cluster file",
    )


def in_order(plane: Plane, members: Sequence[Member], ranks: Mapping[int, Nic]) -> list[Member]:
    """Return the members in the order in which their ring crosses the fewest links between switches.

    A depth-first walk of a spanning tree uses each of its links once in each direction. No ring uses fewer.
    """
    walk = nx.dfs_preorder_nodes(nx.minimum_spanning_tree(graph(plane)))
    place = {switch: number for number, switch in enumerate(walk)}
    return sorted(members, key=lambda member: min((place[ranks[r].switch], r) for r in member.ranks))
