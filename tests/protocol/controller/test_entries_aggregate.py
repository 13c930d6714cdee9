# SPDX-License-Identifier: Apache-2.0
"""Desired state in the real program: on one switch and on trees, all arrives and nobody else gets in.

The controller's values go straight into engines that run the compiled program, joined as the topology says.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

import pytest
from controller_world import checksum

from railweave.controller import desired
from railweave.controller.addresses import AddressPlan
from railweave.controller.desired import Aggregation
from railweave.controller.routes import routes
from railweave.controller.slots import SlotRange
from railweave.controller.tables import Endpoint, ip_number, mac_number, virtual_mac
from railweave.controller.trees import build
from railweave.p4src.artifacts import artifact
from railweave.p4src.config import CONFIG
from railweave.switch.lowering import lower
from railweave.switch.pipeline import Pipeline, Replica, exact
from railweave.switch.program import Program
from railweave.topologies.model import Nic, Plane, Switch, Trunk

LANES = 64
GROUP = 9
SLOTS = 16
ETHERNET, IPV4, UDP, INA = (
    struct.Struct("!6s6sH"),
    struct.Struct("!BBHHHBBHII"),
    struct.Struct("!HHHH"),
    struct.Struct("!BBHBBHII"),
)
KEYS = {
    "members": ("group", "ingress_port", "child", "source"),
    "uplinks": ("group",),
    "replicas": ("group", "egress_rid"),
    "virtual_addresses": ("address",),
    "mac_table": ("destination",),
    "trunk_ports": ("ingress_port",),
    "ipv4_sources": ("ingress_port", "mac", "address"),
    "arp_sources": ("ingress_port", "mac", "sender_mac", "address"),
    "other_sources": ("ingress_port", "mac"),
}
PARAMS = {
    "contributor": (
        *("child_bit", "all_children", "slot_base", "slot_mask", "start", "is_root"),
        *("mcast_group", "spread_group"),
    ),
    "parent": ("slot_base", "slot_mask", "start", "mcast_group"),
    "uplink": ("port", "child", "src_mac", "dst_mac", "src_ip", "dst_ip"),
    "readdress": ("child", "src_mac", "dst_mac", "src_ip", "dst_ip", "udp_port"),
    "owned": ("mac",),
    "forward": ("port",),
    "trusted": (),
    "own": (),
}


@dataclass(frozen=True)
class Result:
    """What a host has received."""

    kind: int
    child: int
    round: int
    udp_port: int
    source: int
    payload: bytes


class Network:
    """Engines joined by the plane's trunks; packets for hosts end in their inboxes."""

    def __init__(self, plane: Plane, starts: dict[str, int]) -> None:
        self.plane = plane
        self.addresses = AddressPlan(plane)
        self.ranks = dict(enumerate(plane.nics))
        hosts = {
            rank: Endpoint(mac_number(nic.mac), ip_number(nic.address), 4000 + rank)
            for rank, nic in self.ranks.items()
        }
        names = [switch.name for switch in plane.switches]
        virtual = self.addresses.choose([])
        self.group = Aggregation(GROUP, plane.name, build(plane, self.ranks, names), virtual, hosts)
        self.engines = {name: Pipeline(*program()) for name in names}
        self.inboxes: dict[int, list[bytes]] = {rank: [] for rank in self.ranks}
        self.crossed: Counter[Trunk] = Counter()
        ways = routes(plane)
        for name, engine in self.engines.items():
            way = ways[name]
            parts = [desired.source_guard(plane, name)]
            parts.append(desired.forwarding(way, self.addresses.switches[name], way.tree))
            if any(node.switch == name for node in self.group.tree.nodes):
                slots = SlotRange(32, SLOTS, starts.get(name, 1))
                parts.append(desired.aggregation(self.group, name, slots, self.addresses.switches))
            install(engine, desired.merge(parts))

    def send(self, rank: int, frame: bytes) -> None:
        """Carry a frame, and all that comes of it, to where it goes."""
        nic = self.ranks[rank]
        queue = deque([(nic.switch, nic.port, frame)])
        while queue:
            switch, port, packet = queue.popleft()
            for out, copy in self.engines[switch].inject(port, packet):
                self._deliver(switch, out, copy, queue)

    def _deliver(self, switch: str, port: int, frame: bytes, queue: deque[tuple[str, int, bytes]]) -> None:
        for rank, nic in self.ranks.items():
            if (nic.switch, nic.port) == (switch, port):
                self.inboxes[rank].append(frame)
                return
        for trunk in self.plane.trunks:
            ends = {(trunk.lower, trunk.lower_port): (trunk.upper, trunk.upper_port)}
            ends |= {there: here for here, there in ends.items()}
            if (switch, port) in ends:
                self.crossed[trunk] += 1
                queue.append((*ends[switch, port], frame))
                return
        raise AssertionError(f"{switch} sent out of port {port}, which leads nowhere")

    def contribute(self, rank: int, slot: int, round_: int, lanes: list[int], **wrong: int) -> None:
        """A host's contribution; `wrong` replaces fields that a stranger would get wrong."""
        self._send(rank, CONFIG["KIND_CONTRIBUTE"], slot, round_, struct.pack(f"!{LANES}i", *lanes), **wrong)

    def spread(self, rank: int, chunk: int, payload: bytes, **wrong: int) -> None:
        """A chunk of a host's shard, for all others."""
        self._send(rank, CONFIG["KIND_SPREAD"], rank, chunk, payload, **wrong)

    def _send(self, rank: int, kind: int, slot: int, round_: int, payload: bytes, **wrong: int) -> None:
        nic = self.ranks[rank]
        _, place = self.group.tree.place(rank)
        child, source = wrong.get("child", place.child), wrong.get("source", ip_number(nic.address))
        first, group = CONFIG["INA_VERSION"] << 4 | kind, wrong.get("group", GROUP)
        payload = INA.pack(first, 0, group, child, 0, slot, round_, 7) + payload
        udp = UDP.pack(4000 + rank, CONFIG["INA_UDP_PORT"], 8 + len(payload), 0)
        ip = IPV4.pack(0x45, 0, 20 + len(udp) + len(payload), 0, 0, 64, 17, 0, source, self.group.virtual_ip)
        ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
        to = virtual_mac(self.group.virtual_ip).to_bytes(6, "big")
        mac = mac_number(nic.mac).to_bytes(6, "big")
        self.send(wrong.get("at", rank), ETHERNET.pack(to, mac, 0x0800) + ip + udp + payload)

    def received(self, rank: int) -> list[Result]:
        """What has come for a host since the last call; addressed to nobody else."""
        frames, self.inboxes[rank] = self.inboxes[rank], []
        return [self._read(rank, frame) for frame in frames]

    def _read(self, rank: int, frame: bytes) -> Result:
        to, _, _ = ETHERNET.unpack_from(frame)
        assert int.from_bytes(to, "big") == self.group.hosts[rank].mac
        *_, source, destination = IPV4.unpack_from(frame, 14)
        assert destination == self.group.hosts[rank].ip
        _, udp_port, length, _ = UDP.unpack_from(frame, 34)
        version_kind, _, _, child, _, _, round_, _ = INA.unpack_from(frame, 42)
        return Result(version_kind & 15, child, round_, udp_port, source, frame[58 : 34 + length])


def install(engine: Pipeline, state: desired.SwitchState) -> None:
    """Put the controller's values into an engine, in the order of the program's keys and parameters."""
    for entry in state.entries:
        match, params = dict(entry.match), dict(entry.params)
        keys = [exact(match[name]) for name in KEYS[entry.table]]
        values = [params[name].to_bytes(8, "big") for name in PARAMS[entry.action]]
        engine.tables.insert(entry.table, keys, entry.action, values)
    for multicast in state.multicasts:
        engine.replication.set_group(
            multicast.group, [Replica(port, rid) for port, rid in sorted(multicast.replicas)]
        )


@functools.cache
def program() -> tuple[Program, bytes]:
    """The compiled program, lowered once for all engines."""
    return lower(artifact(LANES).json_path.read_bytes())


def nics(leaves: list[str], per_leaf: int) -> tuple[Nic, ...]:
    places = itertools.product(leaves, range(1, per_leaf + 1))
    return tuple(
        Nic(f"h{i}", f"h{i}-ina", f"10.1.0.{i}", f"02:00:00:01:00:{i:02x}", leaf, port)
        for i, (leaf, port) in enumerate(places, start=1)
    )


def one_level() -> Plane:
    switches = (Switch("s", "127.0.0.1:1"),)
    return Plane("ina", "ina", "10.1.0.0/16", 0, switches, nics(["s"], 4))


def two_levels() -> Plane:
    trunks = (Trunk("leaf1", 7, "spine", 1), Trunk("leaf2", 8, "spine", 2))
    switches = tuple(Switch(name, "127.0.0.1:1") for name in ("leaf1", "leaf2", "spine"))
    return Plane("ina", "ina", "10.1.0.0/16", 0, switches, nics(["leaf1", "leaf2"], 2), trunks)


def three_levels() -> Plane:
    trunks = (
        Trunk("leaf1", 7, "mid1", 1),
        Trunk("leaf2", 7, "mid1", 2),
        Trunk("leaf3", 7, "mid2", 1),
        Trunk("mid1", 9, "core", 1),
        Trunk("mid2", 9, "core", 2),
    )
    names = ("leaf1", "leaf2", "leaf3", "mid1", "mid2", "core")
    switches = tuple(Switch(name, "127.0.0.1:1") for name in names)
    return Plane("ina", "ina", "10.1.0.0/16", 0, switches, nics(["leaf1", "leaf2", "leaf3"], 2), trunks)


PLANES = {"one level": one_level, "two levels": two_levels, "three levels": three_levels}


@pytest.fixture(params=PLANES)
def network(request: pytest.FixtureRequest) -> Network:
    plane = PLANES[request.param]()
    starts = (1 + 1000 * place for place in itertools.count())
    return Network(plane, dict(zip((s.name for s in plane.switches), starts, strict=False)))


def lanes_of(rank: int) -> list[int]:
    return [(rank + 1) * (lane - 20) for lane in range(LANES)]


def expected(network: Network) -> bytes:
    sums = map(sum, zip(*(lanes_of(rank) for rank in network.ranks), strict=True))
    return struct.pack(f"!{LANES}i", *sums)


def rounds() -> Iterator[tuple[int, int]]:
    """Slot and round of the chunks of a group, in order, twice over all slots and copies."""
    for chunk in range(4 * SLOTS):
        yield (chunk % SLOTS) * 2 + chunk // SLOTS % 2, chunk // (2 * SLOTS)


def test_every_host_gets_every_sum_once_as_the_child_that_it_is(network: Network) -> None:
    for slot, round_ in rounds():
        for rank in network.ranks:
            assert all(not inbox for inbox in network.inboxes.values())
            network.contribute(rank, slot, round_, lanes_of(rank))
        for rank in network.ranks:
            (result,) = network.received(rank)
            _, place = network.group.tree.place(rank)
            assert result == Result(
                1, place.child, round_, 4000 + rank, network.group.virtual_ip, expected(network)
            )


def test_a_lost_result_is_reflected_to_the_one_who_asks_again(network: Network) -> None:
    for rank in network.ranks:
        network.contribute(rank, 0, 0, lanes_of(rank))
    for rank in network.ranks:
        assert len(network.received(rank)) == 1
    network.contribute(1, 0, 0, lanes_of(1))
    (again,) = network.received(1)
    assert again.payload == expected(network)
    assert all(not inbox for inbox in network.inboxes.values())


STRANGERS: list[dict[str, int]] = [
    {"child": 30},
    {"group": 8},
    {"source": int(IPv4Address("10.1.0.99"))},
    {"at": 1},
    {"group": 0, "child": 0, "source": 32},
]


@pytest.mark.parametrize("wrong", STRANGERS)
def test_strangers_change_nothing(network: Network, wrong: dict[str, int]) -> None:
    network.contribute(0, 0, 0, [1000] * LANES, **wrong)
    for rank in network.ranks:
        network.contribute(rank, 0, 0, lanes_of(rank))
    for rank in network.ranks:
        (result,) = network.received(rank)
        assert result.payload == expected(network)


def test_slots_outside_the_range_are_refused(network: Network) -> None:
    for rank in network.ranks:
        network.contribute(rank, 2 * SLOTS, 0, lanes_of(rank))
    assert all(not inbox for inbox in network.inboxes.values())


@pytest.mark.parametrize("size", [1, 1024, 8956])
def test_what_a_host_spreads_reaches_all_others_once_and_crosses_each_trunk_once(
    network: Network, size: int
) -> None:
    of_tree = [trunk for trunk in network.plane.trunks if in_tree(network, trunk)]
    assert len(of_tree) == len(network.group.tree.nodes) - 1
    for chunk, sender in enumerate(network.ranks):
        payload = bytes((sender + place) % 251 for place in range(size))
        network.crossed.clear()
        network.spread(sender, chunk, payload)
        assert network.crossed == dict.fromkeys(of_tree, 1)
        for rank in network.ranks:
            _, place = network.group.tree.place(rank)
            as_sent = Result(3, place.child, chunk, 4000 + rank, network.group.virtual_ip, payload)
            assert network.received(rank) == ([] if rank == sender else [as_sent])


def in_tree(network: Network, trunk: Trunk) -> bool:
    links = {(node.switch, node.parent.switch) for node in network.group.tree.nodes if node.parent}
    return not links.isdisjoint({(trunk.lower, trunk.upper), (trunk.upper, trunk.lower)})


@pytest.mark.parametrize("wrong", STRANGERS)
def test_what_strangers_spread_reaches_nobody(network: Network, wrong: dict[str, int]) -> None:
    network.spread(0, 0, bytes(1024), **wrong)
    assert all(not inbox for inbox in network.inboxes.values())


def test_frames_between_hosts_go_where_they_should(network: Network) -> None:
    last = max(network.ranks)
    mac = [mac_number(nic.mac).to_bytes(6, "big") for nic in network.ranks.values()]
    unicast = ETHERNET.pack(mac[last], mac[0], 0x88B5) + bytes(50)
    network.send(0, unicast)
    assert {rank: len(inbox) for rank, inbox in network.inboxes.items() if inbox} == {last: 1}
    network.inboxes[last].clear()
    network.send(0, ETHERNET.pack(b"\xff" * 6, mac[0], 0x88B5) + bytes(50))
    assert {rank: len(inbox) for rank, inbox in network.inboxes.items()} == {
        r: int(r != 0) for r in network.ranks
    }
