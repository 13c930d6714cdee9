# SPDX-License-Identifier: Apache-2.0
"""Build table entries from named values. Each P4 table has a function with the table's name.

Tables, keys, actions and parameters have the names of `p4src/stages`. finsy checks them against P4Info.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from railweave.controller.slots import Serials, SlotRange
from railweave.controller.state import Entry, Fields, Multicast, fields
from railweave.p4src.config import CONFIG

FLOOD_GROUP = CONFIG["FLOOD_GROUP"]
INA_UDP_PORT = CONFIG["INA_UDP_PORT"]
UPLINK_RID = CONFIG["MAX_CHILDREN"] + 1  # egress_rid of the copy for the parent; child c's is c + 1
SPREAD_BASE = 2**11  # first multicast group with the parent; in a ring, the parent alone (`spread_id`)
MAX_GROUP = SPREAD_BASE - 1 - FLOOD_GROUP  # a group's multicast id is higher by FLOOD_GROUP; BMv2 has 4,096
RESULT_PRESENT = 1 << CONFIG["MAX_CHILDREN"]  # in `seen`: the bit of the switch above
NOWHERE = 511  # v1model drops frames that are forwarded to this port
DROPS = ("injected_drops_ingress", "injected_drops_egress")  # counters; not every program injects loss
FORGED_SOURCES = "forged_sources"  # counter of the frames that the source guard has dropped, by port
NO_ADDRESS = 0  # the source of a host that has no address yet
NO_GROUP = 0  # there is no group 0, and no port 0: such entries match no packet


@dataclass(frozen=True)
class Endpoint:
    """One end of a link: addresses as integers, and the UDP port for results."""

    mac: int
    ip: int
    udp_port: int = INA_UDP_PORT


@dataclass(frozen=True)
class Connection:
    """A member's RDMA connection to the next in its ring: packets come from `sender` by port `sender_port`,
    to queue pair `sent_qp`. They go on to `receiver` by port `receiver_port`, to its queue pair `qp`.

    A link in a tree of switches is a connection from the lower switch to the upper one and back.
    """

    sender: Endpoint
    sender_port: int
    receiver: Endpoint
    receiver_port: int
    sent_qp: int
    qp: int
    first_psn: int

    @property
    def key(self) -> Fields:
        """The match fields of the connection's packets."""
        match = {"ingress_port": self.sender_port, "mac": self.receiver.mac, "source": self.sender.ip}
        return fields(match | {"destination": self.receiver.ip, "qp": self.sent_qp})


def mac_number(text: str) -> int:
    """Return a MAC address in colon notation as an integer."""
    return int(text.replace(":", ""), 16)


def virtual_mac(ip: int) -> int:
    """Return the locally administered MAC address of a virtual IPv4 address."""
    return 0x02FE << 32 | ip


def multicast_id(group: int) -> int:
    """Return the multicast group of a group's children, for packets from above and the root's results."""
    return FLOOD_GROUP + group


def spread_id(group: int, is_root: bool) -> int:
    """Return the multicast group of all neighbours in a group's tree, for a child's packets to all.

    In a ring's tree, complete sums use this group: to the switch above, or from the root to all members.
    """
    return multicast_id(group) + (0 if is_root else SPREAD_BASE)


def members(
    group: int, port: int, child: int, source: int, slots: SlotRange, children: int, is_root: bool
) -> Entry:
    """Let one contributor's packets in: index `child` of `children`, from `source`, through `port`."""
    bits = {"child_bit": 1 << child, "all_children": (1 << children) - 1, "is_root": int(is_root)}
    bits["spread_group"] = spread_id(group, is_root)
    return _members(group, port, child, source, "contributor", **bits, **_placed(group, slots))


def members_parent(group: int, port: int, child: int, source: int, slots: SlotRange) -> Entry:
    """Let the parent's packets in. `child` is this switch's index at the parent."""
    return _members(group, port, child, source, "parent", **_placed(group, slots))


def members_serials(known: Serials, last_group: int) -> Entry:
    """Return a note of the controller to itself, kept in the switch that holds the registers.

    The note matches no packet. It holds the serial number from which a range of slots may be used again, and
    the last assigned group number. A restarted controller reads the note back.
    """
    unused = dict.fromkeys(("child_bit", "slot_base", "slot_mask", "is_root", "spread_group"), 0)
    noted = {"all_children": known.size, "start": known.start, "mcast_group": last_group}
    return _members(NO_GROUP, 0, 0, known.base, "contributor", **unused, **noted)


def read_members_serials(entry: Entry) -> tuple[Serials, int] | None:
    """Undo `members_serials`; None for any other entry."""
    match, params = dict(entry.match), dict(entry.params)
    if entry.table != "members" or match.get("group") != NO_GROUP:
        return None
    known = Serials(match["source"], params["all_children"], params["start"])
    return known, params["mcast_group"]


def read_members(entry: Entry) -> tuple[int, SlotRange] | None:
    """Return the group of an entry of `members` and its slots; None for any other entry."""
    if entry.table != "members" or (match := dict(entry.match))["group"] == NO_GROUP:
        return None
    params = dict(entry.params)
    return match["group"], SlotRange(
        params["slot_base"] // 2, (params["slot_mask"] + 1) // 2, params["start"]
    )


def _members(group: int, port: int, child: int, source: int, action: str, **params: int) -> Entry:
    match = {"group": group, "ingress_port": port, "child": child, "source": source}
    return Entry("members", fields(match), action, fields(params))


def _placed(group: int, slots: SlotRange) -> dict[str, int]:
    of_slots = {"slot_base": slots.first_number, "slot_mask": slots.mask, "start": slots.start}
    return {**of_slots, "mcast_group": multicast_id(group)}


def uplinks(group: int, port: int, child: int, me: Endpoint, parent: Endpoint) -> Entry:
    """Send the sum of a switch's children to its parent, as contributor `child`."""
    params = {"port": port, "child": child, **_addresses(me, parent)}
    return Entry("uplinks", fields({"group": group}), "uplink", fields(params))


def replicas(group: int, child: int, me: Endpoint, to: Endpoint) -> Entry:
    """Set the addresses of contributor `child`'s copy of a multicast packet."""
    return _replicas(group, child + 1, child, me, to)


def replicas_parent(group: int, child: int, me: Endpoint, parent: Endpoint) -> Entry:
    """Set the addresses of the parent's copy. `child` is this switch's index at the parent."""
    return _replicas(group, UPLINK_RID, child, me, parent)


def _replicas(group: int, rid: int, child: int, me: Endpoint, to: Endpoint) -> Entry:
    params = {"child": child, **_addresses(me, to), "udp_port": to.udp_port}
    return Entry("replicas", fields({"group": group, "egress_rid": rid}), "readdress", fields(params))


def _addresses(source: Endpoint, to: Endpoint) -> dict[str, int]:
    return {"src_mac": source.mac, "dst_mac": to.mac, "src_ip": source.ip, "dst_ip": to.ip}


def virtual_addresses(ip: int) -> Entry:
    """Let the switch itself answer for an IPv4 address."""
    return Entry("virtual_addresses", fields({"address": ip}), "owned", fields({"mac": virtual_mac(ip)}))


def connections(
    group: int,
    member: int,
    of: Connection,
    members: int,
    slots: SlotRange,
    header_base: int,
    *,
    is_root: bool,
) -> Entry:
    """Sum a connection's WRITEs with those of its group's other members, whose indices count from 0.

    `member` after the last member is the switch above.
    """
    own = {"member_number": member, "member_bit": sender_bit(member, members)}
    own |= {"first_psn": of.first_psn, "port": of.receiver_port, "header_base": header_base}
    place = {"slot_base": slots.first_number, "slot_mask": slots.mask, "epoch": slots.start}
    place |= {"group": group, "all_members": (1 << members) - 1, "is_root": int(is_root)}
    to = spread_id(group, is_root or member == members)
    return Entry("connections", of.key, "contributor", fields(own | place | {"mcast_group": to}))


def connections_serials(known: Serials) -> Entry:
    """Return a note of the controller to itself: the epoch from which a range of slots may be used again."""
    match = {"ingress_port": 0, "mac": 0, "source": known.base, "destination": 0, "qp": 0}
    unused = ["group", "member_number", "member_bit", "first_psn", "slot_base", "slot_mask", "header_base"]
    unused += ["port", "is_root", "mcast_group"]
    noted = dict.fromkeys(unused, 0) | {"all_members": known.size, "epoch": known.start}
    return Entry("connections", fields(match), "contributor", fields(noted))


def read_connections(entry: Entry) -> Serials | None:
    """Return the epoch from which the slots of an entry may be used again; None for other tables."""
    match, params = dict(entry.match), dict(entry.params)
    if entry.table != "connections":
        return None
    if match["ingress_port"] == 0:
        return Serials(match["source"], params["all_members"], params["epoch"])
    return Serials(params["slot_base"] // 2, (params["slot_mask"] + 1) // 2, params["epoch"] + 1)


def sender_bit(member: int, members: int) -> int:
    """Return a member's bit in a slot, or the bit of the switch above."""
    return 1 << member if member < members else RESULT_PRESENT


def deliveries(group: int, number: int, of: Connection, bit: int, header_base: int) -> Entry:
    """Set the headers of a sum's copy. Cells from `header_base` keep the headers of the sender with `bit`."""
    params = {**_addresses(of.sender, of.receiver), "udp_port": of.sender.udp_port, "qp": of.qp}
    params |= {"first_psn": of.first_psn, "member_bit": bit, "header_base": header_base}
    return Entry("deliveries", fields({"group": group, "member": number}), "deliver", fields(params))


def mac_table(mac: int, port: int) -> Entry:
    """Set the port of a NIC. Frames to unknown addresses go to FLOOD_GROUP, the table's default."""
    return Entry("mac_table", fields({"destination": mac}), "forward", fields({"port": port}))


def trunk_ports(port: int) -> Entry:
    """Trust all sources at a port that leads to another switch."""
    return Entry("trunk_ports", fields({"ingress_port": port}), "trusted", fields({}))


def ipv4_sources(port: int, mac: int, address: int) -> Entry:
    """Let a NIC send IPv4 packets from this address."""
    match = {"ingress_port": port, "mac": mac, "address": address}
    return Entry("ipv4_sources", fields(match), "own", fields({}))


def arp_sources(port: int, mac: int, address: int) -> Entry:
    """Let a NIC send ARP packets with this sender address."""
    match = {"ingress_port": port, "mac": mac, "sender_mac": mac, "address": address}
    return Entry("arp_sources", fields(match), "own", fields({}))


def other_sources(port: int, mac: int) -> Entry:
    """Let a NIC send frames that are neither IPv4 nor ARP."""
    return Entry("other_sources", fields({"ingress_port": port, "mac": mac}), "own", fields({}))


def injector(direction: str, port: int, probability: float) -> Entry:
    """Drop frames of a port with a probability. `direction` is ingress or egress, as in the tables' names."""
    threshold = min(round(probability * 2**32), 2**32 - 1)
    return Entry(
        f"injector_{direction}", fields({"port": port}), "inject_loss", fields({"threshold": threshold})
    )


def multicasts(group: int, ports: dict[int, int], uplink: int | None) -> frozenset[Multicast]:
    """Return a group's multicast groups. `ports` lead to its contributors, `uplink` to its parent, if any."""
    children = frozenset((port, child + 1) for child, port in ports.items())
    down = Multicast(multicast_id(group), children)
    if uplink is None:
        return frozenset({down})
    return frozenset({down, Multicast(spread_id(group, is_root=False), children | {(uplink, UPLINK_RID)})})


def flood(ports: frozenset[int]) -> Multicast:
    """Return the multicast group of flooded frames."""
    return Multicast(FLOOD_GROUP, frozenset((port, 0) for port in ports))


def flooded(multicasts: Iterable[Multicast]) -> frozenset[int]:
    """Undo `flood`: return the ports of flooded frames."""
    return frozenset(port for m in multicasts if m.group == FLOOD_GROUP for port, _ in m.replicas)


def ip_number(text: str) -> int:
    """Return an IPv4 address as an integer."""
    return int(IPv4Address(text))
