# SPDX-License-Identifier: Apache-2.0
"""One switch under management: its link, its slots, what it should hold, and reconciling the two."""

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

# Packets that arrive between reading a group's counters and deleting its entries, and chunks that hosts have
# given up when they halted their rail before the switch saw them, in rounds of all its slots.
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
)  # one of them, once, for every chunk that all children are in

BELIEVED_S = 5.0  # what a switch was found to hold and what has been written since, before it is read again


@dataclass(frozen=True)
class Held:
    """What a switch holds, as read and written in a session."""

    session: object
    read_at: float  # by time.monotonic()
    state: SwitchState
    written: bool = False  # since it was read


UNKNOWN = Held(None, 0.0, SwitchState())


class ManagedSwitch(Forwarder):
    """What the controller wants of one switch is computed from its routes, `flooding`, `groups`, `losses` and
    `slots`; `reconcile` makes it so. What it must remember across restarts is in the switch
    (`tables.members_serials`).
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
        """Prepare a switch; `changed` is called with it after each connection's first reconciliation, and
        with the groups that the switch has lost with its state; `unreachable` when it answers no more.
        """
        super().__init__(plane, switch)
        self.link = SwitchLink(switch, program, self._connected, lambda: unreachable(self), tls)
        self.slots = SlotSpace(switch.name, CONFIG["SLOTS"] // 2)
        self.groups: dict[int, Aggregation] = {}
        self.losses: dict[tuple[str, int], Loss] = {}
        self.orphans: dict[int, SwitchState] = {}  # groups found in the switch, waiting to be claimed
        self.last_group = 0
        self._counted_from: dict[int, dict[int, int]] = {}  # a new group's counts begin at its predecessors'
        self._addresses = addresses
        self._changed = changed
        self._gone: set[int] = set()  # groups that the switch has lost, until that is reported
        self._known = False  # whether the switch's notes have been read since the controller started
        self._held = UNKNOWN
        self._parts: dict[int, tuple[Aggregation, SwitchState]] = {}  # what each group needs here
        self._lock = asyncio.Lock()
        self._asked = self._written = 0  # number of the last request to reconcile, and of the last one met

    def take_over(self, group: Aggregation) -> None:
        """A group that is there already is wanted from now on."""
        self.groups[group.group] = group
        self._counted_from[group.group] = {}

    def would_hold(self, group: Aggregation) -> SwitchState:
        """What the switch needs for a group that has slots here."""
        slots = self.slots.taken[group.group]
        return desired.aggregation(group, self.name, slots, self._addresses.switches)

    def wanted(self) -> SwitchState:
        """What the switch should hold now."""
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
        """Compare what it holds with what it should, and write the difference, which is returned.

        SwitchUnavailable if that cannot be done. What the switch holds is read at the start of a session and
        after a write that failed, else believed until the next audit: trees that move cannot wait for it.
        Requests that wait for each other are met together.
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
        """Read what it holds, and set it right, if it was written and not read for `BELIEVED_S`.

        Others may write, too. SwitchUnavailable if that cannot be done.
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
            self.flooding = self._flooded(actual) & self._routes.tree  # more only when that makes no loop
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
        """Registers are 0 and no group's sums are left; a session that breaks now does not change that."""
        self._gone |= self.groups.keys()
        self.groups.clear()
        self._counted_from.clear()
        self._parts.clear()
        self.slots.reset()
        self.orphans.clear()

    async def _reconcile(self, actual: SwitchState) -> list[Update]:
        await self._retire(actual)
        wanted, flooding, asked = self.wanted(), self.flooding, self._asked
        self.may_flood = self._flooded(actual) | flooding  # until it has confirmed
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
        """What has become of the packets of a group's members here, by outcome.

        Of a group that an earlier controller has made, those of its slots' former users may be among them.
        """
        before, now = self._counted_from.get(group, {}), await self._cells(group)
        return {outcome: now.get(place, 0) - before.get(place, 0) for outcome, place in OUTCOMES.items()}

    async def _cells(self, group: int) -> dict[int, int]:
        """The group's part of the counter of outcomes, by outcome's number."""
        first = self.slots.taken[group].first_number // CONFIG["GROUP_STEP"] * CONFIG["OUTCOMES"]
        cells = await self.link.counter("group_packets", range(first, first + len(OUTCOMES)))
        return {index - first: packets for index, packets in cells.items()}

    async def _retire(self, actual: SwitchState) -> None:
        """Take back the slots of groups that have ended, with what they can have used by their counters.

        Entries go with their counters. So nothing may be awaited between the last look at who has ended and
        the look at what is wanted: a group that ended in between would lose its entries uncounted, and the
        next user of its slots would start at serial numbers that the registers have seen.
        """
        while ended := self.slots.taken.keys() - self.groups.keys() - self.orphans.keys():
            present = {found[0] for entry in actual.entries if (found := tables.read_members(entry))}
            rounds = await self._rounds(ended & present)
            for group in ended:
                self.slots.release(group, rounds.get(group, 0))
                self._counted_from.pop(group, None)
                self._parts.pop(group, None)

    async def _rounds(self, groups: Collection[int]) -> Mapping[int, int]:
        """Per group, more rounds than any of its slots can have seen.

        A contributor that reaches round r has seen results of the 2 S (r - 1) chunks before: it has sent a
        packet for each, and each was completed in this switch. Neither counter is exact, so the lesser one
        counts: a member's packets may belong to no slot (SPREAD), and completed chunks to an earlier group.
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
        """Read what an earlier controller process has left in the switch."""
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
        """The part of the switch's state that belongs to one group."""
        entries = {entry for entry in state.entries if dict(entry.match).get("group") == group}
        addresses = {dict(entry.params)["src_ip"] for entry in entries if entry.table == "replicas"}
        addresses.discard(self._addresses.switches[self.name].ip)  # speaks to switches below, for all groups
        entries |= {
            entry
            for entry in state.entries
            if entry.table == "virtual_addresses" and dict(entry.match)["address"] in addresses
        }
        numbers = {tables.spread_id(group, is_root) for is_root in (True, False)}
        multicasts = {multicast for multicast in state.multicasts if multicast.group in numbers}
        return SwitchState(frozenset(entries), frozenset(multicasts))
