# SPDX-License-Identifier: Apache-2.0
"""What each switch should hold, computed from the topology and the groups: values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from railweave.controller import tables
from railweave.controller.addresses import endpoint
from railweave.controller.slots import Serials, SlotRange
from railweave.controller.state import Entry, Multicast, SwitchState
from railweave.controller.tables import Endpoint
from railweave.controller.tree import Contributor, Node, Tree
from railweave.controller.trees import Link, graph
from railweave.topologies.model import Plane

DETOUR = 10_000  # more than any way around


@dataclass(frozen=True)
class Aggregation:
    """A group on one plane: its tree, the address that its ranks send to, and each rank's end of its link."""

    group: int
    plane: str
    tree: Tree
    virtual_ip: int
    hosts: Mapping[int, Endpoint]


@dataclass(frozen=True)
class Loss:
    """A probability with which a port's frames are dropped; `direction` is ingress or egress."""

    port: int
    direction: str
    probability: float


def merge(parts: Iterable[SwitchState]) -> SwitchState:
    """All entries and multicast groups of several states."""
    entries: set[Entry] = set()
    multicasts: set[Multicast] = set()
    for part in parts:
        entries |= part.entries
        multicasts |= part.multicasts
    return SwitchState(frozenset(entries), frozenset(multicasts))


def forwarding(
    plane: Plane, switch: str, own: Endpoint, dead: Collection[str] = (), avoid: Collection[Link] = ()
) -> SwitchState:
    """What a switch needs without any group: where every NIC is, where to flood, and its own address.

    Frames keep off `dead` switches and links to `avoid` where they can. All switches together forward without
    loops: unicast always comes nearer to its switch, and floods stay within one spanning tree.
    """
    switches = graph(plane)
    for one, other in switches.edges:
        shunned = one in dead or other in dead or frozenset({one, other}) in avoid
        switches.edges[one, other]["weight"] = DETOUR if shunned else 1
    entries = {tables.virtual_addresses(own.ip)}
    for nic in plane.nics:
        if nic.switch == switch:
            entries.add(tables.mac_table(tables.mac_number(nic.mac), nic.port))
        elif nx.has_path(switches, switch, nic.switch):
            hop = nx.dijkstra_path(switches, switch, nic.switch)[1]
            port = switches.edges[switch, hop]["ports"][switch]
            entries.add(tables.mac_table(tables.mac_number(nic.mac), port))
    ports = {nic.port for nic in plane.nics if nic.switch == switch}
    for _, _, edge in nx.minimum_spanning_tree(switches).edges(switch, data=True):
        ports.add(edge["ports"][switch])
    return SwitchState(frozenset(entries), frozenset({tables.flood(frozenset(ports))}))


def aggregation(
    group: Aggregation, switch: str, slots: SlotRange, addresses: Mapping[str, Endpoint]
) -> SwitchState:
    """What one switch of the group's tree needs; `addresses` are the switches' own."""
    node = group.tree.node(switch)
    me = addresses[switch]
    entries: set[Entry] = set()
    for contributor in node.contributors:
        entries |= _contributor(group, node, contributor, slots, addresses)
    if any(contributor.rank is not None for contributor in node.contributors):
        entries.add(tables.virtual_addresses(group.virtual_ip))
    if up := node.parent:
        above = addresses[up.switch]
        entries.add(tables.uplinks(group.group, up.port, up.child, me, above))
        entries.add(tables.members_parent(group.group, up.port, up.child, above.ip, slots))
    ports = {contributor.child: contributor.port for contributor in node.contributors}
    return SwitchState(frozenset(entries), frozenset({tables.results(group.group, ports)}))


def _contributor(
    group: Aggregation,
    node: Node,
    contributor: Contributor,
    slots: SlotRange,
    addresses: Mapping[str, Endpoint],
) -> set[Entry]:
    """Let a contributor in, and address its copy of the result."""
    if contributor.rank is None:
        source, to = addresses[node.switch], addresses[contributor.switch or ""]
    else:
        source, to = endpoint(group.virtual_ip), group.hosts[contributor.rank]
    return {
        tables.members(
            group.group,
            contributor.port,
            contributor.child,
            to.ip,
            slots,
            children=len(node.contributors),
            is_root=node.parent is None,
        ),
        tables.replicas(group.group, contributor.child, source, to),
    }


def losses(wanted: Iterable[Loss]) -> SwitchState:
    """The injector's entries; no loss is no entry."""
    entries = (
        tables.injector(loss.direction, loss.port, loss.probability) for loss in wanted if loss.probability
    )
    return SwitchState(frozenset(entries))


def memory(serials: Iterable[Serials], last_group: int) -> SwitchState:
    """What the controller leaves with the switch for its own next life."""
    return SwitchState(frozenset(tables.members_serials(known, last_group) for known in serials))
