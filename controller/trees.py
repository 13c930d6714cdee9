# SPDX-License-Identifier: Apache-2.0
"""Compute aggregation trees, which join the ranks over a plane's switches, from the topology alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import count, groupby, pairwise

import networkx as nx

from railweave.controller.errors import Refused
from railweave.controller.tree import Contributor, Node, Parent, Tree
from railweave.p4src.config import CONFIG
from railweave.topologies.model import Nic, Plane

MAX_FAN_IN = CONFIG["MAX_CHILDREN"]
PATH_BITS, PATH_STEP = 16, 5  # of a PROBE: every switch below the root notes a child in its slot field
MAX_DEPTH = PATH_BITS // PATH_STEP + 1  # switches between a rank and the root, root included
ROOTS_TRIED = 8  # roots at the same distance from the leaves; the rest usually differ only in name
ROOT_TAKEN = 1000  # additional load of a root, in groups, while the search looks for another root
TIE = 2**-10  # breaks ties between paths of equal length; its factors stay far below 1 / TIE

Link = frozenset[str]
"""Two neighbours by name: switches, or a host and its switch."""


def graph(plane: Plane) -> nx.Graph:
    """Return the graph of a plane's switches and trunks. An edge has each end's port by switch name.

    An edge's `rate_bps` is the lesser of the trunk's and the hosts' rate, infinite if neither is shaped.
    """
    switches = nx.Graph()
    switches.add_nodes_from(sorted(switch.name for switch in plane.switches))
    for trunk in plane.trunks:
        ports = {trunk.lower: trunk.lower_port, trunk.upper: trunk.upper_port}
        rates = [rate for rate in (plane.rate_of(trunk), plane.rate_bps) if rate]
        switches.add_edge(trunk.lower, trunk.upper, ports=ports, rate_bps=min(rates, default=float("inf")))
    return switches


def build(
    plane: Plane,
    ranks: Mapping[int, Nic],
    usable: Collection[str],
    load: Mapping[str, int] | None = None,
    avoid: Collection[Link] = (),
) -> Tree:
    """Compute the tree that joins the ranks' NICs over the `usable` switches of a plane.

    The tree uses no links to `avoid`, and respects the limits of fan-in and depth. The search prefers, in
    this order: the fastest slowest link, the fewest levels, the fewest switches, the least load (`load`:
    groups per switch), and the smallest maximum fan-in. Raises Refused, which names the limit, if it fails.
    """
    leaves = Counter(nic.switch for nic in ranks.values())
    switches = graph(plane).subgraph(usable).copy()
    switches.remove_edges_from([edge for edge in switches.edges if frozenset(edge) in avoid])
    _require_leaves(plane, ranks, switches, avoid)
    rates = sorted({rate for *_, rate in switches.edges.data("rate_bps")}, reverse=True)
    for slowest in rates or [0]:
        slow = [edge for edge in switches.edges if _rate(switches, edge) < slowest]
        fast = nx.restricted_view(switches, [], slow).copy() if slow else switches
        if parents := _best(fast, leaves, load or {}):
            return _tree(switches, parents, ranks)
    raise _obstacle(plane, switches, leaves)


def _obstacle(plane: Plane, switches: nx.Graph, leaves: Mapping[str, int]) -> Refused:
    """Return the limit that rules out every tree of the leaves."""
    names = ", ".join(sorted(leaves))
    distances = [nx.single_source_shortest_path_length(switches, leaf) for leaf in leaves]
    depths = [1 + max(d[root] for d in distances) for root in switches if all(root in d for d in distances)]
    if not depths:
        return Refused(
            f"no usable switch of plane {plane.name!r} reaches all of {names}",
            "one at least",
            "repair switches and links, or add `trunks` to the plane",
        )
    if min(depths) > MAX_DEPTH:
        return Refused(
            f"a tree that joins {names} would have {min(depths)} levels",
            f"at most {MAX_DEPTH}",
            "place the ranks nearer to each other, or add `trunks` to the plane",
        )
    return Refused(
        f"no tree of {MAX_DEPTH} levels joins {names}",
        f"one with at most {MAX_FAN_IN} contributors per switch",
        "run fewer ranks, or spread them over more switches",
    )


def spread(
    plane: Plane,
    ranks: Mapping[int, Nic],
    usable: Collection[str],
    count: int,
    load: Mapping[str, int] | None = None,
    avoid: Collection[Link] = (),
) -> list[Tree]:
    """Return up to `count` trees for the same ranks, with different roots, none worse than the first."""
    loads = Counter(load or {})
    found = [build(plane, ranks, usable, loads, avoid)]
    while len(found) < count:
        loads.update(node.switch for node in found[-1].nodes)
        loads[found[-1].root.switch] += ROOT_TAKEN
        tree = build(plane, ranks, usable, loads, avoid)
        taken = {other.root.switch for other in found}
        if tree.root.switch in taken or _size(tree, ranks) > _size(found[0], ranks):
            break
        found.append(tree)
    return found


def _size(tree: Tree, ranks: Mapping[int, Nic]) -> tuple[int, int]:
    return max(tree.depth(rank) for rank in ranks), len(tree.nodes)


def _rate(switches: nx.Graph, edge: tuple[str, str]) -> float:
    rate: float = switches.edges[edge]["rate_bps"]
    return rate


def _require_leaves(
    plane: Plane, ranks: Mapping[int, Nic], switches: nx.Graph, avoid: Collection[Link]
) -> None:
    hosts = Counter(nic.switch for nic in ranks.values())
    for leaf in sorted(hosts):
        if leaf not in switches:
            raise Refused(
                f"switch {leaf} of plane {plane.name!r} is not usable",
                "a P4 switch that answers",
                "start it, and read the controller's log",
            )
        if hosts[leaf] > MAX_FAN_IN:
            raise Refused(
                f"switch {leaf} would add {hosts[leaf]} contributors",
                f"at most {MAX_FAN_IN}",
                "run fewer ranks, or spread them over more switches",
            )
    for nic in ranks.values():
        if frozenset({nic.host, nic.switch}) in avoid:
            raise Refused(
                f"the link between {nic.host} and {nic.switch} seems to be dead",
                "a link that carries frames",
                "repair it: the controller tries it again within the time of --suspect",
            )


Parents = dict[str, str | None]
"""Every switch of a tree and the one above it; None for the root."""


def _best(switches: nx.Graph, leaves: Mapping[str, int], load: Mapping[str, int]) -> Parents | None:
    for roots in _roots(switches, leaves, load):
        grown = [t for root in roots if (t := _grow(switches, root, leaves, load, MAX_FAN_IN))]
        if grown := [tree for tree in grown if _cost(tree, load)[0] <= MAX_DEPTH]:
            best = min(grown, key=lambda tree: _cost(tree, load))
            return _balanced(switches, best, leaves, load)
    return None


def _roots(switches: nx.Graph, leaves: Mapping[str, int], load: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield the switches that reach all leaves, the nearest first, at most ROOTS_TRIED per distance."""
    distances = [nx.single_source_shortest_path_length(switches, leaf) for leaf in leaves]
    reach = [s for s in sorted(switches) if all(s in distance for distance in distances)]
    far = {s: max(distance[s] for distance in distances) for s in reach}
    ordered = sorted(reach, key=lambda s: (far[s], sum(d[s] for d in distances), load.get(s, 0), s))
    for _, equal in groupby(ordered, key=lambda s: far[s]):
        yield list(equal)[:ROOTS_TRIED]


def _grow(
    switches: nx.Graph, root: str, leaves: Mapping[str, int], load: Mapping[str, int], fan_in: int
) -> Parents | None:
    """Join one leaf after the other by the path that ends highest; None if a leaf has no path.

    This is the shortest path heuristic for Steiner trees (Takahashi and Matsuyama, 1980) with a bound on
    the degree. Among paths that end equally high, a path with fewer new switches wins, then less load.
    """
    parents: Parents = {root: None}
    depth, width = {root: 0}, Counter(leaves)
    far = nx.single_source_shortest_path_length(switches, root)
    for leaf in sorted(leaves, key=lambda s: (far[s], s)):
        if leaf in depth:
            continue
        ends = {s: below + TIE**2 * width[s] for s, below in depth.items() if width[s] < fan_in}
        barred = {s for s in depth.keys() | width.keys() if s in depth or width[s] >= fan_in} - {leaf}
        path = _cheapest(switches, ends, leaf, barred, load)
        if path is None:
            return None
        for upper, lower in pairwise(path):
            parents[lower], depth[lower] = upper, depth[upper] + 1
            width[upper] += 1
    return parents


def _cheapest(
    switches: nx.Graph, ends: Mapping[str, float], leaf: str, barred: Collection[str], load: Mapping[str, int]
) -> list[str] | None:
    """Return the cheapest path to a leaf from any of `ends` (with their costs), without `barred` switches.

    This is Dijkstra's algorithm. Of equal paths, the first one found wins.
    """
    found = count()
    fringe = [(cost, next(found), end, end) for end, cost in ends.items()]
    heapify(fringe)
    above: dict[str, str] = {}
    while fringe:
        cost, _, switch, upper = heappop(fringe)
        if switch in above:
            continue
        above[switch] = upper
        if switch == leaf:
            path = [leaf]
            while above[path[-1]] != path[-1]:
                path.append(above[path[-1]])
            return path[::-1]
        for lower in switches.adj[switch]:
            if lower not in above and lower not in barred:
                step = 1 + TIE + TIE**3 * load.get(lower, 0)
                heappush(fringe, (cost + step, next(found), lower, switch))
    return None


def _balanced(
    switches: nx.Graph, parents: Parents, leaves: Mapping[str, int], load: Mapping[str, int]
) -> Parents:
    """Return a tree with the same root, no more levels or switches, and the smallest maximum fan-in."""
    root = next(switch for switch, above in parents.items() if above is None)
    widths = Counter(leaves)
    widths.update(above for above in parents.values() if above)
    for fan_in in range(max(widths.values()) - 1, 0, -1):
        narrower = _grow(switches, root, leaves, load, fan_in)
        if narrower is None or _cost(narrower, load)[:2] > _cost(parents, load)[:2]:
            break
        parents = narrower
    return parents


def _cost(parents: Parents, load: Mapping[str, int]) -> tuple[int, int, int]:
    def depth(switch: str) -> int:
        above = parents[switch]
        return 1 if above is None else 1 + depth(above)

    return max(map(depth, parents)), len(parents), sum(load.get(switch, 0) for switch in parents)


def _tree(switches: nx.Graph, parents: Parents, ranks: Mapping[int, Nic]) -> Tree:
    """Number the contributors of every switch: ranks by rank, then switches by name."""
    nodes: list[Node] = []

    def descend(switch: str, parent: Parent | None) -> None:
        own = [(nic.port, rank, None) for rank, nic in sorted(ranks.items()) if nic.switch == switch]
        below = sorted(lower for lower, above in parents.items() if above == switch)
        lower = [(switches.edges[switch, name]["ports"][switch], None, name) for name in below]
        contributors = tuple(
            Contributor(child, port, rank, name) for child, (port, rank, name) in enumerate([*own, *lower])
        )
        nodes.append(Node(switch, contributors, parent))
        for contributor in contributors:
            if name := contributor.switch:
                port = switches.edges[switch, name]["ports"][name]
                descend(name, Parent(switch, port, contributor.child))

    descend(next(switch for switch, above in parents.items() if above is None), None)
    return Tree(tuple(nodes))
