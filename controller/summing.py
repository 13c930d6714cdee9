# SPDX-License-Identifier: Apache-2.0
"""Has switches add up what the ranks of netreduce rails WRITE to each other, and again after a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from railweave.controller.errors import Refused, SwitchUnavailable
from railweave.controller.fabric import Fabric, Host
from railweave.controller.jobs import Group, RailSums
from railweave.controller.quotas import Quotas, slots_per_tree
from railweave.controller.tables import Connection, Endpoint
from railweave.v1 import controller_pb2 as pb

LOG = logging.getLogger(__name__)

UDP_PORTS = 0xC000  # as rdma rails choose source ports: by the queue pair's number


class Summing:
    """The rings of all jobs, on the switches of a fabric that have the program netreduce."""

    def __init__(
        self,
        fabric: Fabric,
        quotas: Quotas,
        running: Callable[[], Iterable[Group]],
        soon: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """Register the rings of the jobs that are `running`; `soon` runs what nobody waits for."""
        self._fabric = fabric
        self._quotas = quotas
        self._running = running
        self._soon = soon
        for plane, switch in fabric.ring_switches.items():
            switch.connected = partial(self._connected, plane)

    async def place(self, group: Group, rail: pb.RailOffer, hosts: dict[int, Host]) -> None:
        """Have a rail's switch add, or note why it does not: then the ranks do."""
        sums = group.sums[rail.name] = RailSums(rail.plane)
        try:
            quota = self._quotas.share(group.job)
            sums.window_packets = slots_per_tree(quota.slots, 1)
            sums.connections = _connections(group, rail.name, hosts)
        except Refused as refused:
            sums.reason = str(refused)
            return
        await self._register(group, sums)
        if not sums.ring:
            sums.window_packets = 0

    async def _register(self, group: Group, sums: RailSums) -> None:
        switch = self._fabric.ring_switches.get(sums.plane)
        try:
            if switch is None:
                raise Refused(f"plane {sums.plane!r} has no switch with the program netreduce")
            sums.ring = (await switch.add(sums.connections, sums.window_packets)).group
            sums.reason = ""
        except (Refused, SwitchUnavailable) as error:
            sums.reason = str(error)
            LOG.info("job %s: no sums on plane %s: %s", group.job, sums.plane, error)
            return
        if group.closed:
            await self._remove(sums)

    def _connected(self, plane: str, lost: frozenset[int]) -> None:
        """A switch that was restarted gets its rings again; ranks that miss sums start their rails anew."""
        for group in self._running():
            for sums in group.sums.values():
                if sums.plane != plane or not sums.window_packets:
                    continue
                if sums.ring in lost:
                    sums.ring = 0
                if not sums.ring:
                    self._soon(self._register(group, sums))

    def end(self, group: Group) -> None:
        """A job has ended."""
        for sums in group.sums.values():
            if sums.ring:
                self._soon(self._remove(sums))

    async def _remove(self, sums: RailSums) -> None:
        ring, sums.ring = sums.ring, 0
        switch = self._fabric.ring_switches[sums.plane]
        if ring not in {known.group for known in switch.rings}:
            return
        try:
            await switch.remove(ring)
        except SwitchUnavailable as unavailable:
            LOG.warning("put off: %s", unavailable)


def message(rail: str, sums: RailSums) -> pb.Sums:
    """What ranks and people are told."""
    return pb.Sums(rail=rail, window_packets=sums.window_packets, reason=sums.reason)


def _connections(group: Group, rail: str, hosts: dict[int, Host]) -> tuple[Connection, ...]:
    """Of every rank to the next one."""
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
