# SPDX-License-Identifier: Apache-2.0
"""Compute the routes of a plane's ordinary frames, and its flood tree. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import networkx as nx

from railweave.controller import tables
from railweave.controller.state import Entry
from railweave.controller.trees import Link, graph
from railweave.topologies.model import Plane

DETOUR = 10_000  # more than any detour

End = tuple[str, int]
"""A switch's end of a trunk: its name and its port."""


@dataclass(frozen=True)
class Routes:
    """The forwarding of one switch: entries of mac_table, NIC ports, and trunk ports in the flood tree."""

    entries: frozenset[Entry] = frozenset()
    nics: frozenset[int] = frozenset()
    tree: frozenset[int] = frozenset()


def routes(plane: Plane, dead: Collection[str] = (), avoid: Collection[Link] = ()) -> dict[str, Routes]:
    """Return the routes of every switch of a plane.

    Frames avoid `dead` switches and the links in `avoid` where possible. All switches together forward
    without loops: every hop brings a frame nearer to its NIC's switch, and floods use one spanning tree.
    """
    switches = graph(plane)
    for one, other in switches.edges:
        shunned = one in dead or other in dead or frozenset({one, other}) in avoid
        switches.edges[one, other]["weight"] = DETOUR if shunned else 1
    flooded = nx.minimum_spanning_tree(switches)
    entries: dict[str, set[Entry]] = {name: set() for name in switches}
    nics: dict[str, set[int]] = {name: set() for name in switches}
    hops = {name: _first_hops(switches, name) for name in {nic.switch for nic in plane.nics}}
    for nic in plane.nics:
        nics[nic.switch].add(nic.port)
        ways = {nic.switch: nic.port, **hops[nic.switch]}
        by_port = {port: tables.mac_table(tables.mac_number(nic.mac), port) for port in {*ways.values()}}
        for switch, port in ways.items():
            entries[switch].add(by_port[port])
    return {
        name: Routes(
            frozenset(entries[name]),
            frozenset(nics[name]),
            frozenset(edge["ports"][name] for _, _, edge in flooded.edges(name, data=True)),
        )
        for name in switches
    }


def _first_hops(switches: nx.Graph, target: str) -> dict[str, int]:
    """Return the first port of the shortest path to the target, for every other switch with a path."""
    nearer, _ = nx.dijkstra_predecessor_and_distance(switches, target)
    return {name: switches.edges[name, to[0]]["ports"][name] for name, to in nearer.items() if to}


def trunk_ends(plane: Plane) -> dict[End, End]:
    """Return the other end of every trunk, by either end."""
    ends = {(t.lower, t.lower_port): (t.upper, t.upper_port) for t in plane.trunks}
    return ends | {there: here for here, there in ends.items()}


def comes_back(ends: Mapping[End, End], floods: Mapping[str, Collection[int]], first: End) -> bool:
    """Return whether a frame that leaves by the port `first` can come back to that switch.

    Every switch floods a frame to its trunk ports in `floods`, except to the port that it came from.
    """
    seen: set[End] = set()
    waiting = [first]
    while waiting:
        switch, entered = ends[waiting.pop()]
        if switch == first[0] and entered != first[1]:
            return True
        onward = {(switch, port) for port in floods[switch] if port != entered} - seen
        seen |= onward
        waiting += onward
    return False
