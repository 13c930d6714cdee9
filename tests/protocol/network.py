# SPDX-License-Identifier: Apache-2.0
"""Endpoints of the in-network rail in virtual time, below a tree of switches that several jobs may share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from protocol.switch_model import PARENT, Membership, Port, SwitchModel
from protocol.virtual_time import Link, Process, World

from railweave._rigs import ina

GROUP = 7
SECRET = bytes(range(32))


Shape = int | Sequence["Shape"]
"""Nested numbers of hosts: 3 has one switch, (2, 2) two racks below a root, ((2, 1), (1,)) three levels."""


@dataclass
class Node:
    """A switch of a tree, with the hosts and nodes below it by port."""

    switch: SwitchModel
    below: dict[int, int | Node]
    number: int
    parent: tuple[Node, int] | None = None  # the parent, and this node's port there
    asleep_until: int = 0  # the switch's process gets no core before this time

    def nodes(self) -> Iterator[Node]:
        """Yield this node and all nodes below."""
        yield self
        for each in self.below.values():
            if not isinstance(each, int):
                yield from each.nodes()


def tree_of(shape: Shape, lanes: int = 8) -> Node:
    """Build new switches in a shape."""
    numbers, names = itertools.count(), itertools.count()

    def make(at: Shape) -> Node:
        while not isinstance(at, int) and len(at) == 1:
            at = at[0]
        mine = next(numbers)
        below: dict[int, int | Node] = {
            port: next(names) if isinstance(at, int) else make(at[port])
            for port in range(at if isinstance(at, int) else len(at))
        }
        node = Node(SwitchModel(lanes, []), below, mine)
        for port, each in below.items():
            if not isinstance(each, int):
                each.parent = (node, port)
        return node

    return make(shape)


def place(root: Node, group: int, hosts: Sequence[int], slots: int, start: int = 1, base: int = 0) -> None:
    """Add a group of these hosts to the switches. `child_of` returns each host's child number."""

    def serve(node: Node, child_at_parent: int | None) -> bool:
        ports: list[int] = []
        for port, each in node.below.items():
            if (each in hosts) if isinstance(each, int) else serve(each, len(ports)):
                ports.append(port)
        if ports:
            member = Membership(group, len(ports), slots, start, base, child_at_parent, tuple(ports))
            node.switch.add(member)
        return bool(ports)

    serve(root, None)


def child_of(root: Node, host: int, hosts: Sequence[int]) -> int:
    """Return a host's child number at its switch, in a group of `hosts`."""
    for node in root.nodes():
        members = [each for each in node.below.values() if isinstance(each, int) and each in hosts]
        if host in members:
            return members.index(host)
    raise ValueError(f"host {host} is not in the tree")


class Rank(Process):
    """One endpoint, on its host."""

    world: Network

    def __init__(self, world: Network, endpoint: ina.Endpoint, host: int) -> None:
        super().__init__(world, endpoint)
        self.host = host
        self.events: list[Any] = []
        self.packets_sent = 0

    def transmit(self, packet: bytes) -> None:
        """Send a datagram to the host's switch."""
        self.packets_sent += 1
        self.world.send(("up", self.host), packet, partial(self.world.from_host, self.host))

    def event(self, event: Any) -> None:
        """Store an event that the endpoint reports."""
        self.events.append(event)


class Network(World):
    """Endpoints on hosts, and the switches above them. In a single job, endpoint i is on host i."""

    def __init__(
        self,
        endpoints: Sequence[ina.Endpoint],
        root: Node,
        link: Link,
        seed: int,
        hosts: Sequence[int] | None = None,
    ) -> None:
        super().__init__(seed, link)
        self.ranks: list[Rank] = []
        self.replace(root)
        for index, endpoint in enumerate(endpoints):
            self.add(endpoint, hosts[index] if hosts else index)

    @property
    def endpoints(self) -> list[ina.Endpoint]:
        """Return all endpoints, in the order in which they were added."""
        return [rank.machine for rank in self.ranks]

    @property
    def events(self) -> list[list[Any]]:
        """Return the events that each endpoint has reported."""
        return [rank.events for rank in self.ranks]

    def add(self, endpoint: ina.Endpoint, host: int) -> int:
        """Put one more endpoint on a host. Return its index."""
        self.ranks.append(Rank(self, endpoint, host))
        return len(self.ranks) - 1

    def replace(self, root: Node) -> None:
        """Replace all switches. Packets that are under way arrive at the new switches."""
        self.root = root
        self._place = {
            each: (node, port)
            for node in root.nodes()
            for port, each in node.below.items()
            if isinstance(each, int)
        }

    def from_host(self, host: int, data: bytes) -> None:
        """Deliver a host's datagram to its switch."""
        self.at_switch(*self._place[host], data)

    def at_switch(self, node: Node, port: Port, data: bytes) -> None:
        """Deliver a datagram to a switch, and send its outputs on."""
        if self.now < node.asleep_until:
            self.at(node.asleep_until, partial(self.at_switch, node, port, data))
            return
        for out, packet in node.switch.process(port, data):
            if out == PARENT:
                assert node.parent is not None
                self.send(("trunk up", node.number), packet, partial(self.at_switch, *node.parent))
                continue
            below = node.below[int(out)]
            if isinstance(below, int):
                self.send(("down", below), packet, partial(self.at_host, below))
            else:
                self.send(("trunk down", below.number), packet, partial(self.at_switch, below, PARENT))

    def at_host(self, host: int, data: bytes) -> None:
        """Deliver a datagram to its group's endpoint on a host.

        If the host has no such endpoint, all endpoints get the datagram and refuse it.
        """
        here = [rank for rank in self.ranks if rank.host == host]
        group = int.from_bytes(data[2:4], "big")
        for rank in [rank for rank in here if rank.machine.group == group] or here:
            rank.arrive(data)

    def describe(self) -> str:
        """Describe the endpoints' events and counters."""
        return f"events {self.events}, stats {[endpoint.stats() for endpoint in self.endpoints]}"


def build(
    hosts: Shape,
    *,
    slots: int = 16,
    lanes: int = 8,
    link: Link | None = None,
    seed: int = 0,
    start: int = 1,
    sealed: bool = True,
    **options: int,
) -> Network:
    """Build a network with one job on all hosts, below one switch or a tree of switches."""
    root = tree_of(hosts, lanes)
    return Network(
        join(root, range(len(root_hosts(root))), slots, lanes, start=start, sealed=sealed, **options),
        root,
        link or Link(),
        seed,
    )


def root_hosts(root: Node) -> list[int]:
    """Return all hosts below a tree."""
    return sorted(each for node in root.nodes() for each in node.below.values() if isinstance(each, int))


def join(
    root: Node,
    hosts: Sequence[int],
    slots: int,
    lanes: int,
    *,
    group: int = GROUP,
    start: int = 1,
    base: int = 0,
    sealed: bool = True,
    **options: int,
) -> list[ina.Endpoint]:
    """Add a group to the tree. Return its endpoints by host."""
    place(root, group, hosts, slots, start, base)
    return [
        ina.Endpoint(
            group=group,
            child=child_of(root, host, hosts),
            slots=slots,
            lanes=lanes,
            world_size=len(hosts),
            secret=SECRET if sealed else None,
            rank=rank,
            **options,
        )
        for rank, host in enumerate(hosts)
    ]
