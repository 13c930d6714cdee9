# SPDX-License-Identifier: Apache-2.0
"""A network in virtual time: endpoints, switches, and links that lose, duplicate, reorder and delay.

Everything random comes from one seed. Hosts hang below a tree of switches; several jobs may share both.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from protocol.engine_switch import EngineSwitch, Station, host_station, switch_station
from protocol.switch_model import PARENT, Membership, Output, Port, SwitchModel

from railweave._native import ina

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
GROUP = 7
SECRET = bytes(range(32))


@dataclass(frozen=True)
class Link:
    """How one direction of a link treats packets; probabilities are per packet."""

    delay: int = 50 * MICROSECOND
    jitter: int = 0  # uniform, per packet: reorders
    loss: float = 0.0
    duplicate: float = 0.0
    packet_time: int = 0  # ns that one packet with lanes occupies the link; 0: unlimited rate
    reorder: float = 0.0  # share of the packets that `late` delays further
    late: int = 0


class Switch(Protocol):
    """One switch of the simulated network."""

    def add(self, member: Membership) -> None:
        """Give a group its place."""

    def remove(self, group: int) -> None:
        """Take a group's place away."""

    def process(self, port: Port, data: bytes) -> list[Output]:
        """Datagram in, datagrams out."""


class HangError(AssertionError):
    """Virtual time ran past its bound with slices incomplete."""


@dataclass(frozen=True)
class Shape:
    """A switch: a host number or a switch below at each port. `Shape.of((2, 1))` has two racks."""

    below: tuple[int | Shape, ...]

    @staticmethod
    def of(racks: int | Sequence[object], first: int = 0) -> Shape:
        """Nested numbers of hosts: 3, (2, 2), ((2, 1), (1,)) for one, two and three levels."""
        if isinstance(racks, int):
            return Shape(tuple(range(first, first + racks)))
        below: list[int | Shape] = []
        for rack in racks:
            child = Shape.of(rack, first)  # type: ignore[arg-type]
            below.append(child)
            first += len(list(child.hosts()))
        return Shape(tuple(below)) if len(below) > 1 else below[0]  # type: ignore[return-value]

    def hosts(self) -> Iterator[int]:
        """All hosts below, in order."""
        for each in self.below:
            if isinstance(each, int):
                yield each
            else:
                yield from each.hosts()


@dataclass
class Node:
    """A switch in its place: hosts and nodes by port."""

    switch: Switch
    below: dict[int, int | Node]
    number: int
    parent: tuple[Node, int] | None = None  # and this node's port there

    def nodes(self) -> Iterator[Node]:
        """This node and all below."""
        yield self
        for each in self.below.values():
            if not isinstance(each, int):
                yield from each.nodes()


def tree_of(shape: Shape, lanes: int = 8, engine: bool = False) -> Node:
    """Fresh switches in that shape: models, or with `engine` the compiled P4 program (64 or 256 lanes)."""
    number = 0

    def make(at: Shape, parent: int | None) -> Node:
        nonlocal number
        mine = number
        number += 1
        below = {
            port: each if isinstance(each, int) else make(each, mine) for port, each in enumerate(at.below)
        }
        stations: dict[Port, Station] = {
            port: host_station(each) if isinstance(each, int) else switch_station(each.number)
            for port, each in below.items()
        }
        if parent is not None:
            stations[PARENT] = switch_station(parent)
        switch: Switch = EngineSwitch(lanes, [], mine, stations) if engine else SwitchModel(lanes, [])
        node = Node(switch, below, mine)
        for port, each in below.items():
            if not isinstance(each, int):
                each.parent = (node, port)
        return node

    return make(shape, None)


def place(root: Node, group: int, hosts: Sequence[int], slots: int, start: int = 1, base: int = 0) -> None:
    """Give a group of these hosts its place in the switches; `child_of` says which child each host is."""

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
    """The number by which the host's switch knows it in a group of `hosts`."""
    for node in root.nodes():
        members = [each for each in node.below.values() if isinstance(each, int) and each in hosts]
        if host in members:
            return members.index(host)
    raise ValueError(f"host {host} is not in the tree")


@dataclass
class Rank:
    """One endpoint, on its host."""

    endpoint: ina.Endpoint
    host: int
    events: list[object] = field(default_factory=list)
    packets_sent: int = 0
    timer: int | None = None  # the earliest wake-up in the queue


Action = Callable[[], None]


class Network:
    """Endpoints on hosts, and the switches above them. With one job endpoint i is on host i."""

    def __init__(
        self,
        endpoints: Sequence[ina.Endpoint],
        root: Node,
        link: Link,
        seed: int,
        hosts: Sequence[int] | None = None,
    ) -> None:
        self.now = 0
        self.link = link
        self.links: Mapping[object, Link] = {}  # those that differ, by name
        self.random = random.Random(seed)
        self.ranks: list[Rank] = []
        self.root = root
        self._queue: list[tuple[int, int, Action]] = []
        self._number = 0
        self._free_at: dict[object, int] = {}
        self.replace(root)
        for index, endpoint in enumerate(endpoints):
            self.add(endpoint, hosts[index] if hosts else index)

    @property
    def endpoints(self) -> list[ina.Endpoint]:
        """All endpoints, in the order in which they were added."""
        return [rank.endpoint for rank in self.ranks]

    @property
    def events(self) -> list[list[object]]:
        """What each endpoint has reported."""
        return [rank.events for rank in self.ranks]

    @property
    def packets_sent(self) -> list[int]:
        """Datagrams by each endpoint."""
        return [rank.packets_sent for rank in self.ranks]

    def add(self, endpoint: ina.Endpoint, host: int) -> int:
        """Put one more endpoint on a host; its index."""
        self.ranks.append(Rank(endpoint, host))
        self._at_host.setdefault(host, []).append(len(self.ranks) - 1)
        return len(self.ranks) - 1

    def replace(self, root: Node) -> None:
        """Put these switches in the place of the present ones. What is under way arrives at the new ones."""
        self.root = root
        self._place = {
            each: (node, port)
            for node in root.nodes()
            for port, each in node.below.items()
            if isinstance(each, int)
        }
        if not self.ranks:
            self._at_host: dict[int, list[int]] = {}

    def at(self, when: int, action: Action) -> None:
        """Run `action` at a point in virtual time."""
        self._number += 1
        heapq.heappush(self._queue, (when, self._number, action))

    def send(self, link_name: object, arrive: Action, size: int = 0) -> None:
        """Put a packet of `size` payload bytes on a link: `arrive` runs once, twice or never."""
        link = self.links.get(link_name, self.link) if self.links else self.link
        arrival = self.now
        if link.packet_time:
            # A probe is a small part of a packet with lanes.
            occupied = link.packet_time if size > 16 else link.packet_time // 16
            arrival = max(self.now, self._free_at.get(link_name, 0)) + occupied
            self._free_at[link_name] = arrival
        chance = self.random.random
        if link.loss and chance() < link.loss:
            return
        for _ in range(2 if link.duplicate and chance() < link.duplicate else 1):
            delay = link.delay + (int(chance() * (link.jitter + 1)) if link.jitter else 0)
            if link.reorder and chance() < link.reorder:
                delay += link.late
            self.at(arrival + delay, arrive)

    def pump(self, index: int) -> None:
        """Send what the endpoint has, and take its events."""
        rank = self.ranks[index]
        endpoint, host = rank.endpoint, rank.host
        while (data := endpoint.transmit(self.now)) is not None:
            rank.packets_sent += 1
            self.send(("up", host), partial(self.from_host, host, data), len(data))
        while (event := endpoint.poll()) is not None:
            rank.events.append(event)
        deadline = endpoint.deadline()
        if deadline is not None and (rank.timer is None or deadline < rank.timer):
            rank.timer = deadline
            self.at(deadline, partial(self._wake, index, deadline))

    def _wake(self, index: int, timer: int) -> None:
        rank = self.ranks[index]
        if rank.timer == timer:
            rank.timer = None
        deadline = rank.endpoint.deadline()
        if deadline is not None and deadline <= self.now:
            rank.endpoint.expire(self.now)
        self.pump(index)

    def from_host(self, host: int, data: bytes) -> None:
        """A datagram of a host enters its switch."""
        node, port = self._place[host]
        self.at_switch(node, port, data)

    def at_switch(self, node: Node, port: Port, data: bytes) -> None:
        """A datagram enters a switch."""
        for out, packet in node.switch.process(port, data):
            if out == PARENT:
                assert node.parent is not None
                above, their_port = node.parent
                arrive: Action = partial(self.at_switch, above, their_port, packet)
                self.send(("trunk up", node.number), arrive, len(packet))
                continue
            below = node.below[int(out)]
            if isinstance(below, int):
                self.send(("down", below), partial(self.at_host, below, packet), len(packet))
            else:
                arrive = partial(self.at_switch, below, PARENT, packet)
                self.send(("trunk down", below.number), arrive, len(packet))

    def at_host(self, host: int, data: bytes) -> None:
        """A datagram arrives at a host: to the endpoint of its group, or to all, which refuse it."""
        here = self._at_host[host]
        if len(here) > 1:
            group = int.from_bytes(data[2:4])
            here = [index for index in here if self.ranks[index].endpoint.group == group] or here
        for index in here:
            self.ranks[index].endpoint.receive(data, self.now)
            self.pump(index)

    def step(self) -> bool:
        """Advance to the next delivery or deadline; False when nothing will ever happen."""
        if not self._queue:
            return False
        when, _, action = heapq.heappop(self._queue)
        self.now = max(self.now, when)
        action()
        return True

    def run(self, done: Callable[[], bool], within: int) -> None:
        """Advance until `done`; HangError if that takes over `within` ns, or if nothing is under way."""
        bound = self.now + within
        while not done():
            if not self.step() or self.now > bound:
                raise HangError(
                    f"at {self.now} ns: events {self.events}, stats {[e.stats() for e in self.endpoints]}"
                )

    def drain(self) -> None:
        """Deliver what is under way."""
        while self._queue:
            self.step()


def build(
    hosts: int | Sequence[object],
    *,
    slots: int = 16,
    lanes: int = 8,
    link: Link | None = None,
    seed: int = 0,
    start: int = 1,
    engine: bool = False,
    sealed: bool = True,
    **options: int,
) -> Network:
    """A network of one job on all hosts: on one switch, or in racks below others (`Shape.of`)."""
    root = tree_of(Shape.of(hosts), lanes, engine)
    return Network(
        join(root, range(len(root_hosts(root))), slots, lanes, start=start, sealed=sealed, **options),
        root,
        link or Link(),
        seed,
    )


def root_hosts(root: Node) -> list[int]:
    """All hosts below a tree."""
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
    """Place a group in the tree; its endpoints, by host."""
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
