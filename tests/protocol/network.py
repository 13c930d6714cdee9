# SPDX-License-Identifier: Apache-2.0
"""A network in virtual time: endpoints, switches, and links that lose, duplicate, reorder and delay.

Everything random comes from one seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from protocol.engine_switch import EngineSwitch
from protocol.switch_model import PARENT, Membership, Output, Port, SwitchModel
from railweave._native import ina

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
GROUP = 7


@dataclass(frozen=True)
class Link:
    """How one direction of a link treats packets; probabilities are per packet."""

    delay: int = 50 * MICROSECOND
    jitter: int = 0  # uniform, per packet: reorders
    loss: float = 0.0
    duplicate: float = 0.0
    packet_time: int = 0  # ns that one packet occupies the link; 0: unlimited rate


class Switch(Protocol):
    """One switch of the simulated network."""

    def process(self, port: Port, data: bytes) -> list[Output]:
        """Datagram in, datagrams out."""


@dataclass(order=True)
class _Delivery:
    at: int
    number: int
    action: Callable[[], None] = field(compare=False)


class HangError(AssertionError):
    """Virtual time ran past its bound with slices incomplete."""


@dataclass(frozen=True)
class Tree:
    """Switches: rack i has `racks[i]` hosts below `leaves[i]`. With one rack its leaf is the root."""

    racks: Sequence[int]
    leaves: Sequence[Switch]
    root: Switch | None = None


class Network:
    """Hosts 0…n-1, rack by rack, and the switches above them."""

    def __init__(self, endpoints: Sequence[ina.Endpoint], tree: Tree, link: Link, seed: int) -> None:
        self.now = 0
        self.endpoints = list(endpoints)
        self.tree = tree
        self.link = link
        self.random = random.Random(seed)
        self.place = [(rack, port) for rack, hosts in enumerate(tree.racks) for port in range(hosts)]
        self.host_at = {place: host for host, place in enumerate(self.place)}
        self.events: list[list[object]] = [[] for _ in endpoints]
        self.packets_sent = [0] * len(self.endpoints)
        self._queue: list[_Delivery] = []
        self._numbers = itertools.count()
        self._free_at: dict[object, int] = {}

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Run `action` at a point in virtual time."""
        heapq.heappush(self._queue, _Delivery(when, next(self._numbers), action))

    def send(self, link_name: object, arrive: Callable[[], None]) -> None:
        """Put a packet on a link: `arrive` runs once, twice or never."""
        start = max(self.now, self._free_at.get(link_name, 0))
        self._free_at[link_name] = start + self.link.packet_time
        if self.random.random() < self.link.loss:
            return
        copies = 2 if self.random.random() < self.link.duplicate else 1
        for _ in range(copies):
            jitter = self.random.randrange(self.link.jitter + 1)
            self.at(start + self.link.packet_time + self.link.delay + jitter, arrive)

    def pump(self, host: int) -> None:
        """Send what the endpoint has, and take its events."""
        endpoint = self.endpoints[host]
        rack, port = self.place[host]
        while (data := endpoint.transmit(self.now)) is not None:
            self.packets_sent[host] += 1
            self.send(("up", host), partial(self.at_leaf, rack, port, data))
        while (event := endpoint.poll()) is not None:
            self.events[host].append(event)

    def at_leaf(self, rack: int, port: Port, data: bytes) -> None:
        """A datagram enters a leaf switch."""
        for out, packet in self.tree.leaves[rack].process(port, data):
            if out == PARENT:
                self.send(("trunk up", rack), partial(self.at_root, rack, packet))
            else:
                host = self.host_at[rack, int(out)]
                self.send(("down", host), partial(self.at_host, host, packet))

    def at_root(self, rack: int, data: bytes) -> None:
        """A datagram enters the root switch, whose children are the leaves."""
        assert self.tree.root is not None
        for out, packet in self.tree.root.process(rack, data):
            self.send(("trunk down", out), partial(self.at_leaf, int(out), PARENT, packet))

    def at_host(self, host: int, data: bytes) -> None:
        """A datagram arrives at a host."""
        self.endpoints[host].receive(data, self.now)
        self.pump(host)

    def step(self) -> bool:
        """Advance to the next delivery or deadline; False when nothing will ever happen."""
        deadlines = [(at, host) for host, e in enumerate(self.endpoints) if (at := e.deadline()) is not None]
        first = min(deadlines, default=None)
        if self._queue and (first is None or self._queue[0].at <= first[0]):
            delivery = heapq.heappop(self._queue)
            self.now = max(self.now, delivery.at)
            delivery.action()
            return True
        if first is None:
            return False
        self.now = max(self.now, first[0])
        self.endpoints[first[1]].expire(self.now)
        self.pump(first[1])
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


def tree_of(
    racks: Sequence[int],
    *,
    group: int = GROUP,
    slots: int = 16,
    lanes: int = 8,
    start: int = 1,
    engine: bool = False,
) -> Tree:
    """Fresh switches with one group: a leaf per rack, and a root above them if there are several.

    Switches are models, or with `engine` the compiled P4 program (64 or 256 lanes).
    """
    is_tree = len(racks) > 1
    below_root = Membership(group, len(racks), slots, start)
    at_leaf = [
        Membership(group, rack, slots, start, child_at_parent=i if is_tree else None)
        for i, rack in enumerate(racks)
    ]
    root: Switch | None = None
    leaves: list[Switch]
    if engine:
        leaves = [EngineSwitch(lanes, member, rack) for rack, member in enumerate(at_leaf)]
        root = EngineSwitch(lanes, below_root, below="switches") if is_tree else None
    else:
        leaves = [SwitchModel(lanes, [member]) for member in at_leaf]
        root = SwitchModel(lanes, [below_root]) if is_tree else None
    return Tree(racks, leaves, root)


def build(
    hosts: int | Sequence[int],
    *,
    slots: int = 16,
    lanes: int = 8,
    link: Link | None = None,
    seed: int = 0,
    start: int = 1,
    engine: bool = False,
    **options: int,
) -> Network:
    """A network of `hosts` on one switch, or with one rack per number below a root."""
    racks = [hosts] if isinstance(hosts, int) else list(hosts)
    endpoints = [
        ina.Endpoint(group=GROUP, child=child, slots=slots, lanes=lanes, world_size=sum(racks), **options)
        for rack in racks
        for child in range(rack)
    ]
    tree = tree_of(racks, slots=slots, lanes=lanes, start=start, engine=engine)
    return Network(endpoints, tree, link or Link(), seed)
