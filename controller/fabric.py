# SPDX-License-Identifier: Apache-2.0
"""All P4 switches of a topology: admits groups to them, removes groups, and knows which planes work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from railweave.controller import trees
from railweave.controller.addresses import AddressPlan
from railweave.controller.desired import Aggregation, Loss
from railweave.controller.errors import ControllerError, InvalidRequest, Refused, SwitchUnavailable
from railweave.controller.managed import ManagedSwitch
from railweave.controller.tables import MAX_GROUP, Endpoint
from railweave.p4src.artifacts import Artifact
from railweave.p4src.config import CONFIG
from railweave.topologies.model import Nic, Plane, Topology

LOG = logging.getLogger(__name__)

DIRECTIONS = {"ingress": ("ingress",), "egress": ("egress",), "both": ("ingress", "egress")}
OWN_ADDRESSES = 1  # entries of virtual_addresses that are the switch's own


@dataclass(frozen=True)
class Host:
    """A rank's place on a plane: the NIC that it has there and what its results are addressed to."""

    nic: Nic
    endpoint: Endpoint


class PlaneListener(Protocol):
    """Hears of what happens to planes that groups run on."""

    def plane_down(self, plane: str, groups: frozenset[int], reason: str) -> None:
        """These groups' sums in flight are lost."""

    def plane_up(self, plane: str, groups: frozenset[int]) -> None:
        """These groups' entries are in place again."""


class Fabric:
    """The one place where groups get numbers, addresses and slots."""

    def __init__(self, topology: Topology, artifact: Artifact, slots: int) -> None:
        """Manage the switches of `topology` with the program `artifact`; every group gets `slots` slots."""
        self.topology = topology
        self.lanes = artifact.lanes
        self.slots = slots
        self.listener: PlaneListener | None = None
        self._addresses: dict[str, AddressPlan] = {}
        self._switches: dict[str, ManagedSwitch] = {}
        self._groups: dict[int, Aggregation] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._claims_closed = False
        for plane in topology.planes:
            if any(switch.p4runtime for switch in plane.switches):
                self._add(plane, artifact)

    def _add(self, plane: Plane, artifact: Artifact) -> None:
        self._addresses[plane.name] = addresses = AddressPlan(plane)
        for switch in plane.switches:
            if switch.p4runtime:
                managed = ManagedSwitch(plane, switch, addresses, artifact, self._connected)
                self._switches[switch.name] = managed

    def switches(self, plane: str = "") -> list[ManagedSwitch]:
        """The P4 switches of a plane, or all."""
        return [switch for switch in self._switches.values() if plane in ("", switch.plane.name)]

    @property
    def groups(self) -> Mapping[int, Aggregation]:
        """The groups that are admitted, by number."""
        return self._groups

    async def run(self) -> None:
        """Keep a session with every switch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for switch in self._switches.values():
                tasks.create_task(switch.link.run(), name=f"link {switch.name}")

    async def configured(self, deadline_s: float) -> None:
        """Wait until every switch holds what it should; ControllerError names those that do not in time."""
        try:
            async with asyncio.timeout(deadline_s):
                for switch in self._switches.values():
                    await switch.ready.wait()
        except TimeoutError:
            missing = [
                f"{s.name} at {s.link.address} ({s.link.problem})"
                for s in self._switches.values()
                if not s.ready.is_set()
            ]
            raise ControllerError(f"not configured within {deadline_s:g} s: {'; '.join(missing)}") from None

    async def admit(self, plane_name: str, hosts: Mapping[int, Host]) -> Aggregation:
        """Give a group tree, number, address and slots, and write its entries.

        Refused names the limit, or the switch, that is in the way; then nothing is left behind.
        """
        await self.settled()
        group = self._choose(plane_name, hosts)
        self._reserve(group)
        try:
            for node in group.tree.nodes:
                await self._switches[node.switch].reconcile()
        except BaseException:
            self.end(group.group)
            raise
        return group

    async def settled(self) -> None:
        """Wait until what ended groups have held is free again, where the switches can be reached."""
        await asyncio.gather(*self._ending)

    def _choose(self, plane_name: str, hosts: Mapping[int, Host]) -> Aggregation:
        plane = self.topology.plane(plane_name)
        members = self.switches(plane_name)
        if not members:
            raise Refused(f"plane {plane_name!r} has no P4 switch")
        usable = [switch.name for switch in members if switch.link.up and switch.ready.is_set()]
        self._require_leaves(hosts.values(), usable)
        load = {switch.name: len(switch.groups) for switch in members}
        tree = trees.build(plane, _nics(hosts), usable, load)
        taken = {group.virtual_ip for group in self._groups.values() if group.plane == plane_name}
        taken |= self._orphan_addresses(members)
        address = self._addresses[plane_name].choose(taken)
        return Aggregation(self._next_group(), plane_name, tree, address, _endpoints(hosts))

    def _require_leaves(self, hosts: Iterable[Host], usable: list[str]) -> None:
        for name in sorted({host.nic.switch for host in hosts}):
            switch = self._switches.get(name)
            if switch is None:
                raise Refused(f"{name} is no P4 switch")
            if name not in usable:
                raise SwitchUnavailable(switch.link.problem)

    def _reserve(self, group: Aggregation) -> None:
        """Take slots on every switch of the tree, or on none."""
        done: list[ManagedSwitch] = []
        try:
            for node in group.tree.nodes:
                switch = self._switches[node.switch]
                _require_room(switch, node, self.slots)
                switch.slots.allocate(group.group, self.slots)
                done.append(switch)
        except Refused:
            for switch in done:
                switch.slots.release(group.group)
            raise
        for switch in done:
            switch.groups[group.group] = group
            switch.last_group = group.group
        self._groups[group.group] = group

    def adopt(self, number: int, plane_name: str, virtual_ip: int, hosts: Mapping[int, Host]) -> Aggregation:
        """Take over a group that an earlier controller has written; nothing is written now.

        Refused if the switches do not hold exactly what this group of these hosts would need.
        """
        found = {s.name: s for s in self.switches(plane_name) if number in s.orphans}
        tree = trees.build(self.topology.plane(plane_name), _nics(hosts), found)
        group = Aggregation(number, plane_name, tree, virtual_ip, _endpoints(hosts))
        if {node.switch for node in tree.nodes} != found.keys():
            raise Refused(f"group {number} has another tree in the switches of plane {plane_name!r}")
        for switch in found.values():
            if switch.would_hold(group) != switch.orphans[number]:
                raise Refused(f"switch {switch.name} holds something else for group {number}")
        for switch in found.values():
            del switch.orphans[number]
            switch.groups[number] = group
        self._groups[number] = group
        return group

    def close_claims(self) -> None:
        """From now on, what earlier controllers have left and nobody has claimed is removed."""
        self._claims_closed = True
        for switch in self._switches.values():
            self._drop_orphans(switch)

    def _drop_orphans(self, switch: ManagedSwitch) -> None:
        if switch.orphans:
            LOG.warning("switch %s: nobody has claimed groups %s", switch.name, sorted(switch.orphans))
            switch.orphans.clear()
            self._clean_soon(switch)

    def end(self, number: int) -> None:
        """End a group. A switch that cannot be reached now is cleaned when it is back."""
        group = self._groups.pop(number, None)
        if group is None:
            return
        for node in group.tree.nodes:
            switch = self._switches[node.switch]
            switch.groups.pop(number, None)
            self._clean_soon(switch)

    def _clean_soon(self, switch: ManagedSwitch) -> None:
        task = asyncio.create_task(self._clean(switch), name=f"clean {switch.name}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _clean(self, switch: ManagedSwitch) -> None:
        try:
            await switch.reconcile()
        except SwitchUnavailable as unavailable:
            LOG.warning("cleaning is put off: %s", unavailable)

    async def set_loss(self, plane: str, name: str, port: int, direction: str, probability: float) -> None:
        """Drop frames with a probability at a port (0: all) of a switch ('': all) from now on."""
        switches = [switch for switch in self.switches(plane) if name in ("", switch.name)]
        if not switches:
            raise InvalidRequest(
                f"plane {plane!r} has no P4 switch{f' {name!r}' if name else ''}; "
                f"P4 switches are {sorted(self._switches)}"
            )
        if direction not in DIRECTIONS or not 0 <= probability <= 1:
            raise InvalidRequest(
                f"loss {probability:g} {direction!r}: expected 0 to 1, {' or '.join(DIRECTIONS)}"
            )
        for switch in switches:
            if port and port not in switch.ports:
                raise InvalidRequest(
                    f"switch {switch.name} has no port {port}; it has {sorted(switch.ports)}"
                )
            for one in [port] if port else switch.ports:
                for way in DIRECTIONS[direction]:
                    switch.losses[way, one] = Loss(one, way, probability)
        await asyncio.gather(*(switch.reconcile() for switch in switches if switch.ready.is_set()))

    def _next_group(self) -> int:
        """Numbers go round, so that packets of a group that has ended name no new one."""
        last = max((switch.last_group for switch in self._switches.values()), default=0)
        for step in range(1, MAX_GROUP + 1):
            number = (last + step - 1) % MAX_GROUP + 1
            if not any(number in switch.slots.taken for switch in self._switches.values()):
                return number
        raise Refused(f"all {MAX_GROUP} group numbers are taken")

    def _orphan_addresses(self, switches: Iterable[ManagedSwitch]) -> set[int]:
        found = (entry for s in switches for part in s.orphans.values() for entry in part.entries)
        return {dict(entry.match)["address"] for entry in found if entry.table == "virtual_addresses"}

    def _connected(self, switch: ManagedSwitch, lost: bool) -> None:
        if self._claims_closed:
            self._drop_orphans(switch)
        if lost and switch.groups and self.listener:
            groups = frozenset(switch.groups)
            reason = f"switch {switch.name} was restarted and lost its state"
            self.listener.plane_down(switch.plane.name, groups, reason)
            self.listener.plane_up(switch.plane.name, groups)


def _nics(hosts: Mapping[int, Host]) -> dict[int, Nic]:
    return {rank: host.nic for rank, host in hosts.items()}


def _endpoints(hosts: Mapping[int, Host]) -> dict[int, Endpoint]:
    return {rank: host.endpoint for rank, host in hosts.items()}


def _require_room(switch: ManagedSwitch, node: trees.Node, slots: int) -> None:
    """Refused if a table of the switch would overflow; its notes to the controller need room as well."""
    groups = len(switch.groups) + 1 + OWN_ADDRESSES
    if groups > CONFIG["MAX_GROUPS"]:
        raise Refused(
            f"switch {switch.name} serves {len(switch.groups)} groups; MAX_GROUPS is {CONFIG['MAX_GROUPS']}"
        )
    nodes = [node, *(group.tree.node(switch.name) for group in switch.groups.values())]
    members = sum(len(n.contributors) + (n.parent is not None) for n in nodes)
    room = CONFIG["MAX_MEMBERS"] - switch.slots.slots // slots
    if members > room:
        raise Refused(f"switch {switch.name} would need {members} entries in members; it has room for {room}")
