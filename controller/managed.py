# SPDX-License-Identifier: Apache-2.0
"""One switch under management: its link, its slots, its desired state, and reconciliation."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from railweave.controller import desired, tables
from railweave.controller.addresses import AddressPlan
from railweave.controller.desired import Aggregation, Loss
from railweave.controller.forwarder import Forwarder
from railweave.controller.slots import SlotSpace
from railweave.controller.southbound import SwitchLink
from railweave.controller.state import SwitchState, Update, difference
from railweave.controller.wire import decode_entry
from railweave.p4src.artifacts import Artifact
from railweave.p4src.config import CONFIG
from railweave.p4src.tofino_program import TofinoProgram
from railweave.topologies.cluster import TlsFiles
from railweave.topologies.model import Plane, Switch

LOG = logging.getLogger(__name__)

# Margin in rounds of all slots of a group. It covers packets that arrive between the read of its counters and
# the end of its entries, and chunks that hosts gave up before the switch saw them.
ROUNDS_MARGIN = 4096

OUTCOMES = {
    name.removeprefix("OUTCOME_").lower(): value
    for name, value in CONFIG.items()
    if name.startswith("OUTCOME_")
}

COMPLETED = (
    "result",
    "mismatch",
    "forward_up",
)  # exactly one of these outcomes occurs, once, for every chunk with all children

BELIEVED_S = 5.0  # age up to which the known state counts, before an audit reads the switch again


@dataclass(frozen=True)
class Held:
    """The known state of a switch, as read and written in a session."""

    session: object
    read_at: float  # by time.monotonic()
    state: SwitchState
    written: bool = False  # since the read


UNKNOWN = Held(None, 0.0, SwitchState())


class ManagedSwitch(Forwarder):
    """A switch with the program ina. Its desired state follows from its routes, `flooding`, `groups`,
    `losses` and `slots`. `reconcile` writes this state. The switch itself keeps the controller's notes for
    restarts (`tables.members_serials`).
    """

    def __init__(
        self,
        plane: Plane,
        switch: Switch,
        addresses: AddressPlan,
        program: Artifact | TofinoProgram,
        changed: Callable[[ManagedSwitch, frozenset[int]], None],
        unreachable: Callable[[ManagedSwitch], None],
        tls: TlsFiles | None = None,
    ) -> None:
        """Prepare a switch. `changed` gets the switch after each connection's first reconciliation, with the
        groups that were lost with the switch's state. `unreachable` gets a switch that stops answering.
        """
        super().__init__(plane, switch)
        self.link = SwitchLink(switch, program, self._connected, lambda: unreachable(self), tls)
        self.slots = SlotSpace(switch.name, CONFIG["SLOTS"] // 2)
        self.groups: dict[int, Aggregation] = {}
        self.losses: dict[tuple[str, int], Loss] = {}
        self.orphans: dict[int, SwitchState] = {}  # groups found in the switch and not claimed yet
        self.last_group = 0
        self._counted_from: dict[int, dict[int, int]] = {}  # by group: counts of its cells at its start
        self._addresses = addresses
        self._changed = changed
        self._gone: set[int] = set()  # groups that the switch has lost, not reported yet
        self._known = False  # whether the switch's notes have been read since the controller started
        self._held = UNKNOWN
        self._parts: dict[int, tuple[Aggregation, SwitchState]] = {}  # each group's part of the desired state
        self._lock = asyncio.Lock()
        self._asked = self._written = 0  # numbers of the last requested and last completed reconciliation

    def take_over(self, group: Aggregation) -> None:
        """Take over a group whose entries the switch has already."""
        self.groups[group.group] = group
        self._counted_from[group.group] = {}

    def would_hold(self, group: Aggregation) -> SwitchState:
        """Return the part of the desired state for a group that has slots here."""
        slots = self.slots.taken[group.group]
        return desired.aggregation(group, self.name, slots, self._addresses.switches)

    def wanted(self) -> SwitchState:
        """Return the desired state."""
        groups = [self._part(group) for group in self.groups.values()]
        memory = desired.memory(self.slots.serials(), self.last_group)
        losses = desired.losses(self.losses.values())
        own = self._addresses.switches[self.name]
        forwarding = desired.forwarding(self._routes, own, self.flooding)
        return desired.merge([self.guard(), forwarding, *groups, *self.orphans.values(), losses, memory])

    def _part(self, group: Aggregation) -> SwitchState:
        known = self._parts.get(group.group)
        if known is None or known[0] is not group:
            known = self._parts[group.group] = group, self.would_hold(group)
        return known[1]

    async def reconcile(self) -> list[Update]:
        """Compare the switch's state with the desired state. Write and return the difference.

        SwitchUnavailable if a step fails. The state is read at the start of a session and after a failed
        write. Otherwise the known state counts until the next audit, because trees that move cannot wait for
        a read. One reconciliation serves all requests that wait for it.
        """
        self._asked += 1
        asked = self._asked
        async with self._lock:
            if self._written >= asked:
                return []
            if self._held.session != self.link.session:
                await self._read()
            return await self._reconcile(self._held.state)

    async def audit(self) -> None:
        """Read and correct the switch's state if it was written, and not read for `BELIEVED_S`.

        Other programs may write to the switch, too. SwitchUnavailable if a step fails.
        """
        if self.usable and self._held.written and time.monotonic() > self._held.read_at + BELIEVED_S:
            async with self._lock:
                await self._reconcile(await self._read())

    async def _read(self) -> SwitchState:
        session, read_at = self.link.session, time.monotonic()
        self._held = Held(session, read_at, await self.link.read())
        return self._held.state

    async def _connected(self) -> None:
        async with self._lock:
            actual = await self._read()
            self.flooding = self._flooded(actual) & self._routes.tree  # `widen` adds ports that make no loop
            if lost := self.link.wiped or not actual.entries:
                self._forget_groups()
            elif not self._known:
                self._adopt(actual)
            self.link.wiped, self._known = False, True
            updates = await self._reconcile(actual)
        LOG.info("switch %s: %s, %d updates", self.name, "empty" if lost else "kept its state", len(updates))
        if not self.guarded:
            LOG.warning(
                "switch %s: its program has no source guard: expected one; compile it again", self.name
            )
        self.ready.set()
        gone, self._gone = frozenset(self._gone), set()
        self._changed(self, gone)

    def _forget_groups(self) -> None:
        """Forget all groups: the registers are 0. This holds even if the session breaks now."""
        self._gone |= self.groups.keys()
        self.groups.clear()
        self._counted_from.clear()
        self._parts.clear()
        self.slots.reset()
        self.orphans.clear()

    async def _reconcile(self, actual: SwitchState) -> list[Update]:
        await self._retire(actual)
        wanted, flooding, asked = self.wanted(), self.flooding, self._asked
        self.may_flood = self._flooded(actual) | flooding  # until the switch has confirmed the write
        updates = difference(actual, wanted)
        held, self._held = self._held, UNKNOWN
        await self.link.write(updates)
        self._held = replace(held, state=wanted, written=bool(updates) or held.written)
        self.may_flood = flooding
        self._written = asked
        for group in self.groups.keys() - self._counted_from.keys():
            self._counted_from[group] = await self._cells(group)
        return updates

    async def outcomes(self, group: int) -> dict[str, int]:
        """Return the packets of a group's members at this switch, by outcome.

        For a group of an earlier controller, the counts may include the former users of its slots.
        """
        before, now = self._counted_from.get(group, {}), await self._cells(group)
        return {outcome: now.get(place, 0) - before.get(place, 0) for outcome, place in OUTCOMES.items()}

    async def _cells(self, group: int) -> dict[int, int]:
        """Return the group's cells of the counter of outcomes, by outcome number."""
        first = self.slots.taken[group].first_number // CONFIG["GROUP_STEP"] * CONFIG["OUTCOMES"]
        cells = await self.link.counter("group_packets", range(first, first + len(OUTCOMES)))
        return {index - first: packets for index, packets in cells.items()}

    async def _retire(self, actual: SwitchState) -> None:
        """Release the slots of ended groups, after counting the rounds that they can have used.

        Deleting an entry also deletes its counter. So there must be no `await` between the last check for
        ended groups and the call of `wanted`. A group that ended in between would lose its entries uncounted,
        and the next user of its slots would start at serial numbers that the registers have seen.
        """
        while ended := self.slots.taken.keys() - self.groups.keys() - self.orphans.keys():
            present = {found[0] for entry in actual.entries if (found := tables.read_members(entry))}
            rounds = await self._rounds(ended & present)
            for group in ended:
                self.slots.release(group, rounds.get(group, 0))
                self._counted_from.pop(group, None)
                self._parts.pop(group, None)

    async def _rounds(self, groups: Collection[int]) -> Mapping[int, int]:
        """Return, per group, an upper bound of the rounds that any of its slots can have seen.

        A contributor in round r has seen the results of the 2 S (r - 1) chunks before. It has sent a packet
        for each chunk, and this switch has completed each. Both counters may be too high: a member's packets
        may belong to no slot (SPREAD), and completed chunks to an earlier group. So the lesser one counts.
        """
        packets = dict.fromkeys(groups, 0)
        for entity, count in await self.link.packets("members") if groups else ():
            found = tables.read_members(decode_entry(entity)) if entity.match else None
            if found and found[0] in packets:
                packets[found[0]] = max(packets[found[0]], count)
        rounds = {}
        for group, sent in packets.items():
            outcomes = await self.outcomes(group)
            chunks = min(sent, sum(outcomes[name] for name in COMPLETED))
            rounds[group] = chunks // (2 * self.slots.taken[group].size) + ROUNDS_MARGIN
        return rounds

    def _adopt(self, actual: SwitchState) -> None:
        """Read the notes and groups that an earlier controller process has left in the switch."""
        for entry in actual.entries:
            if note := tables.read_members_serials(entry):
                self.slots.remember([note[0]])
                self.last_group = max(self.last_group, note[1])
        for entry in actual.entries:
            if (found := tables.read_members(entry)) and found[0] not in self.groups:
                self.slots.adopt(*found)
                self.last_group = max(self.last_group, found[0])
                self.orphans.setdefault(found[0], self._part_of(actual, found[0]))

    def _part_of(self, state: SwitchState, group: int) -> SwitchState:
        """Return the part of the switch's state that belongs to one group."""
        entries = {entry for entry in state.entries if dict(entry.match).get("group") == group}
        addresses = {dict(entry.params)["src_ip"] for entry in entries if entry.table == "replicas"}
        addresses.discard(self._addresses.switches[self.name].ip)  # source of packets to lower switches
        entries |= {
            entry
            for entry in state.entries
            if entry.table == "virtual_addresses" and dict(entry.match)["address"] in addresses
        }
        numbers = {tables.spread_id(group, is_root) for is_root in (True, False)}
        multicasts = {multicast for multicast in state.multicasts if multicast.group in numbers}
        return SwitchState(frozenset(entries), frozenset(multicasts))
