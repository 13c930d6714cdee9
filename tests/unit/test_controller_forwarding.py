# SPDX-License-Identifier: Apache-2.0
"""Ordinary frames reach every NIC, avoid dead parts, and never loop, in any order of the switches' steps."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence

import networkx as nx
import pytest
from unit.test_controller_state import apply

from railweave.controller import desired, tables
from railweave.controller.addresses import AddressPlan
from railweave.controller.errors import SwitchUnavailable
from railweave.controller.fabric import Fabric
from railweave.controller.managed import ManagedSwitch
from railweave.controller.routes import routes
from railweave.controller.state import SwitchState, Update
from railweave.p4src.artifacts import artifact
from railweave.topologies.clos import fat_tree, leaf_spine
from railweave.topologies.model import Plane, Topology

End = tuple[str, int]
SUSPECT_S = 1000.0


def ends(plane: Plane) -> dict[End, End]:
    """Return the other end of every trunk."""
    known = {(t.lower, t.lower_port): (t.upper, t.upper_port) for t in plane.trunks}
    return known | {there: here for here, there in known.items()}


def flooded(state: SwitchState) -> set[int]:
    return {port for m in state.multicasts if m.group == tables.FLOOD_GROUP for port, _ in m.replicas}


def trunks_flooded(plane: Plane, states: dict[str, SwitchState]) -> set[End]:
    return {(name, port) for name, state in states.items() for port in flooded(state)} & ends(plane).keys()


def loop(plane: Plane, states: dict[str, SwitchState]) -> list[tuple[End, End]]:
    """Return a cycle of a flooded frame, or []. A switch sends no frame back to its input port."""
    out, other = trunks_flooded(plane, states), ends(plane)
    ways = nx.DiGraph(
        (one, two) for one in out for two in out if other[one][0] == two[0] and other[one] != two
    )
    try:
        return list(nx.find_cycle(ways))
    except nx.NetworkXNoCycle:
        return []


class FakeLink:
    """A replacement for a switch's P4Runtime session. Each request waits until the test answers it."""

    def __init__(self, switch: ManagedSwitch, network: Network) -> None:
        self.connected, self.unreachable = switch.link._connected, switch.link._unreachable
        self.name = switch.name
        self.address = self.problem = "fake"
        self.up = self.wiped = False
        self.state = SwitchState()
        self.sessions = 0
        self._network = network

    @property
    def session(self) -> object:
        if not self.up:
            raise SwitchUnavailable(self.problem)
        return self.sessions

    def has(self, name: str) -> bool:
        return True

    async def read(self) -> SwitchState:
        await self._network.turn(self)
        return self.state

    async def write(self, updates: Sequence[Update]) -> None:
        if updates:
            await self._network.turn(self, apply(self.state, updates))


class Network:
    """The switches of a fabric. A seed decides in which order their requests are answered."""

    def __init__(self, topology: Topology, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fabric = Fabric(topology, artifact(64), SUSPECT_S)
        self.plane = topology.planes[0]
        self.links: dict[str, FakeLink] = {}
        for switch in self.fabric.switches():
            self.links[switch.name] = FakeLink(switch, self)
            switch.link = self.links[switch.name]
        self._waiting: list[tuple[FakeLink, SwitchState | None, asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def turn(self, link: FakeLink, written: SwitchState | None = None) -> None:
        """Wait until the request is answered. Raise SwitchUnavailable if its answer is lost."""
        if not link.up:
            raise SwitchUnavailable(link.problem)
        answered = asyncio.get_running_loop().create_future()
        self._waiting.append((link, written, answered))
        await answered

    def held(self) -> dict[str, SwitchState]:
        return {name: link.state for name, link in self.links.items()}

    def put(self, link: FakeLink, state: SwitchState) -> None:
        """Change the state of a switch, and check that a broadcast still finds no loop."""
        link.state = state
        assert not loop(self.plane, self.held())

    def answer(self) -> bool:
        """Answer a random request. Return False if there is no request."""
        if not self._waiting:
            return False
        link, written, answered = self._waiting.pop(self.rng.randrange(len(self._waiting)))
        if written:
            self.put(link, written)
        answered.set_result(None)
        return True

    def lose(self, link: FakeLink) -> None:
        """Break a session. Its switch goes on forwarding, and may have done a request without an answer."""
        link.up = False
        for request in [request for request in self._waiting if request[0] is link]:
            self._waiting.remove(request)
            if request[1] and self.rng.random() < 0.5:
                self.put(link, request[1])
            request[2].set_exception(SwitchUnavailable(link.problem))
        link.unreachable()

    def connect(self, link: FakeLink, *, wiped: bool) -> None:
        link.up = True
        link.sessions += 1
        if wiped:
            link.state, link.wiped = SwitchState(), True
        task = asyncio.create_task(self._connect(link))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, link: FakeLink) -> None:
        try:
            await link.connected()
        except SwitchUnavailable:
            assert not link.up

    async def drain(self) -> None:
        """Answer all requests, also requests that follow from earlier answers."""
        quiet = 0
        while quiet < 20:
            await asyncio.sleep(0)
            quiet = 0 if self.answer() else quiet + 1

    async def random_event(self) -> None:
        link = self.links[self.rng.choice(sorted(self.links))]
        kind = self.rng.random()
        if kind < 0.15:
            trunk = self.rng.choice(self.plane.trunks)
            self.fabric.suspect(self.plane.name, [frozenset({trunk.lower, trunk.upper})])
        elif kind < 0.4:
            if link.up:
                self.lose(link)
            else:
                self.connect(link, wiped=self.rng.random() < 0.3)
        else:
            for _ in range(10):
                await asyncio.sleep(0)
            self.answer()

    async def connect_all(self) -> None:
        for link in self.links.values():
            if not link.up:
                self.connect(link, wiped=False)
        await self.drain()

    def check_tree(self, *gone: str) -> None:
        """Check that floods reach all switches, or at least all leaves by a tree without some switches."""
        other = ends(self.plane)
        out = (end for end in trunks_flooded(self.plane, self.held()) if end[0] not in gone)
        tree = nx.Graph((end[0], other[end][0]) for end in out)
        assert nx.is_tree(tree)
        assert not set(tree) & set(gone)
        assert set(tree) >= ({nic.switch for nic in self.plane.nics} if gone else self.links.keys())

    def check_all_are_reached(self) -> None:
        self.check_tree()
        assert all(nic.port in flooded(self.links[nic.switch].state) for nic in self.plane.nics)


@pytest.mark.parametrize("dead", [(), ("spine1", "spine2"), ("agg1", "core1")])
def test_frames_reach_every_nic_without_loops_and_keep_off_what_is_dead(dead: tuple[str, ...]) -> None:
    topology = fat_tree(4, rails=("ina",)) if "agg1" in dead else leaf_spine(3, 1, 3, rails=("ina",))
    value = topology.planes[0]
    plan = AddressPlan(value)
    ways = routes(value, dead)
    states = {s: desired.forwarding(way, plan.switches[s], way.tree) for s, way in ways.items()}
    neighbours = {end: other[0] for end, other in ends(value).items()}
    for nic in value.nics:
        for start in {n.switch for n in value.nics}:
            way = [start]
            while way[-1] != nic.switch:
                (port,) = (
                    dict(entry.params)["port"]
                    for entry in states[way[-1]].entries
                    if dict(entry.match).get("destination") == tables.mac_number(nic.mac)
                )
                way.append(neighbours[way[-1], port])
                assert len(way) <= len(states), way
            assert not set(way) & set(dead)
    tree = nx.Graph((end[0], neighbours[end]) for end in trunks_flooded(value, states))
    assert nx.is_tree(tree)
    assert all(nx.degree(tree, switch) == 1 for switch in dead if switch.startswith("spine"))


TOPOLOGIES = {
    "leaf-spine": leaf_spine(3, 1, 3, rails=("ina",)),
    "fat-tree": fat_tree(4, rails=("ina",)),
}


@pytest.mark.parametrize(
    ("topology", "seed"),
    [*(("leaf-spine", seed) for seed in range(6)), *(("fat-tree", seed) for seed in range(2))],
)
async def test_no_order_of_updates_and_deaths_lets_a_broadcast_loop(topology: str, seed: int) -> None:
    network = Network(TOPOLOGIES[topology], seed)
    await network.connect_all()
    network.check_all_are_reached()
    for _ in range(300):
        await network.random_event()
    await network.connect_all()
    network.check_all_are_reached()
    network.fabric.health.close()


async def test_a_dead_spine_that_still_forwards_is_left_before_another_one_is_taken() -> None:
    """All hosts hear broadcasts again, and the dead spine's forwarding cannot make a loop."""
    network = Network(TOPOLOGIES["leaf-spine"], 0)
    await network.connect_all()
    out = Counter(name for name, _ in trunks_flooded(network.plane, network.held()))
    (spine,) = (name for name, trunks in out.items() if name.startswith("spine") and trunks > 1)
    network.lose(network.links[spine])
    await network.drain()
    network.check_tree(spine)
    network.fabric.health.close()


async def test_a_controller_that_is_restarted_leaves_the_flood_tree_as_it_is() -> None:
    first, second = (Network(TOPOLOGIES["fat-tree"], seed) for seed in (1, 2))
    await first.connect_all()
    for name, link in second.links.items():
        link.state = first.links[name].state
    states: list[dict[str, SwitchState]] = []
    second.put = lambda link, state: states.append({link.name: state})  # type: ignore[method-assign]
    await second.connect_all()
    assert states == []


@pytest.mark.parametrize("missing", ["spine1", "spine2", "spine3"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "fresh"])
async def test_a_controller_that_starts_without_a_spine_makes_no_loop(missing: str, *, known: bool) -> None:
    """The missing spine's state is unknown. All hosts hear broadcasts over the other spines."""
    first, second = (Network(TOPOLOGIES["leaf-spine"], seed) for seed in (1, 2))
    await first.connect_all()
    for name, link in second.links.items():
        link.state = first.links[name].state if known or name == missing else SwitchState()
        if name != missing:
            second.connect(link, wiped=False)
    await second.drain()
    await second.fabric.configured(0.01)
    await second.drain()
    second.check_tree(missing)
    await second.connect_all()
    second.check_all_are_reached()
    second.fabric.health.close()


def test_a_switch_event_in_a_fat_tree_of_k_8_costs_little() -> None:
    """In the past, shortest paths for all pairs of 80 switches and 128 NICs took 0.8 s on the event loop."""
    fabric = Fabric(fat_tree(8, rails=("ina",)), artifact(64), SUSPECT_S)
    began = time.process_time()
    fabric._unreachable(fabric.switches()[0])
    assert time.process_time() - began < 0.3
