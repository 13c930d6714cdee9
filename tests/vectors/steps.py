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
from dataplane.control import NONE, Control, MatchValues, Tables, Values, entry
from finsy.proto import p4r

Frames: TypeAlias = list[tuple[int, str]]  # port and bytes in hex


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


class Controlled(Tables):
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

    def member(self, profile: str, member: int, action: str, params: Values = NONE) -> None:
        """Add an action to an action profile."""
        chosen = fy.P4TableAction(action, **params)
        self._write(fy.P4ActionProfileMember(profile, member_id=member, action=chosen))

    def group(self, profile: str, group: int, members: Sequence[tuple[int, int]], max_size: int = 0) -> None:
        """Make a group of (member, weight) pairs of an action selector."""
        inside = [fy.P4Member(member, weight=weight) for member, weight in members]
        size = max_size or len(inside)
        self._write(fy.P4ActionProfileGroup(profile, group_id=group, max_size=size, members=inside))

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
        meter = fy.P4DirectMeterEntry(table_entry=entry(table, match), config=config)
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
            for counted in self._read(fy.P4DirectCounterEntry(table_entry=entry(table, match, priority)))
            if counted.table_entry.priority == priority
            and (priority or len(counted.table_entry.match or ()) == len(match))
        ]
        return [found.packet_count, found.byte_count]


def encode(step: Step) -> dict[str, Any]:
    """Return a step as JSON."""
    if isinstance(step, Packet):
        return {"step": "packet", "port": step.port, "data": step.data}
    return {"step": step.method, **step.arguments}


def decode(item: Mapping[str, Any]) -> Step:
    """Return the step of a JSON object, as the inverse of `encode`. Ignore a result."""
    arguments = {name: value for name, value in item.items() if name not in ("step", "result")}
    return Packet(**arguments) if item["step"] == "packet" else Call(item["step"], arguments)
