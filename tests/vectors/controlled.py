# SPDX-License-Identifier: Apache-2.0
"""A switch that does steps by P4Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatchmethod
from typing import Any

import finsy as fy
from dataplane.control import Control
from finsy.p4entity import decode_entity
from finsy.proto import p4r
from vectors import steps
from vectors.steps import Frames, Packet, Step


class Controlled:
    """A switch with a program; subclasses carry its packets and digests."""

    def __init__(self, schema: fy.P4Schema, control: Control) -> None:
        self.schema = schema
        self.control = control

    def packets(self, batch: Sequence[Packet]) -> list[Frames]:
        """Send packets. Return the output of each, sorted by port."""
        raise NotImplementedError

    def digests(self, name: str) -> list[list[str]]:
        """Return the program's messages of a digest, as numbers in hex."""
        raise NotImplementedError

    @singledispatchmethod
    def do(self, step: Step) -> Any:
        """Do one step and return its result."""
        raise TypeError(f"no switch can do {step}")

    @do.register
    def _(self, step: Packet) -> Any:
        return self.packets([step])[0]

    @do.register
    def _(self, step: steps.Insert) -> None:
        action: Any = fy.P4TableAction(step.action, **step.params) if step.action else None
        if step.member is not None:
            action = fy.P4IndirectAction(member_id=step.member)
        elif step.group is not None:
            action = fy.P4IndirectAction(group_id=step.group)
        elif step.one_shot:
            action = fy.P4IndirectAction(
                [(weight, fy.P4TableAction(name, **params)) for name, params, weight in step.one_shot]
            )
        match = fy.P4TableMatch(step.match)
        self._write(fy.P4TableEntry(step.table, match=match, action=action, priority=step.priority))

    @do.register
    def _(self, step: steps.Modify) -> None:
        action = fy.P4TableAction(step.action, **step.params)
        match = fy.P4TableMatch(step.match)
        entry = fy.P4TableEntry(step.table, match=match, action=action, priority=step.priority)
        self._write(entry, p4r.Update.MODIFY)

    @do.register
    def _(self, step: steps.Delete) -> None:
        entry = fy.P4TableEntry(step.table, match=fy.P4TableMatch(step.match), priority=step.priority)
        self._write(entry, p4r.Update.DELETE)

    @do.register
    def _(self, step: steps.Default) -> None:
        action = fy.P4TableAction(step.action, **step.params)
        self._write(fy.P4TableEntry(step.table, action=action, is_default_action=True), p4r.Update.MODIFY)

    @do.register
    def _(self, step: steps.Member) -> None:
        action = fy.P4TableAction(step.action, **step.params)
        self._write(fy.P4ActionProfileMember(step.profile, member_id=step.member, action=action))

    @do.register
    def _(self, step: steps.Group) -> None:
        members = [fy.P4Member(member, weight=weight) for member, weight in step.members]
        size = step.max_size or len(members)
        self._write(
            fy.P4ActionProfileGroup(step.profile, group_id=step.group, max_size=size, members=members)
        )

    @do.register
    def _(self, step: steps.Multicast) -> None:
        self._write(fy.P4MulticastGroupEntry(step.group, replicas=[tuple(r) for r in step.replicas]))

    @do.register
    def _(self, step: steps.CloneSession) -> None:
        replicas = [tuple(r) for r in step.replicas]
        self._write(fy.P4CloneSessionEntry(step.session, replicas=replicas, packet_length_bytes=step.bytes))

    @do.register
    def _(self, step: steps.Meter) -> None:
        config = fy.P4MeterConfig(cir=step.cir, cburst=step.cburst, pir=step.pir, pburst=step.pburst)
        self._write(fy.P4MeterEntry(step.name, index=step.index, config=config), p4r.Update.MODIFY)

    @do.register
    def _(self, step: steps.DirectMeter) -> None:
        config = fy.P4MeterConfig(cir=step.cir, cburst=step.cburst, pir=step.pir, pburst=step.pburst)
        entry = fy.P4TableEntry(step.table, match=fy.P4TableMatch(step.match), priority=step.priority)
        self._write(fy.P4DirectMeterEntry(table_entry=entry, config=config), p4r.Update.MODIFY)

    @do.register
    def _(self, step: steps.Counter) -> list[int]:
        [found] = self._read(fy.P4CounterEntry(step.name, index=step.index))
        return [found.packet_count, found.byte_count]

    @do.register
    def _(self, step: steps.DirectCounter) -> list[int]:
        entry = fy.P4TableEntry(step.table, match=fy.P4TableMatch(step.match), priority=step.priority)
        # The read of an entry that matches anything returns all entries, without fields that match anything.
        [found] = [
            counted
            for counted in self._read(fy.P4DirectCounterEntry(table_entry=entry))
            if counted.table_entry.priority == step.priority
            and (step.priority or len(counted.table_entry.match or ()) == len(step.match))
        ]
        return [found.packet_count, found.byte_count]

    @do.register
    def _(self, step: steps.Digests) -> list[list[str]]:
        return self.digests(step.name)

    def _write(self, entity: Any, kind: p4r.Update.Type.ValueType = p4r.Update.INSERT) -> None:
        self.control.write([p4r.Update(type=kind, entity=entity.encode(self.schema))])

    def _read(self, pattern: Any) -> list[Any]:
        return [decode_entity(e, self.schema) for e in self.control.read(pattern.encode(self.schema))]
