# SPDX-License-Identifier: Apache-2.0
"""The desired state of each switch, computed from the topology and the groups by pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from railweave.controller import tables
from railweave.controller.addresses import endpoint
from railweave.controller.errors import Refused
from railweave.controller.ring_trees import Part
from railweave.controller.routes import Routes, trunk_ends
from railweave.controller.slots import MIN_SLOTS, Serials, SlotRange
from railweave.controller.state import Entry, Multicast, SwitchState
from railweave.controller.tables import Endpoint
from railweave.controller.tree import Contributor, Node, Tree
from railweave.p4src.config import CONFIG
from railweave.topologies.model import Plane

OWN_ADDRESSES = 1  # entries of virtual_addresses for the switch itself


@dataclass(frozen=True)
class Aggregation:
    """A group on one plane: its tree, the address that its ranks send to, and each rank's end of its link."""

    group: int
    plane: str
    tree: Tree
    virtual_ip: int
    hosts: Mapping[int, Endpoint]


@dataclass(frozen=True)
class Ring:
    """A ring at one switch that sums it: its slots, and the place of its contributors' headers."""

    group: int
    part: Part
    slots: SlotRange
    header_base: int

    @property
    def header_cells(self) -> int:
        """The number of cells: a RETH and immediate data for each slot number of each sender."""
        return (self.slots.mask + 1) * len(self.part.ways)


@dataclass(frozen=True)
class Loss:
    """The probability with which a port drops frames. `direction` is ingress or egress."""

    port: int
    direction: str
    probability: float


def merge(parts: Iterable[SwitchState]) -> SwitchState:
    """Return the union of several states."""
    entries: set[Entry] = set()
    multicasts: set[Multicast] = set()
    for part in parts:
        entries |= part.entries
        multicasts |= part.multicasts
    return SwitchState(frozenset(entries), frozenset(multicasts))


def forwarding(routes: Routes, own: Endpoint, flooding: frozenset[int]) -> SwitchState:
    """Return the state of a switch without groups: routes to all NICs, flood ports, and its own address."""
    flood = tables.flood(routes.nics | flooding)
    return SwitchState(routes.entries | {tables.virtual_addresses(own.ip)}, frozenset({flood}))


def source_guard(plane: Plane, switch: str) -> SwitchState:
    """Return the entries that let neighbours send: hosts with their own addresses, switches with any.

    The program drops all other frames, also all frames from ports that are not in the topology.
    """
    trunks = {port for name, port in trunk_ends(plane) if name == switch}
    entries = {tables.trunk_ports(port) for port in trunks}
    for nic in plane.nics:
        if nic.switch == switch:
            mac = tables.mac_number(nic.mac)
            entries.add(tables.other_sources(nic.port, mac))
            for address in (tables.ip_number(nic.address), tables.NO_ADDRESS):
                entries |= {of(nic.port, mac, address) for of in (tables.ipv4_sources, tables.arp_sources)}
    return SwitchState(frozenset(entries))


def aggregation(
    group: Aggregation, switch: str, slots: SlotRange, addresses: Mapping[str, Endpoint]
) -> SwitchState:
    """Return the state of one switch of the group's tree. `addresses` are the switches' own."""
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
        entries.add(tables.replicas_parent(group.group, up.child, me, above))
    ports = {contributor.child: contributor.port for contributor in node.contributors}
    return SwitchState(frozenset(entries), tables.multicasts(group.group, ports, up.port if up else None))


def _contributor(
    group: Aggregation, node: Node, one: Contributor, slots: SlotRange, addresses: Mapping[str, Endpoint]
) -> set[Entry]:
    """Return the entries that let a contributor's packets in and address its copies of multicast packets."""
    if one.rank is None:
        source, to = addresses[node.switch], addresses[one.switch or ""]
    else:
        source, to = endpoint(group.virtual_ip), group.hosts[one.rank]
    children, is_root = len(node.contributors), node.parent is None
    return {
        tables.members(group.group, one.port, one.child, to.ip, slots, children, is_root=is_root),
        tables.replicas(group.group, one.child, source, to),
    }


def ring(of: Ring) -> SwitchState:
    """Return the state that lets a ring's switch sum the WRITEs of its connections."""
    part, entries = of.part, set[Entry]()
    members, is_root = len(part.answers), part.up is None

    def header_base(sender: int) -> int:
        return of.header_base + sender * (of.slots.mask + 1)

    for sender, way in enumerate(part.ways):
        place = (members, of.slots, header_base(sender))
        entries.add(tables.connections(of.group, sender, way, *place, is_root=is_root))
    for number, copy in enumerate(part.copies):
        bit = tables.sender_bit(copy.kept, members)
        entries.add(tables.deliveries(of.group, number, copy.of, bit, header_base(copy.kept)))
    copies = {copy: (copy.of.receiver_port, number) for number, copy in enumerate(part.copies)}
    down = Multicast(tables.multicast_id(of.group), frozenset(copies[copy] for copy in part.down))
    if part.up is None:
        return SwitchState(frozenset(entries), frozenset({down}))
    up = Multicast(tables.spread_id(of.group, is_root=False), frozenset({copies[part.up]}))
    return SwitchState(frozenset(entries), frozenset({down, up}))


def losses(wanted: Iterable[Loss]) -> SwitchState:
    """Return the injector's entries, none for a probability of 0."""
    entries = (
        tables.injector(loss.direction, loss.port, loss.probability) for loss in wanted if loss.probability
    )
    return SwitchState(frozenset(entries))


def memory(serials: Iterable[Serials], last_group: int) -> SwitchState:
    """Return the notes that the controller keeps in the switch for its own restart."""
    return SwitchState(frozenset(tables.members_serials(known, last_group) for known in serials))


def require_room(switch: str, nodes: Sequence[Node], ports: int, slots: int) -> None:
    """Raise Refused with the limit's name if a switch cannot hold all these nodes.

    The controller's notes also need room in `members`, and flooding needs copies in the replication engine.
    """
    if len(nodes) + OWN_ADDRESSES > CONFIG["MAX_GROUPS"]:
        raise Refused(
            f"switch {switch} would serve {len(nodes)} groups",
            f"at most {CONFIG['MAX_GROUPS'] - OWN_ADDRESSES}",
            "end a job",
        )
    members = sum(len(node.contributors) + (node.parent is not None) for node in nodes)
    room = CONFIG["MAX_MEMBERS"] - slots // MIN_SLOTS
    if members > room:
        raise Refused(
            f"switch {switch} would need {members} entries in members",
            f"at most {room}",
            "end a job, or run fewer ranks",
        )
    children_again = sum(len(node.contributors) for node in nodes if node.parent)  # with the parent
    copies = ports + members + children_again
    if copies > CONFIG["MAX_REPLICAS"]:
        raise Refused(
            f"switch {switch} would need {copies} copies in multicast groups",
            f"at most {CONFIG['MAX_REPLICAS']}",
            "end a job, or run fewer ranks",
        )
