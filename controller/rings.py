# SPDX-License-Identifier: Apache-2.0
"""A switch that runs the program netreduce: which rings of RDMA connections it sums, and what it holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from railweave.controller import desired, tables
from railweave.controller.desired import Loss, Ring
from railweave.controller.errors import Refused
from railweave.controller.routes import Routes
from railweave.controller.slots import MIN_SLOTS, SlotSpace
from railweave.controller.southbound import SwitchLink
from railweave.controller.state import SwitchState, Update, difference
from railweave.controller.tables import MAX_GROUP, Connection
from railweave.p4src.artifacts import Artifact
from railweave.p4src.config import CONFIG
from railweave.topologies.cluster import TlsFiles
from railweave.topologies.model import Switch

LOG = logging.getLogger(__name__)


class RingSwitch:
    """Rings are added and removed here; those that the switch loses with its registers are reported and gone.

    A ring of an earlier controller process is removed: its senders' packets then reach no receiver, as
    `sent_qp` is none that a receiver has, and the connections give up.
    """

    def __init__(
        self,
        switch: Switch,
        artifact: Artifact,
        routes: Routes,
        connected: Callable[[frozenset[int]], None] = lambda _: None,
        tls: TlsFiles | None = None,
    ) -> None:
        """Prepare a switch; `connected` is called when a session with it has begun, with the groups of the
        rings that it has lost.
        """
        self.name = switch.name
        self.link = SwitchLink(switch, artifact, self._connected, tls=tls)
        self.ready = asyncio.Event()  # reconciled since the controller started
        self.losses: dict[tuple[str, int], Loss] = {}
        self.slots = SlotSpace(switch.name, CONFIG["SLOTS"] // 2)
        self.connected = connected
        self._routes = routes
        self._rings: dict[int, Ring] = {}
        self._last_group = 0
        self._lock = asyncio.Lock()

    @property
    def rings(self) -> tuple[Ring, ...]:
        """The rings that the switch sums."""
        return tuple(self._rings.values())

    @property
    def ports(self) -> frozenset[int]:
        """The ports that lead somewhere."""
        return self._routes.nics

    async def add(self, connections: Sequence[Connection], window_packets: int) -> Ring:
        """Sum the connections of a ring whose members' windows hold `window_packets` packets at most, a power
        of two from MIN_SLOTS on; Refused names the limit that prevents it.
        """
        if window_packets < MIN_SLOTS:
            raise Refused(f"a window of {window_packets} packets; expected {MIN_SLOTS} at least")
        ring = self._reserve(tuple(connections), window_packets)
        try:
            await self.reconcile()
        except BaseException:
            self._forget(ring.group)
            raise
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
        flood = tables.flood(self._routes.nics)
        notes = frozenset(tables.connections_serials(known) for known in self.slots.serials())
        bridge = SwitchState(self._routes.entries | notes, frozenset({flood}))
        rings = (desired.ring(ring) for ring in self._rings.values())
        return desired.merge([bridge, *rings, desired.losses(self.losses.values())])

    def _reserve(self, connections: tuple[Connection, ...], window_packets: int) -> Ring:
        if not 2 <= len(connections) <= CONFIG["MAX_CHILDREN"]:
            raise Refused(f"a ring of {len(connections)}; expected 2 to {CONFIG['MAX_CHILDREN']} members")
        used = sum(len(ring.connections) for ring in self.rings) + len(connections)
        room = CONFIG["MAX_CONNECTIONS"] - self.slots.slots // MIN_SLOTS  # which the notes may need
        if used > min(room, CONFIG["MAX_REPLICAS"] - len(self._routes.nics)):
            raise Refused(f"switch {self.name} would need {used} entries in connections; it has no room")
        taken = {connection.key for ring in self.rings for connection in ring.connections}
        if len({connection.key for connection in connections} - taken) < len(connections):
            raise Refused(f"switch {self.name} sums one of these connections already")
        group = next(n for n in self._numbers() if n not in self.slots.taken)
        slots = self.slots.allocate(group, window_packets)
        ring = Ring(group, connections, slots, 0)
        try:
            base = _first_fit(ring.header_cells, [(r.header_base, r.header_cells) for r in self.rings])
        except Refused:
            self.slots.release(group)
            raise
        self._rings[group] = Ring(group, connections, slots, base)
        self._last_group = group
        return self._rings[group]

    def _numbers(self) -> Iterable[int]:
        """Group numbers in turn, so that copies of an ended ring's sums do not belong to a new one."""
        return ((self._last_group + step) % MAX_GROUP + 1 for step in range(MAX_GROUP))

    def _forget(self, group: int) -> None:
        del self._rings[group]
        self.slots.release(group, rounds=1)

    async def _connected(self) -> None:
        async with self._lock:
            actual = await self.link.read()
            lost = frozenset[int]()
            if self.link.wiped or not actual.entries:
                lost = frozenset(self._rings)
                self._rings.clear()
                self.slots.reset()
            self.link.wiped = False
            others = actual.entries - desired.merge(map(desired.ring, self.rings)).entries
            known = (tables.read_connections(entry) for entry in others)
            self.slots.remember(serials for serials in known if serials)
            updates = await self._reconcile(actual)
        LOG.info("switch %s: %d rings lost, %d updates", self.name, len(lost), len(updates))
        self.ready.set()
        self.connected(lost)

    async def _reconcile(self, actual: SwitchState) -> list[Update]:
        updates = difference(actual, self.wanted())
        await self.link.write(updates)
        return updates


def _first_fit(size: int, taken: list[tuple[int, int]]) -> int:
    """The first place with so many free cells among HEADER_CELLS; Refused if there is none."""
    base = 0
    for start, length in sorted(taken):
        if base + size <= start:
            break
        base = start + length
    if base + size > CONFIG["HEADER_CELLS"]:
        raise Refused(f"{size} header cells in a row are not free; HEADER_CELLS is {CONFIG['HEADER_CELLS']}")
    return base
