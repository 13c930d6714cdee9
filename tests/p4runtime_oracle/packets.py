# SPDX-License-Identifier: Apache-2.0
"""A model of the tables and value sets of the program `oracle`: the calls that a packet may cause."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from finsy.proto import p4i, p4r
from p4runtime_oracle.rules import ORDERED, State

from railweave.switch.trace import Event

FIELDS = {"one": 1, "seven": 7, "nine": 9, "rest": 7, "wide": 16, "long": 48}  # of its header, in bits
DROP = 511

Packet = dict[str, int]
Call = tuple[str, tuple[int, ...]]  # of an action, with its parameters
NOTHING: Call = ("NoAction", ())


def draw(rng: random.Random) -> Packet:
    """Return values that keys of random entries have, too."""
    return {name: rng.choice((0, 1, 2, 3, 5, (1 << bits) - 1)) % (1 << bits) for name, bits in FIELDS.items()}


def encode(packet: Packet) -> bytes:
    """Return the bytes of the header."""
    bits = 0
    for name, width in FIELDS.items():
        bits = bits << width | packet[name]
    return bits.to_bytes(sum(FIELDS.values()) // 8, "big")


def calls(events: Iterable[Event]) -> Iterator[tuple[str, Call]]:
    """Yield each table that a packet passed, and its call."""
    table = ""
    for event in events:
        name = event.name.rpartition(".")[2]
        if event.kind == "table":
            table = name
            if event.values["action"] is None:
                yield table, NOTHING
        elif event.kind == "action" and table:
            yield table, (name, tuple(event.values.values()))


def forwarded(packet: Packet, made: Iterable[Call]) -> list[tuple[int, bytes]]:
    """Return the packet that leaves, and its port, after the calls of all tables."""
    port, leaving = 0, dict(packet)
    for name, params in made:
        if name == "drop":
            port = DROP
        elif params:
            port = params[0]
            leaving["long"] = params[1] if name == "two" else leaving["long"]
    return [] if port == DROP else [(port, encode(leaving))]


class Forwarding:
    """A model of tables and value sets. A group's hash, and entries of the same priority, leave a choice."""

    def __init__(self, p4info: p4i.P4Info, state: State) -> None:
        self._tables = {table.preamble.alias: table for table in p4info.tables}
        self._actions = {action.preamble.id: action for action in p4info.actions}
        self._value_sets = {one.preamble.id: one for one in p4info.value_sets}
        self._state = state

    def permitted(self, name: str, packet: Packet) -> set[Call]:
        """Return the calls that a table may make."""
        table = self._tables[name]
        number = table.preamble.id
        entries = [entity.table_entry for key, entity in self._state.items() if key[:2] == ("entry", number)]
        ranked = [(self._rank(table, entry, packet), entry) for entry in entries]
        best = max((rank for rank, _ in ranked if rank is not None), default=None)
        if best is None:
            default = self._state.get(("default", number))
            return {self._call(default.table_entry.action.action) if default else NOTHING}
        chosen = [entry.action for rank, entry in ranked if rank == best]
        return {self._call(action) for target in chosen for action in self._targets(table, target)}

    def known(self, packet: Packet) -> bool:
        """Return whether a value set has fields of the packet."""
        return any(
            all(_matches(match, self._value_sets[number].match, packet) for match in member.match)
            for (kind, number, *_), entity in self._state.items()
            if kind == "value_set"
            for member in entity.value_set_entry.members
        )

    def _call(self, action: p4r.Action | None) -> Call:
        if action is None:
            return NOTHING
        given = {param.param_id: int.from_bytes(param.value, "big") for param in action.params}
        info = self._actions[action.action_id]
        return info.preamble.alias, tuple(given[param.id] for param in info.params)

    def _targets(self, table: p4i.Table, target: p4r.TableAction) -> Sequence[p4r.Action | None]:
        profile = table.implementation_id
        match target.WhichOneof("type"):
            case "action_profile_member_id":
                return [self._member(profile, target.action_profile_member_id)]
            case "action_profile_group_id":
                group = self._state["group", profile, target.action_profile_group_id].action_profile_group
                return [self._member(profile, one.member_id) for one in group.members] or [None]
            case "action_profile_action_set":
                actions = target.action_profile_action_set.action_profile_actions
                return [one.action for one in actions] or [None]
        return [target.action]

    def _member(self, profile: int, number: int) -> p4r.Action:
        return self._state["member", profile, number].action_profile_member.action

    def _rank(self, table: p4i.Table, entry: p4r.TableEntry, packet: Packet) -> int | None:
        """Return the priority or the length of the prefix of an entry that matches, else None."""
        prefix = 0
        for match in entry.match:
            prefix += match.lpm.prefix_len
            if not _matches(match, table.match_fields, packet):
                return None
        ordered = any(field.match_type in ORDERED for field in table.match_fields)
        return entry.priority if ordered else prefix


def _matches(given: p4r.FieldMatch, fields: Iterable[p4i.MatchField], packet: Packet) -> bool:
    [field] = [one for one in fields if one.id == given.field_id]
    value = packet[field.name.rpartition(".")[2] or "wide"]  # the field of a plain value set has no name
    kind = str(given.WhichOneof("field_match_type"))
    parts = {part.name: number for part, number in getattr(given, kind).ListFields()}
    numbers = {
        name: int.from_bytes(part, "big") if isinstance(part, bytes) else part for name, part in parts.items()
    }
    match kind:
        case "ternary":
            return value & numbers["mask"] == numbers["value"]
        case "range":
            return bool(numbers["low"] <= value <= numbers["high"])
        case "lpm":
            return (value ^ numbers["value"]) >> (field.bitwidth - numbers["prefix_len"]) == 0
    return bool(value == numbers["value"])
