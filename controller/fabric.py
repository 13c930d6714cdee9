# SPDX-License-Identifier: Apache-2.0
"""All P4 switches of a topology. `Fabric` admits and removes groups, and tracks dead switches and links."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from railweave.controller import composition, desired, programs, tables, trees
from railweave.controller.addresses import AddressPlan
from railweave.controller.adoption import MOVES_SOON, tree_of
from railweave.controller.algorithms import AlgorithmPlane, AlgorithmSwitch
from railweave.controller.desired import Aggregation, Loss
from railweave.controller.errors import ControllerError, InvalidRequest, Refused, SwitchUnavailable
from railweave.controller.forwarder import Forwarder
from railweave.controller.forwarding import Forwarding
from railweave.controller.health import Health
from railweave.controller.managed import ManagedSwitch
from railweave.controller.rings import RingSwitch
from railweave.controller.tables import MAX_GROUP, Endpoint
from railweave.controller.tree import Tree
from railweave.controller.trees import Link
from railweave.p4src.artifacts import NETREDUCE, ROCE_LANES, Artifact, artifact
from railweave.topologies.cluster import TlsFiles
from railweave.topologies.model import ALGORITHM, Nic, Plane, Topology

LOG = logging.getLogger(__name__)

AUDIT_S = 1.0  # between audits
DIRECTIONS = {"ingress": ("ingress",), "egress": ("egress",), "both": ("ingress", "egress")}


@dataclass(frozen=True)
class Host:
    """A rank's place on a plane: its NIC, and the endpoint to which its results are addressed."""

    nic: Nic
    endpoint: Endpoint


class FabricListener(Protocol):
    """Receives events of groups and planes."""

    def groups_lost(self, groups: frozenset[int], reason: str) -> None:
        """The sums in flight of these groups are lost."""

    def groups_at_risk(self, groups: frozenset[int], reason: str) -> None:
        """These groups may be lost, and should move if another place exists."""

    def plane_changed(self, plane: str) -> None:
        """Groups that had no place on this plane may have one now."""


class Fabric:
    """Assigns numbers, addresses and slots to groups. No other class does."""

    def __init__(
        self, topology: Topology, program: Artifact | None, suspect_s: float, tls: TlsFiles | None = None
    ) -> None:
        """Manage the switches of `topology` with `program`, and those of netreduce planes with netreduce.

        Without `program`, the MTU of a plane's links determines its lanes. On a plane with a Tofino, the
        program compiled for the Tofino determines them. P4Runtime uses TLS if `tls` is given. The fabric
        avoids links that ranks suspect to be dead for `suspect_s` seconds.
        """
        self.topology = topology
        self._tls = tls
        self.lanes: dict[str, int] = {}  # per packet, by plane
        self.listener: FabricListener | None = None
        self.health = Health(suspect_s, self._changed)
        self._addresses: dict[str, AddressPlan] = {}
        self._switches: dict[str, ManagedSwitch] = {}
        self._forwarding: dict[str, Forwarding] = {}  # by plane
        self._groups: dict[int, Aggregation] = {}
        self._last_group = 0  # highest group number that ranks have reported
        self._under_way: set[asyncio.Task[None]] = set()
        self._claims_closed = False
        self.ring_switches: dict[str, RingSwitch] = {}  # by name
        self.rings_changed: Callable[[str], None] = lambda _: None  # gets the plane of a switch that changed
        self.algorithms: dict[str, AlgorithmPlane] = {}  # by plane
        for plane in topology.planes:
            if plane.kind == ALGORITHM:
                self.algorithms[plane.name] = AlgorithmPlane(plane, tls, self._clear_soon)
                continue
            of_plane = programs.of_plane(plane, program)
            self.lanes[plane.name] = of_plane.lanes
            if plane.kind == "netreduce":
                self._add_ring_switches(plane)
            elif any(switch.p4runtime for switch in plane.switches):
                programs.check_links(plane, of_plane.lanes)
                self._add(plane, of_plane)

    def _add(self, plane: Plane, program: Artifact) -> None:
        self._addresses[plane.name] = addresses = AddressPlan(plane)
        for switch in plane.switches:
            if switch.p4runtime:
                told = (self._connected, self._unreachable)
                own = programs.of_switch(switch, program)
                managed = ManagedSwitch(plane, switch, addresses, own, *told, self._tls)
                self._switches[switch.name] = managed
        members = {switch.name: switch for switch in self.switches(plane.name)}
        self._forwarding[plane.name] = Forwarding(plane, members, self._reconcile_soon)

    def _add_ring_switches(self, plane: Plane) -> None:
        if not all(switch.p4runtime for switch in plane.switches):
            raise ControllerError(
                f"plane {plane.name!r} of kind netreduce has a switch without P4",
                "P4 switches only",
                "correct its switches",
            )
        program = artifact(ROCE_LANES, program=NETREDUCE)
        told = self._ring_switch_changed
        members = {s.name: RingSwitch(plane, s, program, told, self._tls) for s in plane.switches}
        self.ring_switches |= members
        self._forwarding[plane.name] = Forwarding(plane, members, self._reconcile_soon)

    def switches(self, plane: str = "") -> list[ManagedSwitch]:
        """Return the P4 switches of a plane; without a plane, all."""
        return [switch for switch in self._switches.values() if plane in ("", switch.plane.name)]

    @property
    def groups(self) -> Mapping[int, Aggregation]:
        """The admitted groups, by number."""
        return self._groups

    async def run(self) -> None:
        """Keep a session with every switch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for switch in self._all():
                tasks.create_task(switch.link.run(), name=f"link {switch.name}")
            tasks.create_task(self._audit(), name="audit")

    async def _audit(self) -> None:
        """Read back the switches' state, one switch at a time, while no write is pending."""
        while True:
            await asyncio.sleep(AUDIT_S)
            for switch in self.switches():
                await self.settled()
                with suppress(SwitchUnavailable):
                    await switch.audit()

    def _all(self, plane: str = "") -> list[ManagedSwitch | RingSwitch | AlgorithmSwitch]:
        return [*self.switches(plane), *self.rings_of(plane), *self.algorithm_switches(plane)]

    def algorithm_switches(self, plane: str = "") -> list[AlgorithmSwitch]:
        """Return the switches of a plane that run an in-network algorithm; without a plane, all."""
        planes = [made for name, made in self.algorithms.items() if plane in ("", name)]
        return [switch for made in planes for switch in made.switches]

    def rings_of(self, plane: str = "") -> list[RingSwitch]:
        """Return the switches of a plane that run netreduce; without a plane, all."""
        return [switch for switch in self.ring_switches.values() if plane in ("", switch.plane.name)]

    def plan_sums(self, plane: str, nics: Mapping[int, Nic]) -> Tree:
        """Return the tree of switches that can sum these ranks' connections. Refused names the obstacle."""
        switches = {switch.name: switch for switch in self.rings_of(plane)}
        if not switches:
            raise Refused(
                f"plane {plane!r} has no switch with the program netreduce",
                "P4 switches on a plane of kind netreduce",
                "correct the plane's `kind` or its `switches`",
            )
        for nic in nics.values():
            if not switches[nic.switch].link.up:
                raise SwitchUnavailable(switches[nic.switch].link.problem)
        usable = [name for name, switch in switches.items() if switch.link.up]
        load = {name: len(switch.rings) for name, switch in switches.items()}
        return trees.build(self.topology.plane(plane), nics, usable, load)

    async def configured(self, deadline_s: float) -> None:
        """Wait until every switch is configured, at most until the deadline. Then avoid the late switches.

        A late switch is configured when it answers. ControllerError if no switch is configured in time.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                for switch in self._all():
                    await switch.ready.wait()
                await self.settled()
        missing = [switch for switch in self._all() if not switch.ready.is_set()]
        if missing and len(missing) == len(self._all()):
            raise ControllerError(
                f"no switch is configured within {deadline_s:g} s",
                "one at least",
                f"correct the causes: {'; '.join(switch.link.problem for switch in missing)}",
            )
        for switch in missing:
            LOG.warning(
                "switch %s is not configured within %g s: jobs are placed without it until it answers: %s",
                switch.name,
                deadline_s,
                switch.link.problem,
            )
            self.health.dead.add(switch.name)
        for plane in {switch.plane.name for switch in missing} & self._forwarding.keys():
            self._reroute(plane)

    def plan(
        self, plane_name: str, hosts: Mapping[int, Host], count: int = 1, *, last_resort: bool = False
    ) -> list[Tree]:
        """Return up to `count` trees that join the hosts now. Refused names the obstacle.

        With `last_resort`, the trees may use links that are only suspected to be dead, if no others exist.
        """
        plane = self.topology.plane(plane_name)
        members = self.switches(plane_name)
        if not members:
            raise Refused(
                f"plane {plane_name!r} has no P4 switch",
                "one at least",
                "add `p4runtime` to its switches in the topology or cluster file",
            )
        usable = [switch.name for switch in members if switch.usable]
        self._require_leaves(hosts.values(), usable)
        load = {switch.name: len(switch.groups) for switch in members}
        suspects = self.health.suspects(plane_name)
        try:
            return trees.spread(plane, _nics(hosts), usable, count, load, suspects)
        except Refused:
            if not (suspects and last_resort):
                raise
            return trees.spread(plane, _nics(hosts), usable, count, load)

    async def admit(self, plane: str, hosts: Mapping[int, Host], tree: Tree, slots: int) -> Aggregation:
        """Assign a group number, an address and slots on a tree, and write its entries.

        Refused names the limit or the switch that prevents this. Then the group is removed again.
        """
        try:
            group = self._reserve(plane, hosts, tree, slots)
        except Refused:
            await self.settled()  # ended groups may still hold resources
            group = self._reserve(plane, hosts, tree, slots)
        try:
            nodes = [self._switches[node.switch] for node in tree.nodes]
            await asyncio.gather(*(switch.reconcile() for switch in nodes))
        except BaseException:
            self.remove(group.group)
            raise
        return group

    def intact(self, group: Aggregation) -> bool:
        """Return whether all switches and links of a group's tree work, and the switches hold the group."""
        switches = [self._switches[node.switch] for node in group.tree.nodes]
        links = {frozenset({node.switch, node.parent.switch}) for node in group.tree.nodes if node.parent}
        return all(
            switch.link.up and group.group in switch.groups for switch in switches
        ) and not links & self.health.suspects(group.plane)

    async def settled(self) -> None:
        """Wait until all reachable switches have exactly the desired state."""
        while self._under_way:
            await asyncio.gather(*self._under_way)

    def _require_leaves(self, hosts: Iterable[Host], usable: list[str]) -> None:
        for name in sorted({host.nic.switch for host in hosts}):
            switch = self._switches.get(name)
            if switch is None:
                raise composition.not_p4(name)
            if name not in usable:
                raise SwitchUnavailable(switch.link.problem)

    def _reserve(self, plane: str, hosts: Mapping[int, Host], tree: Tree, slots: int) -> Aggregation:
        """Reserve number, address and slots on every switch of the tree, or on none."""
        taken = {group.virtual_ip for group in self._groups.values() if group.plane == plane}
        taken |= self._orphan_addresses(self.switches(plane))
        address = self._addresses[plane].choose(taken)
        group = Aggregation(self._next_group(), plane, tree, address, _endpoints(hosts))
        done: list[ManagedSwitch] = []
        try:
            for node in tree.nodes:
                switch = self._switches[node.switch]
                others = [other.tree.node(switch.name) for other in switch.groups.values()]
                desired.require_room(switch.name, [node, *others], len(switch.ports), switch.slots.slots)
                switch.slots.allocate(group.group, slots)
                done.append(switch)
        except Refused:
            for switch in done:
                switch.slots.release(group.group)
            raise
        for switch in done:
            switch.groups[group.group] = group
            switch.last_group = group.group
        self._groups[group.group] = group
        return group

    def adopt(self, number: int, plane_name: str, virtual_ip: int, hosts: Mapping[int, Host]) -> Aggregation:
        """Take over a group that an earlier controller has written, without writing anything.

        Refused unless the switches hold exactly the entries that this group of these hosts needs.
        """
        plane = self.topology.plane(plane_name)
        if number in self._groups:
            raise Refused(f"group {number} belongs to another job by now", "its own job", MOVES_SOON)
        found = {s.name: s for s in self.switches(plane_name) if number in s.orphans}
        tree = tree_of(plane, _nics(hosts), {name: switch.orphans[number] for name, switch in found.items()})
        group = Aggregation(number, plane_name, tree, virtual_ip, _endpoints(hosts))
        for switch in found.values():
            if switch.would_hold(group) != switch.orphans[number]:
                raise Refused(
                    f"switch {switch.name} holds something else for group {number}",
                    "the entries of its tree",
                    MOVES_SOON,
                )
        for switch in found.values():
            del switch.orphans[number]
            switch.take_over(group)
        self._groups[number] = group
        return group

    def known_to_ranks(self, number: int) -> None:
        """Do not assign this number to a new group soon, because packets with it may be in flight."""
        self._last_group = max(self._last_group, number)

    def close_claims(self) -> None:
        """Remove the groups of earlier controllers that no job has claimed, from now on."""
        self._claims_closed = True
        for switch in self._switches.values():
            self._drop_orphans(switch)
        for plane in self.algorithms.values():
            plane.close_claims()

    def _drop_orphans(self, switch: ManagedSwitch) -> None:
        if switch.orphans:
            LOG.warning("switch %s: nobody has claimed groups %s", switch.name, sorted(switch.orphans))
            switch.orphans.clear()
            self._reconcile_soon(switch)

    def remove(self, number: int) -> None:
        """Take a group out of its switches. An unreachable switch is cleaned up when it reconnects."""
        group = self._groups.pop(number, None)
        if group is None:
            return
        for node in group.tree.nodes:
            switch = self._switches[node.switch]
            switch.groups.pop(number, None)
            self._reconcile_soon(switch)

    def _reconcile_soon(self, switch: Forwarder) -> None:
        self._soon(self._reconcile(switch), f"reconcile {switch.name}")

    def _clear_soon(self, plane: AlgorithmPlane) -> None:
        self._soon(plane.clear(), f"clear {plane.plane.name}")

    def _soon(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _reconcile(self, switch: Forwarder) -> None:
        try:
            await switch.reconcile()
        except SwitchUnavailable as unavailable:
            LOG.warning("put off: %s", unavailable)
        self._forwarding[switch.plane.name].widen()

    async def set_loss(self, plane: str, name: str, port: int, direction: str, probability: float) -> None:
        """Drop frames with a probability at a port (0: all) of a switch ('': all) from now on."""
        switches = [switch for switch in self._all(plane) if name in ("", switch.name)]
        if not switches:
            raise InvalidRequest(
                f"plane {plane!r}: no P4 switch{f' {name!r}' if name else ''}",
                f"one of {', '.join(sorted(switch.name for switch in self._all()))}",
                "correct the plane or the switch",
            )
        if direction not in DIRECTIONS or not 0 <= probability <= 1:
            raise InvalidRequest(
                f"loss {probability:g} {direction!r}",
                f"0 to 1, {' or '.join(DIRECTIONS)}",
                "correct the probability or direction",
            )
        for switch in switches:
            if not switch.link.has(tables.DROPS[0]):
                raise InvalidRequest(
                    f"switch {switch.name} runs a program without loss",
                    "the program ina or netreduce, or one with the stage injector.p4",
                    "name another switch",
                )
            if port and port not in switch.ports:
                raise InvalidRequest(
                    f"switch {switch.name}: port {port}",
                    f"one of {', '.join(map(str, sorted(switch.ports)))}",
                    "correct the port",
                )
            for one in [port] if port else switch.ports:
                for way in DIRECTIONS[direction]:
                    switch.losses[way, one] = Loss(one, way, probability)
        await asyncio.gather(*(switch.reconcile() for switch in switches if switch.ready.is_set()))

    def _next_group(self) -> int:
        """Return the next number in a cycle, so that packets of an ended group do not match a new one."""
        last = max((switch.last_group for switch in self._switches.values()), default=0)
        last = max(last, self._last_group)
        for step in range(1, MAX_GROUP + 1):
            number = (last + step - 1) % MAX_GROUP + 1
            if not any(number in switch.slots.taken for switch in self._switches.values()):
                return number
        raise Refused(f"all {MAX_GROUP} group numbers are taken", "a free number", "end a job")

    def _orphan_addresses(self, switches: Iterable[ManagedSwitch]) -> set[int]:
        found = (entry for s in switches for part in s.orphans.values() for entry in part.entries)
        return {dict(entry.match)["address"] for entry in found if entry.table == "virtual_addresses"}

    def _connected(self, switch: ManagedSwitch, gone: frozenset[int]) -> None:
        """Handle a new session with a switch, which has lost the groups `gone`."""
        if self._claims_closed:
            self._drop_orphans(switch)
        self.health.dead.discard(switch.name)
        self.health.clear(switch.name)
        if gone and self.listener:
            self.listener.groups_lost(gone, f"switch {switch.name} was restarted and lost its state")
        self._changed(switch.plane.name)

    def _unreachable(self, switch: ManagedSwitch) -> None:
        """Handle a switch that does not answer. Its groups move if possible: perhaps it still forwards."""
        LOG.warning("switch %s does not answer: %s", switch.name, switch.link.problem)
        self.health.dead.add(switch.name)
        self._reroute(switch.plane.name)
        if self.listener:
            self.listener.groups_at_risk(frozenset(switch.groups), f"switch {switch.name} does not answer")

    def _ring_switch_changed(self, switch: RingSwitch) -> None:
        if switch.link.up:
            self.health.dead.discard(switch.name)
        else:
            LOG.warning("switch %s does not answer: %s", switch.name, switch.link.problem)
            self.health.dead.add(switch.name)
        self._reroute(switch.plane.name)
        self.rings_changed(switch.plane.name)

    def suspect(self, plane: str, links: Collection[Link]) -> None:
        """Avoid these links for a while."""
        LOG.warning("plane %s: links %s seem to be dead", plane, sorted(map(sorted, links)))
        self.health.suspect(plane, links)
        self._reroute(plane)

    def _changed(self, plane: str) -> None:
        self._reroute(plane)
        if self.listener:
            self.listener.plane_changed(plane)

    def _reroute(self, plane: str) -> None:
        """Route ordinary frames around dead switches and suspected links."""
        self._forwarding[plane].keep_off(self.health.dead, self.health.suspects(plane))


def _nics(hosts: Mapping[int, Host]) -> dict[int, Nic]:
    return {rank: host.nic for rank, host in hosts.items()}


def _endpoints(hosts: Mapping[int, Host]) -> dict[int, Endpoint]:
    return {rank: host.endpoint for rank, host in hosts.items()}
