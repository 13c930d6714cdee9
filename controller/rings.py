# SPDX-License-Identifier: Apache-2.0
"""A switch that runs the program netreduce: the RDMA rings that it sums, and its desired state."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from railweave.controller import desired, tables
from railweave.controller.addresses import AddressPlan
from railweave.controller.desired import Loss, Ring
from railweave.controller.errors import Refused, SwitchUnavailable
from railweave.controller.forwarder import Forwarder
from railweave.controller.ring_trees import Part
from railweave.controller.routes import routes
from railweave.controller.slots import FEWER, MIN_SLOTS, SlotSpace
from railweave.controller.southbound import SwitchLink
from railweave.controller.state import SwitchState, Update, difference, fields
from railweave.controller.tables import MAX_GROUP, mac_number
from railweave.p4src.artifacts import Artifact
from railweave.p4src.config import CONFIG
from railweave.topologies.cluster import TlsFiles
from railweave.topologies.model import Nic, Plane, Switch

LOG = logging.getLogger(__name__)


class RingSwitch(Forwarder):
    """A switch that sums rings. A switch that loses its registers also loses its rings.

    A ring of an earlier controller process is removed. Its senders' packets then reach no receiver, because
    no receiver has the queue pair `sent_qp`, and the connections give up.
    """

    def __init__(
        self,
        plane: Plane,
        switch: Switch,
        artifact: Artifact,
        changed: Callable[[RingSwitch], None] = lambda _: None,
        tls: TlsFiles | None = None,
    ) -> None:
        """Prepare a switch. `changed` gets the switch when a session has begun, and when the switch stops
        answering.
        """
        super().__init__(plane, switch)
        self.link = SwitchLink(switch, artifact, self._connected, lambda: changed(self), tls)
        self.losses: dict[tuple[str, int], Loss] = {}
        self.slots = SlotSpace(switch.name, CONFIG["SLOTS"] // 2)
        self._changed = changed
        self._routes = routes(plane)[switch.name]
        # Only a ring's tree takes frames to a switch's address. Other such frames may be forged: drop them.
        addressed = AddressPlan(plane).switches.values() if self._trunks else ()
        self._nowhere = frozenset(tables.mac_table(each.mac, tables.NOWHERE) for each in addressed)
        self._rings: dict[int, Ring] = {}
        self._last_group = 0
        self._lock = asyncio.Lock()

    @property
    def rings(self) -> tuple[Ring, ...]:
        """The rings that the switch sums."""
        return tuple(self._rings.values())

    def way(self, nic: Nic) -> int:
        """Return the port by which frames to a NIC leave. Refused if no path leads to the NIC."""
        match = fields({"destination": mac_number(nic.mac)})
        for entry in self._routes.entries:
            if entry.match == match:
                return int(dict(entry.params)["port"])
        raise Refused(f"switch {self.name} has no way to {nic.host}", "a path", "add `trunks` to the plane")

    async def add(self, part: Part, window_packets: int) -> Ring:
        """Sum a part of a ring whose members' windows hold at most `window_packets` packets, a power of two
        of at least MIN_SLOTS. Refused names the limit that prevents this.
        """
        if window_packets < MIN_SLOTS:
            raise Refused(
                f"a window of {window_packets} packets",
                f"{MIN_SLOTS} at least",
                "raise --slots or --quota of the controller",
            )
        ring = self._reserve(part, window_packets)
        try:
            await self.reconcile()
        except BaseException:
            self._forget(ring.group)
            raise
        if ring.group not in self._rings:
            raise SwitchUnavailable(
                f"switch {self.name} was restarted while it got a ring",
                "a switch that runs on",
                "start the job again",
            )
        return ring

    async def remove(self, group: int) -> None:
        """Stop summing a ring."""
        self._forget(group)
        await self.reconcile()

    async def reconcile(self) -> list[Update]:
        """Read back, compare and write. Return the written updates. SwitchUnavailable if a step fails."""
        async with self._lock:
            return await self._reconcile(await self.link.read())

    def wanted(self) -> SwitchState:
        """Return the desired state."""
        flood = tables.flood(self._routes.nics | self.flooding)
        notes = frozenset(tables.connections_serials(known) for known in self.slots.serials())
        bridge = SwitchState(self._routes.entries | self._nowhere | notes, frozenset({flood}))
        rings = (desired.ring(ring) for ring in self._rings.values())
        return desired.merge([self.guard(), bridge, *rings, desired.losses(self.losses.values())])

    def _reserve(self, part: Part, window_packets: int) -> Ring:
        members = len(part.answers)
        if not 1 <= members <= CONFIG["MAX_CHILDREN"]:
            raise Refused(
                f"{members} connections",
                f"1 to {CONFIG['MAX_CHILDREN']}",
                "run fewer ranks, or spread them over more switches",
            )
        self._require_room(part)
        group = next(n for n in self._numbers() if n not in self.slots.taken)
        ring = Ring(group, part, self.slots.allocate(group, window_packets), 0)
        try:
            base = _first_fit(ring.header_cells, [(r.header_base, r.header_cells) for r in self.rings])
        except Refused:
            self.slots.release(group)
            raise
        self._rings[group] = replace(ring, header_base=base)
        self._last_group = group
        return self._rings[group]

    def _require_room(self, part: Part) -> None:
        used = sum(len(each.copies) for each in (part, *(ring.part for ring in self.rings)))
        room = CONFIG["MAX_CONNECTIONS"] - self.slots.slots // MIN_SLOTS  # notes may need the other entries
        room = min(room, CONFIG["MAX_REPLICAS"] - len(self.ports))
        if used > room:
            raise Refused(
                f"switch {self.name} would need {used} entries in connections",
                f"at most {room}",
                "end a job, or run fewer ranks",
            )
        taken = {way.key for ring in self.rings for way in ring.part.ways}
        if len({way.key for way in part.ways} - taken) < len(part.ways):
            raise Refused(
                f"switch {self.name} sums one of these connections already",
                "connections of no other job",
                "end the other job on these hosts",
            )

    def _numbers(self) -> Iterable[int]:
        """Return group numbers in a cycle, so that copies of an ended ring's sums do not match a new ring."""
        return ((self._last_group + step) % MAX_GROUP + 1 for step in range(MAX_GROUP))

    def _forget(self, group: int) -> None:
        self._rings.pop(group, None)
        self.slots.release(group, rounds=1)

    async def _connected(self) -> None:
        async with self._lock:
            actual = await self.link.read()
            self.flooding = self._flooded(actual) & self._routes.tree  # `widen` adds ports that make no loop
            lost = 0
            if self.link.wiped or not actual.entries:
                lost = len(self._rings)
                self._rings.clear()
                self.slots.reset()
            self.link.wiped = False
            others = actual.entries - desired.merge(map(desired.ring, self.rings)).entries
            known = (tables.read_connections(entry) for entry in others)
            self.slots.remember(serials for serials in known if serials)
            updates = await self._reconcile(actual)
        LOG.info("switch %s: %d rings lost, %d updates", self.name, lost, len(updates))
        self.ready.set()
        self._changed(self)

    async def _reconcile(self, actual: SwitchState) -> list[Update]:
        wanted, flooding = self.wanted(), self.flooding
        self.may_flood = self._flooded(actual) | flooding  # until the switch has confirmed the write
        updates = difference(actual, wanted)
        await self.link.write(updates)
        self.may_flood = flooding
        return updates


def _first_fit(size: int, taken: list[tuple[int, int]]) -> int:
    """Return the first place with `size` free cells in a row among HEADER_CELLS. Refused if all are taken."""
    base = 0
    for start, length in sorted(taken):
        if base + size <= start:
            break
        base = start + length
    if base + size > CONFIG["HEADER_CELLS"]:
        raise Refused(
            f"{size} header cells in a row are not free",
            f"a free range of the {CONFIG['HEADER_CELLS']}",
            f"end a job, or {FEWER}",
        )
    return base
