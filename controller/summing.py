# SPDX-License-Identifier: Apache-2.0
"""Let trees of switches sum the RDMA WRITEs of netreduce rails, also after restarts of switches."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from railweave.controller.addresses import AddressPlan
from railweave.controller.errors import Refused, SwitchUnavailable
from railweave.controller.fabric import Fabric, Host
from railweave.controller.jobs import Group, RailSums
from railweave.controller.quotas import Quotas, slots_per_tree
from railweave.controller.requests import MAX_QUEUE_PAIR
from railweave.controller.ring_trees import parts
from railweave.controller.routes import trunk_ends
from railweave.controller.tables import Connection, Endpoint
from railweave.v1 import controller_pb2 as pb

LOG = logging.getLogger(__name__)

UDP_PORTS = 0xC000  # base of the source ports, which rdma rails derive from the queue pair's number


class Summing:
    """The rings of all jobs, on the switches of a fabric that have the program netreduce."""

    def __init__(
        self,
        fabric: Fabric,
        quotas: Quotas,
        running: Callable[[], Iterable[Group]],
        soon: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """Register the rings of `running` jobs. `soon` starts a coroutine in the background."""
        self._fabric = fabric
        self._quotas = quotas
        self._running = running
        self._soon = soon
        fabric.rings_changed = self._changed

    async def place(self, group: Group, rail: pb.RailOffer, hosts: dict[int, Host]) -> None:
        """Let switches sum a rail, or record why they cannot. Then the ranks sum it themselves."""
        sums = group.sums[rail.name] = RailSums(rail.plane)
        try:
            quota = self._quotas.share(group.job)
            sums.window_packets = slots_per_tree(quota.slots, 1)
            sums.connections = _connections(group, rail.name, hosts)
        except Refused as refused:
            sums.reason = str(refused)
            return
        sums.nics = {rank: host.nic for rank, host in hosts.items()}
        await self._register(group, sums)
        if not sums.rings:
            sums.window_packets = 0

    async def _register(self, group: Group, sums: RailSums) -> None:
        """Put a ring into the switches of a tree, unless its present tree works."""
        async with sums.lock:
            if sums.rings and not self._broken(sums):
                return
            await self._take_out(sums)
            try:
                await self._put_in(sums)
                sums.reason = ""
            except (Refused, SwitchUnavailable) as error:
                sums.reason = str(error)
                LOG.info("job %s: no sums on plane %s: %s", group.job, sums.plane, error)
                await self._take_out(sums)
        if group.closed:
            await self._remove(sums)

    async def _put_in(self, sums: RailSums) -> None:
        """Add a ring to its switches. A lower switch is a member whose connection leads back to itself."""
        switches, tree = self._fabric.ring_switches, self._fabric.plan_sums(sums.plane, sums.nics)
        addresses = AddressPlan(self._fabric.topology.plane(sums.plane)).switches
        number = secrets.randbelow(MAX_QUEUE_PAIR) + 1  # random, so packets of earlier rings do not match

        def link(switch: str, port: int) -> Connection:
            end = Endpoint(addresses[switch].mac, addresses[switch].ip, UDP_PORTS)
            return Connection(end, port, end, port, number, number, 0)

        def way(switch: str, rank: int) -> int:
            return switches[switch].way(sums.nics[rank])

        found = parts(tree, sums.connections, link, way)
        ends = trunk_ends(self._fabric.topology.plane(sums.plane))
        hops = {(name, copy.of.receiver_port) for name, part in found.items() for copy in part.copies}
        sums.passed = frozenset({*found, *(ends[hop][0] for hop in hops & ends.keys())})
        for name, part in found.items():
            sums.rings[name] = (await switches[name].add(part, sums.window_packets)).group
        if self._broken(sums):
            raise SwitchUnavailable(
                "a switch was restarted while it got a ring", "switches that run on", "start the job again"
            )

    def _broken(self, sums: RailSums) -> bool:
        """Return whether a switch has lost its part of the ring, or is dead and another tree exists."""
        if any(not self._holds(switch, ring) for switch, ring in sums.rings.items()):
            return True
        if self._fabric.health.dead.isdisjoint(sums.passed):
            return False
        try:
            self._fabric.plan_sums(sums.plane, sums.nics)
        except Refused:
            return False  # perhaps only the switch's management is dead
        return True

    def _holds(self, switch: str, ring: int) -> bool:
        return ring in {known.group for known in self._fabric.ring_switches[switch].rings}

    def _changed(self, plane: str) -> None:
        """Register broken rings of a plane again. Ranks that miss sums restart their rails."""
        for group in self._running():
            for sums in group.sums.values():
                if sums.plane == plane and sums.window_packets:
                    self._soon(self._register(group, sums))

    def end(self, group: Group) -> None:
        """Remove the rings of a job that has ended."""
        for sums in group.sums.values():
            if sums.rings:
                self._soon(self._remove(sums))

    async def _remove(self, sums: RailSums) -> None:
        async with sums.lock:
            await self._take_out(sums)

    async def _take_out(self, sums: RailSums) -> None:
        rings, sums.rings = sums.rings, {}
        for switch, ring in rings.items():
            if self._holds(switch, ring):
                try:
                    await self._fabric.ring_switches[switch].remove(ring)
                except SwitchUnavailable as unavailable:
                    LOG.warning("put off: %s", unavailable)


def message(rail: str, sums: RailSums) -> pb.Sums:
    """Return the message Sums, for ranks and reports."""
    return pb.Sums(rail=rail, window_packets=sums.window_packets, reason=sums.reason)


def _connections(group: Group, rail: str, hosts: dict[int, Host]) -> tuple[Connection, ...]:
    """Return the connection of every rank to the next one, as if both were at one switch."""
    if len(hosts) == 1:
        raise Refused("a ring of 1 member", "2 at least", "run more ranks")
    offers = {
        rank: next(one for one in request.rails if one.name == rail)
        for rank, request in group.requests.items()
    }
    size = len(hosts)
    found = []
    for rank in range(size):
        sender, receiver = hosts[rank], hosts[(rank + 1) % size]
        out, _, _ = offers[rank].sum_queue_pairs
        _, into, alias = offers[(rank + 1) % size].sum_queue_pairs
        port = UDP_PORTS | out & ~UDP_PORTS & 0xFFFF
        source = Endpoint(sender.endpoint.mac, sender.endpoint.ip, port)
        found.append(
            Connection(source, sender.nic.port, receiver.endpoint, receiver.nic.port, alias, into, out)
        )
    return tuple(found)
