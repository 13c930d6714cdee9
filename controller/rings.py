# SPDX-License-Identifier: Apache-2.0
"""A switch that runs the program netreduce: which connections of RDMA rings it sums, and what it holds."""

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
    """Rings are added and removed here; those that the switch loses with its registers are gone.

    A ring of an earlier controller process is removed: its senders' packets then reach no receiver, as
    `sent_qp` is none that a receiver has, and the connections give up.
    """

    def __init__(
        self,
        plane: Plane,
        switch: Switch,
        artifact: Artifact,
        changed: Callable[[RingSwitch], None] = lambda _: None,
        tls: TlsFiles | None = None,
    ) -> None:
        """Prepare a switch; `changed` is called with it when a session has begun, and when it answers no
        more.
        """
        super().__init__(plane, switch)
        self.link = SwitchLink(switch, artifact, self._connected, lambda: changed(self), tls)
        self.losses: dict[tuple[str, int], Loss] = {}
        self.slots = SlotSpace(switch.name, CONFIG["SLOTS"] // 2)
        self._changed = changed
        self._routes = routes(plane)[switch.name]
        # Frames to a switch belong to a ring's tree, or to nobody: so hosts cannot speak for switches.
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
        """The port by which frames to a NIC leave; Refused if there is none."""
        match = fields({"destination": mac_number(nic.mac)})
        for entry in self._routes.entries:
            if entry.match == match:
                return dict(entry.params)["port"]
        raise Refused(f"switch {self.name} has no way to {nic.host}", "a path", "add `trunks` to the plane")

    async def add(self, part: Part, window_packets: int) -> Ring:
        """Sum a part of a ring whose members' windows hold `window_packets` packets at most, a power of two
        from MIN_SLOTS on; Refused names the limit that prevents it.
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
        """Sum a ring's connections no more."""
        self._forget(group)
        await self.reconcile()

    async def reconcile(self) -> list[Update]:
        """Read back, compare, write; returns what was written. SwitchUnavailable if that cannot be done."""
        async with self._lock:
            return await self._reconcile(await self.link.read())

    def wanted(self) -> SwitchState:
        """What the switch should hold now."""
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
        room = CONFIG["MAX_CONNECTIONS"] - self.slots.slots // MIN_SLOTS  # which the notes may need
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
        """Group numbers in turn, so that copies of an ended ring's sums do not belong to a new one."""
        return ((self._last_group + step) % MAX_GROUP + 1 for step in range(MAX_GROUP))

    def _forget(self, group: int) -> None:
        self._rings.pop(group, None)
        self.slots.release(group, rounds=1)

    async def _connected(self) -> None:
        async with self._lock:
            actual = await self.link.read()
            self.flooding = self._flooded(actual) & self._routes.tree  # more only when that makes no loop
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
        self.may_flood = self._flooded(actual) | flooding  # until it has confirmed
        updates = difference(actual, wanted)
        await self.link.write(updates)
        self.may_flood = flooding
        return updates


def _first_fit(size: int, taken: list[tuple[int, int]]) -> int:
    """The first place with so many free cells among HEADER_CELLS; Refused if there is none."""
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
