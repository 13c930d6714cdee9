# SPDX-License-Identifier: Apache-2.0
"""Types that are translated to strings: messages hold strings outside, and numbers inside.

(Specification: "User-defined types", "PSA Metadata Translation".) A string has a number as long as an entry,
a member or a value set uses it; reads, packets and digests only look.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime import bytestrings, matches
from railweave.switch.p4runtime.errors import Refused, invalid, not_found
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.p4runtime.strings import Strings

_Part: TypeAlias = "p4i.MatchField | p4i.Action.Param | p4i.ControllerPacketMetadata.Metadata"
_Slot: TypeAlias = tuple[Any, Strings, str]  # a message whose `value` is a string, its type, a name for it
_Taken: TypeAlias = list[tuple[Strings, int]]
_OF_AN_ENTRY = ("direct_counter_entry", "direct_meter_entry")


class Translation:
    """The strings of a device, and which of its entities use them."""

    def __init__(self, schema: Schema) -> None:
        """Begin with no strings in use."""
        self._schema = schema
        new_types = schema.p4info.type_info.new_types
        self.types = {name: Strings(name, width, new_types[name]) for name, width in schema.strings.items()}
        self._users: dict[Hashable, _Taken] = {}
        headers = {one.preamble.name: one.metadata for one in schema.p4info.controller_packet_metadata}
        owners: Iterable[tuple[int | str, Sequence[_Part]]] = chain(
            ((number, one.match_fields) for number, one in schema.tables.items()),
            ((number, one.params) for number, one in schema.actions.items()),
            ((number, one.match) for number, one in schema.value_sets.items()),
            headers.items(),
        )
        self._parts = {  # the strings, by the id of their owner, or the name of a header
            owner: {part.id: part for part in parts if part.type_name.name in self.types}
            for owner, parts in owners
        }

    def snapshot(self) -> Translation:
        """Return the strings as they are now, to read their present users."""
        view = copy.copy(self)
        view.types = {name: strings.snapshot() for name, strings in self.types.items()}
        return view

    def reserve(self, entities: Iterable[p4r.Entity | None]) -> None:
        """Let entries of the program use their numbers, and its default actions use theirs for ever."""
        if not self.types:
            return
        for entity in filter(None, entities):
            taken = []
            for slot, strings, what in self._slots(entity):
                number = int.from_bytes(slot.value, "big")
                taken.append((strings, strings.take(strings.string(number), what)))
            if not entity.table_entry.is_default_action:
                self._users[self._user(entity)] = taken

    @contextlib.contextmanager
    def writing(self, update: p4r.Update) -> Iterator[p4r.Update]:
        """Yield the update with numbers. If the block succeeds, its entity uses them from then on."""
        if not self.types:
            yield update
            return
        inward = copy.deepcopy(update)
        changes_only_state = _changes_only_state(inward)
        taken: _Taken = []
        try:
            if inward.type == p4r.Update.DELETE or changes_only_state:
                _look_up(self._slots(inward.entity, key=True), not_found)
            else:
                for slot, strings, what in self._slots(inward.entity):
                    number = strings.take(slot.value, what)
                    taken.append((strings, number))
                    slot.value = bytestrings.encode(number)
            yield inward
        except BaseException:
            _release(taken)
            raise
        if changes_only_state:
            return
        user = self._user(inward.entity)
        before = self._users.pop(user, [])
        if taken:
            self._users[user] = taken
        _release(before)

    def key(self, entity: p4r.Entity) -> p4r.Entity:
        """Return an entity or pattern with numbers in its key; NOT_FOUND if a string is not in use."""
        if not self.types:
            return entity
        inward = copy.deepcopy(entity)
        _look_up(self._slots(inward, key=True), not_found)
        return inward

    def outward(self, entity: p4r.Entity) -> p4r.Entity:
        """Return an entity as its controller writes it."""
        if self.types:
            _name(self._slots(entity))
        return entity

    def packet_in(self, message: p4r.PacketIn) -> p4r.PacketIn:
        """Return a packet with strings for a controller."""
        if self.types:
            _name(self._metadata("packet_in", message))
        return message

    def packet_out(self, message: p4r.PacketOut) -> p4r.PacketOut:
        """Return a packet with numbers for the pipeline; Refused if a string is not in use."""
        if not self.types:
            return message
        inward = copy.deepcopy(message)
        _look_up(self._metadata("packet_out", inward), invalid)
        return inward

    def _slots(self, entity: p4r.Entity, *, key: bool = False) -> Iterator[_Slot]:
        """Yield the strings of an entity, or only the strings of its key."""
        match entity.WhichOneof("entity"):
            case "table_entry":
                entry = entity.table_entry
                yield from self._matches(entry.table_id, entry.match)
                one_shot = entry.action.action_profile_action_set.action_profile_actions
                for action in () if key else (entry.action.action, *(one.action for one in one_shot)):
                    yield from self._action(action)
            case "direct_counter_entry" | "direct_meter_entry" as kind:
                entry = getattr(entity, kind).table_entry
                yield from self._matches(entry.table_id, entry.match)
            case "action_profile_member" if not key:
                yield from self._action(entity.action_profile_member.action)
            case "value_set_entry" if not key:
                for member in entity.value_set_entry.members:
                    yield from self._matches(entity.value_set_entry.value_set_id, member.match)

    def _matches(self, owner: int, given: Iterable[p4r.FieldMatch]) -> Iterator[_Slot]:
        kinds = ((one.field_id, one, one.WhichOneof("field_match_type")) for one in given)
        fit = ((number, getattr(one, kind)) for number, one, kind in kinds if kind in ("exact", "optional"))
        return self._chosen(owner, fit)  # other kinds are refused later

    def _action(self, action: p4r.Action) -> Iterator[_Slot]:
        return self._chosen(action.action_id, ((param.param_id, param) for param in action.params))

    def _metadata(self, header: str, message: p4r.PacketIn | p4r.PacketOut) -> Iterator[_Slot]:
        return self._chosen(header, ((one.metadata_id, one) for one in message.metadata))

    def _chosen(self, owner: int | str, given: Iterable[tuple[int, Any]]) -> Iterator[_Slot]:
        parts = self._parts.get(owner, {})
        for number, message in given:
            if number in parts:
                yield message, self.types[parts[number].type_name.name], parts[number].name

    def _user(self, entity: p4r.Entity) -> Hashable:
        """Return the identity of an entity that may use strings; None for other entities."""
        match entity.WhichOneof("entity"):
            case "table_entry":
                entry = entity.table_entry
                if entry.is_default_action:
                    return entry.table_id
                table = self._schema.tables[entry.table_id]
                key = matches.decode(table.preamble.name, table.match_fields, entry.match)
                return entry.table_id, key, entry.priority
            case "action_profile_member":
                member = entity.action_profile_member
                return member.action_profile_id, member.member_id
            case "value_set_entry":
                return entity.value_set_entry.value_set_id
        return None


def _changes_only_state(update: p4r.Update) -> bool:
    """Return whether the update changes counters, a meter or a time of an entry, which keeps its action."""
    kind = update.entity.WhichOneof("entity")
    if kind != "table_entry":
        return kind in _OF_AN_ENTRY
    entry = update.entity.table_entry
    return update.type == p4r.Update.MODIFY and not entry.HasField("action") and not entry.is_default_action


def _look_up(slots: Iterable[_Slot], unknown: Callable[[str], Refused]) -> None:
    for slot, strings, what in slots:
        number = strings.find(slot.value, what)
        if number is None:
            raise unknown(f"{what}: nothing uses the string {slot.value.decode()!r}")
        slot.value = bytestrings.encode(number)


def _name(slots: Iterable[_Slot]) -> None:
    for slot, strings, _ in slots:
        slot.value = strings.string(int.from_bytes(slot.value, "big"))


def _release(taken: _Taken) -> None:
    """Release numbers, the last first, so that undoing a write restores the numbers of strings."""
    for strings, number in reversed(taken):
        strings.release(number)
