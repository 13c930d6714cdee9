# SPDX-License-Identifier: Apache-2.0
"""A model of a P4Runtime server: its state, and the codes that the specification permits for an update.

The model knows a program by its P4Info only. Where clauses contradict each other, or leave a choice to the
target, several codes are permitted, and the model follows the server's answer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from finsy.proto import p4i, p4r
from p4runtime_oracle.rules import (
    DELETE,
    DENIED,
    EXISTS,
    FULL,
    IN_USE,
    INSERT,
    INVALID,
    MAX_GROUP,
    MAX_SESSION,
    MODIFY,
    ORDERED,
    OUT_OF_RANGE,
    UNKNOWN,
    UNSUPPORTED,
    Judgement,
    Key,
    State,
    check_counts,
    check_rates,
    check_replicas,
    check_weight,
    copy_watched_port,
    matched,
    shortest,
    size_of,
)


class Model:
    """All entities of a program. `state` has an Entity, as a Read returns it, for each key."""

    def __init__(self, p4info: p4i.P4Info, initial: Iterable[p4r.Entity]) -> None:
        """`initial` has the entries that the program itself brings."""
        self.objects: dict[str, dict[int, Any]] = {
            kind.name: {one.preamble.id: one for one in objects}
            for kind, objects in p4info.ListFields()
            if kind.is_repeated and kind.name != "externs"
        }
        self.state: State = dict(self._fresh())
        for entity in initial:
            self.state[self._entry_key(entity.table_entry)] = entity

    def judge(self, update: p4r.Update) -> Judgement:
        """Return what the specification says about an update."""
        kind = str(update.entity.WhichOneof("entity"))
        verdict = Judgement()
        verdict.require(update.type in (INSERT, MODIFY, DELETE), INVALID)
        if kind == "None":
            verdict.require(False, INVALID)
        elif kind == "extern_entry":
            verdict.require(False, UNSUPPORTED)
        else:
            getattr(self, f"_{kind}")(verdict, update.type, getattr(update.entity, kind))
        return verdict

    def _fresh(self) -> Iterator[tuple[Key, p4r.Entity]]:
        for number, table in self.objects["tables"].items():
            if not table.implementation_id:
                yield ("default", number), self._initial_default(table)
        for number in self.objects["value_sets"]:
            yield ("value_set", number), p4r.Entity(value_set_entry=p4r.ValueSetEntry(value_set_id=number))
        for kind in ("counter", "meter", "register"):
            for number, one in self.objects[f"{kind}s"].items():
                for index in range(one.size):
                    entity = p4r.Entity()
                    entry = getattr(entity, f"{kind}_entry")
                    setattr(entry, f"{kind}_id", number)
                    entry.index.index = index
                    if kind == "counter":
                        entry.data.SetInParent()
                    elif kind == "register":
                        entry.data.bitstring = b"\0"
                    yield (kind, number, index), entity

    @staticmethod
    def _initial_default(table: p4i.Table) -> p4r.Entity:
        entity = p4r.Entity()
        entity.table_entry.table_id, entity.table_entry.is_default_action = table.preamble.id, True
        initial = table.initial_default_action
        entity.table_entry.action.action.action_id = initial.action_id
        for argument in initial.arguments:
            entity.table_entry.action.action.params.add(param_id=argument.param_id, value=argument.value)
        return entity

    def _find(self, verdict: Judgement, kind: str, number: int) -> Any:
        """Return an object of the P4Info. The specification gives no code for an unknown id."""
        found = self.objects[kind].get(number)
        verdict.require(found, UNKNOWN, INVALID)
        return found

    def _fits(self, verdict: Judgement, kind: int, key: Key) -> p4r.Entity | None:
        """Require that INSERT finds nothing, and that MODIFY and DELETE find something. Return it."""
        held = self.state.get(key)
        verdict.require(kind != INSERT or not held, EXISTS)
        verdict.require(kind == INSERT or held, UNKNOWN)
        return held

    def _action(
        self, verdict: Judgement, table: p4i.Table, action: p4r.Action, *, default: bool = False
    ) -> p4r.Action:
        scopes = {one.id: one.scope for one in table.action_refs}
        canonical = p4r.Action(action_id=action.action_id)
        verdict.require(action.action_id in scopes, INVALID)
        if action.action_id not in scopes:
            return canonical
        forbidden = p4i.ActionRef.TABLE_ONLY if default else p4i.ActionRef.DEFAULT_ONLY
        verdict.require(scopes[action.action_id] != forbidden, DENIED)
        params = self.objects["actions"][action.action_id].params
        given = {one.param_id: one.value for one in action.params}
        verdict.require(given.keys() == {one.id for one in params}, INVALID)
        verdict.require(len(given) == len(action.params), INVALID)
        for param in params:
            if param.id in given:
                value = shortest(verdict, given[param.id], param.bitwidth)
                canonical.params.add(param_id=param.id, value=value)
        return canonical

    def _target(self, verdict: Judgement, table: p4i.Table, action: p4r.TableAction) -> p4r.TableAction:
        """Check what an entry refers to. Return its canonical form."""
        kind = action.WhichOneof("type")
        profile = self.objects["action_profiles"].get(table.implementation_id)
        allowed = {"action"}
        if profile:
            allowed = {"action_profile_member_id"}
            if profile.with_selector:
                allowed |= {"action_profile_group_id", "action_profile_action_set"}
        verdict.require(kind in allowed, INVALID)
        if kind not in allowed:
            return action
        if kind == "action":
            return p4r.TableAction(action=self._action(verdict, table, action.action))
        number = table.implementation_id
        if kind == "action_profile_action_set":
            verdict.require(not self._members(number), INVALID)  # section 9.2.3: one style only
            return self._action_set(verdict, table, profile, action.action_profile_action_set)
        named = getattr(action, kind)
        key = (kind.removesuffix("_id").removeprefix("action_profile_"), number, named)
        verdict.require(named, INVALID, UNKNOWN)
        verdict.require(key in self.state, UNKNOWN)
        verdict.require(not self._one_shots(number), UNKNOWN, INVALID)
        return action

    def _action_set(
        self, verdict: Judgement, table: p4i.Table, profile: p4i.ActionProfile, given: Any
    ) -> p4r.TableAction:
        canonical = p4r.TableAction()
        canonical.action_profile_action_set.SetInParent()
        chosen = {given.action_selection_mode, given.size_semantics}
        verdict.may |= {UNSUPPORTED, INVALID} if chosen != {0} else set()
        canonical.action_profile_action_set.action_selection_mode = given.action_selection_mode
        canonical.action_profile_action_set.size_semantics = given.size_semantics
        for one in given.action_profile_actions:
            into = canonical.action_profile_action_set.action_profile_actions.add()
            into.action.CopyFrom(self._action(verdict, table, one.action))
            check_weight(verdict, profile, one.weight)
            into.weight = one.weight
            copy_watched_port(verdict, one, into)
        size = size_of(verdict, profile, given.action_profile_actions)
        verdict.require(not profile.max_group_size or size <= profile.max_group_size, INVALID)
        return canonical

    # Table entries.

    def _entry_key(self, message: p4r.TableEntry) -> Key:
        match = tuple(one.SerializeToString(deterministic=True) for one in message.match)
        return ("entry", message.table_id, match, message.priority)

    def _locate(self, verdict: Judgement, table: p4i.Table, message: p4r.TableEntry) -> p4r.TableEntry:
        """Return the canonical key of an entry."""
        ordered = any(one.match_type in ORDERED for one in table.match_fields)
        verdict.require(message.priority > 0 if ordered else message.priority == 0, INVALID)
        match = matched(verdict, table.match_fields, message.match)
        return p4r.TableEntry(table_id=message.table_id, match=match, priority=message.priority)

    def _table_entry(self, verdict: Judgement, kind: int, message: p4r.TableEntry) -> None:
        table = self._find(verdict, "tables", message.table_id)
        verdict.require(not message.is_const, INVALID)
        if table is None:
            return
        if message.is_default_action:
            self._default(verdict, kind, table, message)
            return
        verdict.require(kind != INSERT or table.match_fields, INVALID)
        entry = self._locate(verdict, table, message)
        key = self._entry_key(entry)
        constant = table.is_const_table
        verdict.require(not constant or kind == MODIFY, DENIED)
        held = self._fits(verdict, kind, key)
        if kind == DELETE:
            verdict.changes[key] = None
            return
        verdict.require(not constant or not message.HasField("action"), DENIED)
        verdict.require(kind == MODIFY or message.HasField("action"), INVALID)
        if constant and (message.idle_timeout_ns or message.metadata or message.controller_metadata):
            verdict.may.add(DENIED)
        self._idle(verdict, table, message)
        self._resources(verdict, table, message)
        entries = sum(other[:2] == ("entry", message.table_id) for other in self.state)
        verdict.require(kind != INSERT or not table.size or entries < table.size, FULL)
        old = held.table_entry if held else p4r.TableEntry()
        self._complete(verdict, table, entry, message, old)
        verdict.changes[key] = p4r.Entity(table_entry=entry)

    def _complete(
        self,
        verdict: Judgement,
        table: p4i.Table,
        entry: p4r.TableEntry,
        message: p4r.TableEntry,
        old: p4r.TableEntry,
    ) -> None:
        """Fill in an entry after INSERT or MODIFY."""
        if message.HasField("action"):
            entry.action.CopyFrom(self._target(verdict, table, message.action))
        elif old.HasField("action"):
            entry.action.CopyFrom(old.action)
        opaque = message if message.HasField("action") else old  # section 9.1.2
        entry.is_const = old.is_const
        entry.metadata, entry.controller_metadata = opaque.metadata, opaque.controller_metadata
        entry.idle_timeout_ns = opaque.idle_timeout_ns
        if message.HasField("counter_data"):
            entry.counter_data.CopyFrom(message.counter_data)
        elif self._resource(table, "direct_counters"):
            entry.counter_data.CopyFrom(old.counter_data)
        if message.HasField("meter_config"):
            entry.meter_config.CopyFrom(message.meter_config)

    @staticmethod
    def _idle(verdict: Judgement, table: p4i.Table, message: p4r.TableEntry) -> None:
        supported = table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL
        verdict.require(not message.HasField("time_since_last_hit"), INVALID)
        verdict.require(message.idle_timeout_ns >= 0, INVALID)
        verdict.require(supported or not message.idle_timeout_ns, INVALID)

    def _resource(self, table: p4i.Table, kind: str) -> Any:
        objects = self.objects[kind]
        return next((objects[one] for one in table.direct_resource_ids if one in objects), None)

    def _resources(self, verdict: Judgement, table: p4i.Table, message: p4r.TableEntry) -> None:
        if message.HasField("counter_data"):
            verdict.require(self._resource(table, "direct_counters"), INVALID)
            check_counts(verdict, message.counter_data)
        meter = self._resource(table, "direct_meters")
        if message.HasField("meter_config"):
            verdict.require(meter, INVALID)
            if meter:
                check_rates(verdict, meter, message.meter_config)
        if message.HasField("meter_counter_data"):
            verdict.require(False, UNSUPPORTED, INVALID)

    def _default(self, verdict: Judgement, kind: int, table: p4i.Table, message: p4r.TableEntry) -> None:
        verdict.require(kind == MODIFY, INVALID)
        verdict.require(not message.match and not message.priority, INVALID)
        verdict.require(not message.idle_timeout_ns and not message.HasField("time_since_last_hit"), INVALID)
        verdict.require(not table.const_default_action_id and not table.implementation_id, DENIED)
        if any(message.HasField(one) for one in ("counter_data", "meter_config", "meter_counter_data")):
            verdict.require(False, UNSUPPORTED, INVALID)
        entity = self._initial_default(table)
        if message.HasField("action"):
            if message.action.WhichOneof("type") != "action":
                verdict.require(False, INVALID, UNSUPPORTED)
            action = self._action(verdict, table, message.action.action, default=True)
            entity.table_entry.action.action.CopyFrom(action)
            entity.table_entry.metadata = message.metadata
            entity.table_entry.controller_metadata = message.controller_metadata
        verdict.changes["default", table.preamble.id] = entity

    # Direct resources as entities of their own.

    def _held(self, verdict: Judgement, kind: int, message: p4r.TableEntry, resource: str) -> Any:
        """Return the table, and copies of the entry that a direct resource belongs to, by key."""
        verdict.require(kind == MODIFY, INVALID)
        table = self._find(verdict, "tables", message.table_id)
        if table is None:
            return None, {}
        verdict.require(self._resource(table, resource), INVALID)
        if message.is_const:
            verdict.may.add(INVALID)
        if message.is_default_action:
            verdict.require(False, UNSUPPORTED, INVALID)
            if not message.match:
                return table, {}
        key = self._entry_key(self._locate(verdict, table, message))
        held = self._fits(verdict, MODIFY, key)
        return table, {key: copy.deepcopy(held)} if held else {}

    def _direct_counter_entry(self, verdict: Judgement, kind: int, message: p4r.DirectCounterEntry) -> None:
        _, verdict.changes = self._held(verdict, kind, message.table_entry, "direct_counters")
        if message.HasField("data"):
            check_counts(verdict, message.data)
            for entity in verdict.changes.values():
                entity.table_entry.counter_data.CopyFrom(message.data)

    def _direct_meter_entry(self, verdict: Judgement, kind: int, message: p4r.DirectMeterEntry) -> None:
        table, verdict.changes = self._held(verdict, kind, message.table_entry, "direct_meters")
        meter = table and self._resource(table, "direct_meters")
        if message.HasField("config") and meter:
            check_rates(verdict, meter, message.config)
        if message.HasField("counter_data"):
            verdict.require(False, UNSUPPORTED, INVALID)
        for entity in verdict.changes.values():
            entity.table_entry.ClearField("meter_config")
            if message.HasField("config"):
                entity.table_entry.meter_config.CopyFrom(message.config)

    # Action profiles.

    def _entries_of(self, profile: int) -> Iterator[p4r.TableAction]:
        for key, entity in self.state.items():
            if key[0] == "entry" and self.objects["tables"][key[1]].implementation_id == profile:
                yield entity.table_entry.action

    def _one_shots(self, profile: int) -> bool:
        return any(one.HasField("action_profile_action_set") for one in self._entries_of(profile))

    def _members(self, profile: int) -> bool:
        return any(key[0] in ("member", "group") and key[1] == profile for key in self.state)

    def _action_profile_member(self, verdict: Judgement, kind: int, message: p4r.ActionProfileMember) -> None:
        profile = self._find(verdict, "action_profiles", message.action_profile_id)
        if profile is None:
            return
        number, key = message.action_profile_id, ("member", message.action_profile_id, message.member_id)
        verdict.require(message.member_id, INVALID, *([UNKNOWN] if kind != INSERT else []))
        self._fits(verdict, kind, key)
        verdict.require(not self._one_shots(number), INVALID)
        if kind == DELETE:
            used = any(one.action_profile_member_id == message.member_id for one in self._entries_of(number))
            groups = [e.action_profile_group for k, e in self.state.items() if k[:2] == ("group", number)]
            used |= any(m.member_id == message.member_id for group in groups for m in group.members)
            verdict.require(not used, IN_USE)
            verdict.changes[key] = None
            return
        verdict.require(message.HasField("action"), INVALID)
        table = self.objects["tables"][profile.table_ids[0]]
        member = p4r.ActionProfileMember(action_profile_id=number, member_id=message.member_id)
        member.action.CopyFrom(self._action(verdict, table, message.action))
        held = sum(other[:2] == ("member", number) for other in self.state)
        verdict.require(kind != INSERT or not profile.size or held < profile.size, FULL)
        verdict.changes[key] = p4r.Entity(action_profile_member=member)

    def _action_profile_group(self, verdict: Judgement, kind: int, message: p4r.ActionProfileGroup) -> None:
        profile = self._find(verdict, "action_profiles", message.action_profile_id)
        if profile is None:
            return
        number, key = message.action_profile_id, ("group", message.action_profile_id, message.group_id)
        verdict.require(profile.with_selector, INVALID)
        verdict.require(message.group_id, INVALID, *([UNKNOWN] if kind != INSERT else []))
        held = self._fits(verdict, kind, key)
        verdict.require(not self._one_shots(number), INVALID)
        if kind == DELETE:
            used = any(one.action_profile_group_id == message.group_id for one in self._entries_of(number))
            verdict.require(not used, IN_USE)
            verdict.changes[key] = None
            return
        group = copy.deepcopy(message)
        for given, into in zip(message.members, group.members, strict=True):
            verdict.require(("member", number, given.member_id) in self.state, UNKNOWN)
            check_weight(verdict, profile, given.weight)
            copy_watched_port(verdict, given, into)
        names = [one.member_id for one in message.members]
        verdict.require(len(set(names)) == len(names), INVALID)
        most = profile.max_group_size
        verdict.require(0 < message.max_size <= most if most else message.max_size >= 0, INVALID)
        verdict.require(not held or message.max_size == held.action_profile_group.max_size, INVALID)
        size = size_of(verdict, profile, message.members)
        verdict.require(message.max_size <= 0 or size <= message.max_size, FULL, INVALID)
        others = [e.action_profile_group for k, e in self.state.items() if k[:2] == key[:2] and k != key]
        if sum(size_of(Judgement(), profile, other.members) for other in others) + size > profile.size:
            verdict.may.add(FULL)
        verdict.changes[key] = p4r.Entity(action_profile_group=group)

    # Arrays.

    def _cells(self, verdict: Judgement, kind: int, name: str, message: Any) -> tuple[Any, list[Key]]:
        verdict.require(kind == MODIFY, INVALID)
        number = getattr(message, f"{name}_id")
        one = self._find(verdict, f"{name}s", number)
        if one is None:
            return None, []
        if not message.HasField("index"):
            return one, [(name, number, index) for index in range(one.size)]
        index = message.index.index
        verdict.require(index >= 0, INVALID)
        verdict.require(index < one.size, OUT_OF_RANGE)
        return one, [(name, number, index)] if 0 <= index < one.size else []

    def _counter_entry(self, verdict: Judgement, kind: int, message: p4r.CounterEntry) -> None:
        _, cells = self._cells(verdict, kind, "counter", message)
        if message.HasField("data"):
            check_counts(verdict, message.data)
            for key in cells:
                verdict.changes[key] = copy.deepcopy(self.state[key])
                verdict.changes[key].counter_entry.data.CopyFrom(message.data)

    def _meter_entry(self, verdict: Judgement, kind: int, message: p4r.MeterEntry) -> None:
        meter, cells = self._cells(verdict, kind, "meter", message)
        if message.HasField("config") and meter:
            check_rates(verdict, meter, message.config)
        if message.HasField("counter_data"):
            verdict.require(False, UNSUPPORTED, INVALID)
        for key in cells:
            verdict.changes[key] = copy.deepcopy(self.state[key])
            verdict.changes[key].meter_entry.ClearField("config")
            if message.HasField("config"):
                verdict.changes[key].meter_entry.config.CopyFrom(message.config)

    def _register_entry(self, verdict: Judgement, kind: int, message: p4r.RegisterEntry) -> None:
        register, cells = self._cells(verdict, kind, "register", message)
        verdict.require(message.data.WhichOneof("data") == "bitstring", INVALID)
        if register is None:
            return
        spec = register.type_spec.bitstring
        signed = spec.HasField("int")
        width = spec.int.bitwidth if signed else spec.bit.bitwidth
        value = shortest(verdict, message.data.bitstring, width, signed=signed)
        for key in cells:
            verdict.changes[key] = copy.deepcopy(self.state[key])
            verdict.changes[key].register_entry.data.bitstring = value

    # Value sets, replication, digests.

    def _value_set_entry(self, verdict: Judgement, kind: int, message: p4r.ValueSetEntry) -> None:
        verdict.require(kind == MODIFY, INVALID)
        one = self._find(verdict, "value_sets", message.value_set_id)
        if one is None:
            return
        entry = p4r.ValueSetEntry(value_set_id=message.value_set_id)
        for member in message.members:
            entry.members.add(match=matched(verdict, one.match, member.match))
        distinct = {member.SerializeToString(deterministic=True) for member in entry.members}
        verdict.require(len(message.members) <= one.size, FULL)
        verdict.require(len(distinct) == len(entry.members), EXISTS)
        verdict.changes["value_set", message.value_set_id] = p4r.Entity(value_set_entry=entry)

    def _packet_replication_engine_entry(
        self, verdict: Judgement, kind: int, message: p4r.PacketReplicationEngineEntry
    ) -> None:
        which = message.WhichOneof("type")
        verdict.require(which, INVALID)
        if which == "multicast_group_entry":
            number, most = message.multicast_group_entry.multicast_group_id, MAX_GROUP
        elif which == "clone_session_entry":
            number, most = message.clone_session_entry.session_id, MAX_SESSION
        else:
            return
        verdict.require(0 < number <= most, INVALID, *([UNKNOWN] if kind != INSERT else []))
        key = (which, number)
        self._fits(verdict, kind, key)
        if kind == DELETE:
            verdict.changes[key] = None
            return
        entity = p4r.Entity(packet_replication_engine_entry=message)
        entry = getattr(entity.packet_replication_engine_entry, which)
        check_replicas(verdict, entry.replicas)
        if which == "clone_session_entry":
            verdict.require(entry.packet_length_bytes >= 0, INVALID)
            if entry.class_of_service or entry.packet_length_bytes >= 1 << 16:
                verdict.may |= {INVALID, UNSUPPORTED}
        verdict.changes[key] = entity

    def _digest_entry(self, verdict: Judgement, kind: int, message: p4r.DigestEntry) -> None:
        if self._find(verdict, "digests", message.digest_id) is None:
            return
        key = ("digest", message.digest_id)
        self._fits(verdict, kind, key)
        if kind == DELETE:
            verdict.changes[key] = None
            return
        config = message.config
        verdict.require(min(config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns) >= 0, INVALID)
        entity = p4r.Entity(digest_entry=message)
        entity.digest_entry.config.SetInParent()
        verdict.changes[key] = entity

    def accept(self, changes: Mapping[Key, p4r.Entity | None]) -> None:
        """Make the changes of an update that succeeded."""
        for key, entity in changes.items():
            if entity is None:
                self.state.pop(key, None)
            else:
                self.state[key] = entity
