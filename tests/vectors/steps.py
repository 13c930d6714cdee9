# SPDX-License-Identifier: Apache-2.0
"""Steps that a test does to a switch with a program, as data, and a switch that does them by P4Runtime.

A step is a packet or the call of a method of `Controlled`. In JSON it is an object with the method's name and
its arguments. Names come from the P4 program; a unique suffix is enough. Values are integers. In a match they
may also be strings: `value/prefix` (lpm), `value/&mask` (ternary), `low...high` (range). A field that is left
out matches anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import finsy as fy
from dataplane.control import Control
from finsy.p4entity import decode_entity
from finsy.proto import p4r

Values: TypeAlias = Mapping[str, int]
MatchValues: TypeAlias = Mapping[str, int | str]
Frames: TypeAlias = list[tuple[int, str]]  # port and bytes in hex

NONE: Values = {}


@dataclass(frozen=True)
class Packet:
    """Send a packet (in hex). The result is the output, in a stable sort by port."""

    port: int
    data: str


@dataclass(frozen=True)
class Call:
    """Call a method of `Controlled`."""

    method: str
    arguments: Mapping[str, Any]


Step: TypeAlias = Packet | Call


class Controlled:
    """A switch with a program; subclasses carry its packets and digests. Most methods return None."""

    def __init__(self, schema: fy.P4Schema, control: Control) -> None:
        self.schema = schema
        self.control = control

    def packets(self, batch: Sequence[Packet]) -> list[Frames]:
        """Send packets. Return the output of each, sorted by port."""
        raise NotImplementedError

    def digests(self, name: str) -> list[list[str]]:
        """Return the messages of a digest since the last call. Each is a list of hex numbers."""
        raise NotImplementedError

    def do(self, step: Step) -> Any:
        """Do one step and return its result."""
        if isinstance(step, Packet):
            return self.packets([step])[0]
        return getattr(self, step.method)(**step.arguments)

    def insert(
        self,
        table: str,
        match: MatchValues,
        action: str | None = None,
        params: Values = NONE,
        priority: int = 0,
        member: int | None = None,
        group: int | None = None,
        one_shot: Sequence[tuple[str, Values, int]] = (),
    ) -> None:
        """Add an entry: with an action, a member or a group of its profile, or (action, params, weight)s."""
        chosen: Any = fy.P4TableAction(action, **params) if action else None
        if member is not None:
            chosen = fy.P4IndirectAction(member_id=member)
        elif group is not None:
            chosen = fy.P4IndirectAction(group_id=group)
        elif one_shot:
            weighted = [(weight, fy.P4TableAction(name, **given)) for name, given, weight in one_shot]
            chosen = fy.P4IndirectAction(weighted)
        self._write(_entry(table, match, priority, action=chosen))

    def modify(
        self, table: str, match: MatchValues, action: str, params: Values = NONE, priority: int = 0
    ) -> None:
        """Give an entry another action."""
        chosen = fy.P4TableAction(action, **params)
        self._write(_entry(table, match, priority, action=chosen), p4r.Update.MODIFY)

    def delete(self, table: str, match: MatchValues, priority: int = 0) -> None:
        self._write(_entry(table, match, priority), p4r.Update.DELETE)

    def default(self, table: str, action: str, params: Values = NONE) -> None:
        """Set the default action of a table."""
        chosen = fy.P4TableAction(action, **params)
        self._write(fy.P4TableEntry(table, action=chosen, is_default_action=True), p4r.Update.MODIFY)

    def member(self, profile: str, member: int, action: str, params: Values = NONE) -> None:
        """Add an action to an action profile."""
        chosen = fy.P4TableAction(action, **params)
        self._write(fy.P4ActionProfileMember(profile, member_id=member, action=chosen))

    def group(self, profile: str, group: int, members: Sequence[tuple[int, int]], max_size: int = 0) -> None:
        """Make a group of (member, weight) pairs of an action selector."""
        inside = [fy.P4Member(member, weight=weight) for member, weight in members]
        size = max_size or len(inside)
        self._write(fy.P4ActionProfileGroup(profile, group_id=group, max_size=size, members=inside))

    def multicast(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Make a multicast group of (port, instance) pairs."""
        self._write(fy.P4MulticastGroupEntry(group, replicas=[tuple(replica) for replica in replicas]))

    def clonesession(self, session: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Make a clone session of (port, instance) pairs."""
        self._write(fy.P4CloneSessionEntry(session, replicas=[tuple(replica) for replica in replicas]))

    def meter(self, name: str, index: int, cir: int, cburst: int, pir: int, pburst: int) -> None:
        """Configure a cell of a meter: committed and peak rate per second, and the bursts."""
        config = fy.P4MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst)
        self._write(fy.P4MeterEntry(name, index=index, config=config), p4r.Update.MODIFY)

    def directmeter(
        self, table: str, match: MatchValues, cir: int, cburst: int, pir: int, pburst: int
    ) -> None:
        """Configure the meter of an entry."""
        config = fy.P4MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst)
        meter = fy.P4DirectMeterEntry(table_entry=_entry(table, match), config=config)
        self._write(meter, p4r.Update.MODIFY)

    def counter(self, name: str, index: int) -> list[int]:
        """Read a cell of a counter; the result is [packets, bytes]."""
        [found] = self._read(fy.P4CounterEntry(name, index=index))
        return [found.packet_count, found.byte_count]

    def directcounter(self, table: str, match: MatchValues, priority: int = 0) -> list[int]:
        """Read an entry's counter; the result is [packets, bytes]."""
        # The read of an entry that matches anything returns all entries, without fields that match anything.
        [found] = [
            counted
            for counted in self._read(fy.P4DirectCounterEntry(table_entry=_entry(table, match, priority)))
            if counted.table_entry.priority == priority
            and (priority or len(counted.table_entry.match or ()) == len(match))
        ]
        return [found.packet_count, found.byte_count]

    def _write(self, entity: Any, kind: p4r.Update.Type.ValueType = p4r.Update.INSERT) -> None:
        self.control.write([p4r.Update(type=kind, entity=entity.encode(self.schema))])

    def _read(self, pattern: Any) -> list[Any]:
        return [decode_entity(e, self.schema) for e in self.control.read(pattern.encode(self.schema))]


def _entry(table: str, match: MatchValues, priority: int = 0, **more: Any) -> fy.P4TableEntry:
    return fy.P4TableEntry(table, match=fy.P4TableMatch(match), priority=priority, **more)


def encode(step: Step) -> dict[str, Any]:
    """Return a step as JSON."""
    if isinstance(step, Packet):
        return {"step": "packet", "port": step.port, "data": step.data}
    return {"step": step.method, **step.arguments}


def decode(item: Mapping[str, Any]) -> Step:
    """Return the step of a JSON object, as the inverse of `encode`. Ignore a result."""
    arguments = {name: value for name, value in item.items() if name not in ("step", "result")}
    return Packet(**arguments) if item["step"] == "packet" else Call(item["step"], arguments)
