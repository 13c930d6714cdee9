# SPDX-License-Identifier: Apache-2.0
"""Random updates drawn from a program's P4Info. Like p4-fuzzer, they change some updates in one place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from finsy.proto import p4i, p4r
from google.protobuf.descriptor import FieldDescriptor as F
from google.protobuf.message import Message
from p4runtime_oracle.rules import DELETE, INSERT, MODIFY, ORDERED, State

EXISTING, CHANGED = 0.5, 0.3  # shares of all updates
STRINGS = (b"a", b"b", b"7", b"port 7", "\u00e9".encode())
NUMBERS = (0, 1, 2, 3, 4, 7, 100, 1 << 16, (1 << 31) - 1)
KINDS = {
    "table_entry": 8,
    "action_profile_member": 4,
    "action_profile_group": 3,
    "counter_entry": 1,
    "meter_entry": 1,
    "register_entry": 1,
    "direct_counter_entry": 1,
    "direct_meter_entry": 1,
    "value_set_entry": 1,
    "packet_replication_engine_entry": 2,
    "digest_entry": 1,
    "extern_entry": 0.1,
}
KEYS = ("table_id", "match", "priority", "is_default_action", "action_profile_id", "member_id", "group_id")


class Updates:
    """Draws updates. Values come from small sets, so that keys meet."""

    def __init__(self, rng: random.Random, p4info: p4i.P4Info) -> None:
        self.rng = rng
        self.p4info = p4info
        self.actions = {action.preamble.id: action for action in p4info.actions}
        self.profiles = {profile.preamble.id: profile for profile in p4info.action_profiles}

    def draw(self, state: State) -> p4r.Update:
        """Return a random update. Half of the updates name an entity of the state."""
        entity = p4r.Entity()
        if self.rng.random() < EXISTING:
            held = self.rng.choice(list(state.values()))
            kind = str(held.WhichOneof("entity"))
            self._fill(entity, kind, getattr(held, kind))
            type_ = self.rng.choice((INSERT, MODIFY, MODIFY, MODIFY, DELETE, DELETE))
        else:
            [kind] = self.rng.choices(list(KINDS), list(KINDS.values()))
            self._fill(entity, kind)
            written = kind.endswith(("table_entry", "member", "group", "engine_entry", "digest_entry"))
            type_ = INSERT if written and not entity.table_entry.is_default_action else MODIFY
        update = p4r.Update(type=type_, entity=entity)
        if self.rng.random() < CHANGED:
            self._change(update)
        return update

    def _fill(self, entity: p4r.Entity, kind: str, held: Any = None) -> None:
        """Draw the contents of an entity. Take its key from an existing entity, if there is one."""
        message = getattr(entity, kind)
        message.SetInParent()
        getattr(self, f"_{kind}")(message, held)
        for name in KEYS:
            if held is not None and name in message.DESCRIPTOR.fields_by_name:
                message.ClearField(name)
                if name == "match":
                    message.match.extend(held.match)
                else:
                    setattr(message, name, getattr(held, name))

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _bytes(self, bitwidth: int) -> bytes:
        """Return a value. A width of 0 stands for a string."""
        if bitwidth == 0:
            return self.rng.choice(STRINGS)
        return self._encoded(self._value(bitwidth))

    def _value(self, bitwidth: int) -> int:
        full = (1 << bitwidth) - 1
        return self.rng.choice((0, 1, 2, 3, full)) & full

    def _encoded(self, value: int) -> bytes:
        """Return a bytestring, which may begin with zeros."""
        return bytes(self._chance(0.05)) + value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")

    # Table entries.

    def _table_entry(self, entry: p4r.TableEntry, held: p4r.TableEntry | None) -> None:
        tables = {one.preamble.id: one for one in self.p4info.tables}
        table = tables[held.table_id] if held else self.rng.choice(self.p4info.tables)
        self._key(entry, table)
        default = held.is_default_action if held else self._chance(0.03)
        if default and not held:
            entry.is_default_action = True
            entry.ClearField("match")
            entry.priority = 0
        if self._chance(0.95 if not held else 0.8) and not (table.is_const_table and self._chance(0.8)):
            self._table_action(entry.action, table)
        if self._chance(0.2) and not table.is_const_table:
            entry.metadata, entry.controller_metadata = self.rng.choice(((b"a", 0), (b"", 7), (b"\0", 1)))
        if table.idle_timeout_behavior and not default and self._chance(0.3):
            entry.idle_timeout_ns = self.rng.choice((10**15, 10**16))
        resources = set(table.direct_resource_ids) if not default else set()
        if resources & {one.preamble.id for one in self.p4info.direct_counters} and self._chance(0.4):
            self._counter_data(entry.counter_data)
        for meter in self.p4info.direct_meters:
            if meter.preamble.id in resources and self._chance(0.4):
                self._meter_config(entry.meter_config, meter)

    def _key(self, entry: p4r.TableEntry, table: p4i.Table) -> None:
        entry.table_id = table.preamble.id
        for field in table.match_fields:
            self._match(entry.match, field)
        if any(field.match_type in ORDERED for field in table.match_fields):
            entry.priority = self.rng.randint(1, 3)

    def _match(self, matches: Any, field: p4i.MatchField) -> None:
        """Add the match of a field, unless it matches everything."""
        kind, full = field.match_type, (1 << field.bitwidth) - 1
        if kind != p4i.MatchField.EXACT and self._chance(0.3):
            return
        value = self._value(field.bitwidth)
        match = p4r.FieldMatch(field_id=field.id)
        if kind == p4i.MatchField.EXACT:
            match.exact.value = self._bytes(field.bitwidth)
        elif kind == p4i.MatchField.OPTIONAL:
            match.optional.value = self._bytes(field.bitwidth)
        elif kind == p4i.MatchField.LPM:
            match.lpm.prefix_len = self.rng.choice((1, field.bitwidth // 2 or 1, field.bitwidth))
            match.lpm.value = self._encoded(value & full << field.bitwidth - match.lpm.prefix_len)
        elif kind == p4i.MatchField.TERNARY:
            mask = self.rng.choice((1, 3, full)) & full
            match.ternary.value, match.ternary.mask = self._encoded(value & mask), self._encoded(mask)
        else:
            low, high = sorted((value, self._value(field.bitwidth)))
            if (low, high) == (0, full):
                return
            match.range.low, match.range.high = self._encoded(low), self._encoded(high)
        matches.append(match)

    def _table_action(self, action: p4r.TableAction, table: p4i.Table) -> None:
        profile = self.profiles.get(table.implementation_id)
        if profile is None:
            self._action(action.action, table)
        elif not profile.with_selector or self._chance(0.4):
            action.action_profile_member_id = self.rng.randint(1, 6)
        elif self._chance(0.5):
            action.action_profile_group_id = self.rng.randint(1, 3)
        else:
            action.action_profile_action_set.SetInParent()
            for _ in range(self.rng.randint(0, 3)):
                one = action.action_profile_action_set.action_profile_actions.add()
                self._action(one.action, table)
                self._share(one)

    def _action(self, action: p4r.Action, table: p4i.Table) -> None:
        action.action_id = self.rng.choice(table.action_refs).id
        for param in self.actions[action.action_id].params:
            action.params.add(param_id=param.id, value=self._bytes(param.bitwidth))

    def _share(self, part: Any) -> None:
        """Draw the weight of a part of a group or set, and sometimes the port that it watches."""
        part.weight = self.rng.randint(1, 2)
        if self._chance(0.2):
            part.watch_port = self._bytes(9)
        elif self._chance(0.05):
            part.watch = self.rng.choice((1, 300))

    # Members and groups.

    def _profile(self, held: Any, *, selector: bool) -> p4i.ActionProfile:
        if held:
            return self.profiles[held.action_profile_id]
        return self.rng.choice(
            [one for one in self.p4info.action_profiles if one.with_selector or not selector]
        )

    def _action_profile_member(self, member: p4r.ActionProfileMember, held: Any) -> None:
        profile = self._profile(held, selector=False)
        member.action_profile_id, member.member_id = profile.preamble.id, self.rng.randint(1, 6)
        [table, *_] = [one for one in self.p4info.tables if one.preamble.id in profile.table_ids]
        self._action(member.action, table)

    def _action_profile_group(self, group: p4r.ActionProfileGroup, held: Any) -> None:
        profile = self._profile(held, selector=True)
        group.action_profile_id, group.group_id = profile.preamble.id, self.rng.randint(1, 3)
        for number in self.rng.sample(range(1, 7), self.rng.randint(0, 3)):
            self._share(group.members.add(member_id=number))
        most = profile.max_group_size
        group.max_size = self.rng.randint(1, most) if most else self.rng.choice((0, 8))
        if held and self._chance(0.9):
            group.max_size = held.max_size

    # Arrays, and direct resources as entities of their own.

    def _index(self, message: Any, objects: Any, kind: str) -> Any:
        """Choose an object, and a cell or all cells."""
        one = self.rng.choice(objects)
        setattr(message, f"{kind}_id", one.preamble.id)
        if self._chance(0.9):
            message.index.index = self.rng.randrange(one.size)
        return one

    def _counter_data(self, data: p4r.CounterData) -> None:
        data.packet_count, data.byte_count = self.rng.choice((0, 1, 1 << 40)), self.rng.choice((0, 64))

    def _meter_config(self, config: p4r.MeterConfig, meter: Any) -> None:
        config.cir, config.cburst = self.rng.choice(((0, 0), (1, 2), (1000, 10)))
        config.pir, config.pburst = config.cir, config.cburst
        if meter.spec.type == p4i.MeterSpec.TWO_RATE_THREE_COLOR and self._chance(0.5):
            config.pir, config.pburst = config.cir + 5, 1

    def _counter_entry(self, entry: p4r.CounterEntry, held: Any) -> None:
        self._index(entry, self.p4info.counters, "counter")
        if self._chance(0.9):
            self._counter_data(entry.data)

    def _meter_entry(self, entry: p4r.MeterEntry, held: Any) -> None:
        meter = self._index(entry, self.p4info.meters, "meter")
        if self._chance(0.8):
            self._meter_config(entry.config, meter)

    def _register_entry(self, entry: p4r.RegisterEntry, held: Any) -> None:
        spec = self._index(entry, self.p4info.registers, "register").type_spec.bitstring
        if spec.HasField("int"):
            value = self.rng.choice((0, 1, -1, (1 << spec.int.bitwidth - 1) - 1, -1 << spec.int.bitwidth - 1))
            entry.data.bitstring = value.to_bytes(
                spec.int.bitwidth // 8 + self._chance(0.2), "big", signed=True
            )
        else:
            entry.data.bitstring = self._bytes(spec.bit.bitwidth)

    def _direct_counter_entry(self, entry: p4r.DirectCounterEntry, held: Any) -> None:
        tables = {one.direct_table_id for one in self.p4info.direct_counters}
        self._key(
            entry.table_entry, self.rng.choice([t for t in self.p4info.tables if t.preamble.id in tables])
        )
        if self._chance(0.9):
            self._counter_data(entry.data)

    def _direct_meter_entry(self, entry: p4r.DirectMeterEntry, held: Any) -> None:
        meter = self.rng.choice(self.p4info.direct_meters)
        [table] = [one for one in self.p4info.tables if one.preamble.id == meter.direct_table_id]
        self._key(entry.table_entry, table)
        if self._chance(0.8):
            self._meter_config(entry.config, meter)

    # Value sets, replication, digests.

    def _value_set_entry(self, entry: p4r.ValueSetEntry, held: Any) -> None:
        one = self.rng.choice(self.p4info.value_sets)
        entry.value_set_id = one.preamble.id
        for _ in range(self.rng.randint(0, one.size)):
            member = entry.members.add()
            for field in one.match:
                self._match(member.match, field)

    def _packet_replication_engine_entry(
        self, entry: p4r.PacketReplicationEngineEntry, held: p4r.PacketReplicationEngineEntry | None
    ) -> None:
        multicast = held.HasField("multicast_group_entry") if held else self._chance(0.5)
        if multicast:
            group = entry.multicast_group_entry
            group.multicast_group_id = self.rng.randint(1, 4)
            group.metadata = self.rng.choice((b"", b"m"))
        else:
            session = entry.clone_session_entry
            session.session_id = self.rng.randint(1, 4)
            session.packet_length_bytes = self.rng.choice((0, 64))
        replicas = entry.multicast_group_entry.replicas if multicast else entry.clone_session_entry.replicas
        for port, instance in self.rng.sample(
            [(p, i) for p in (1, 2, 3) for i in (0, 1)], self.rng.randint(0, 3)
        ):
            if self._chance(0.8):
                replicas.add(port=self._encoded(port), instance=instance)
            else:
                replicas.add(egress_port=port, instance=instance)

    def _digest_entry(self, entry: p4r.DigestEntry, held: Any) -> None:
        entry.digest_id = self.rng.choice(self.p4info.digests).preamble.id
        entry.config.max_timeout_ns, entry.config.max_list_size, entry.config.ack_timeout_ns = (
            self.rng.choice((0, 1, 1000)) for _ in range(3)
        )

    def _extern_entry(self, entry: p4r.ExternEntry, held: Any) -> None:
        entry.extern_type_id = 0x81

    # Changes in one place.

    def _change(self, update: p4r.Update) -> None:
        message, field = self.rng.choice(list(_places(update)))
        value = getattr(message, field.name)
        if field.is_repeated:
            self._change_list(value)
        elif field.type == F.TYPE_MESSAGE:
            if message.HasField(field.name):
                message.ClearField(field.name)
            else:
                value.SetInParent()
        else:
            setattr(message, field.name, self._scalar(field, value))

    def _change_list(self, items: Any) -> None:
        how = self.rng.randrange(3) if items else 0
        if how == 0:
            items.add()
        elif how == 1:
            items.append(self.rng.choice(items))
        else:
            del items[self.rng.randrange(len(items))]

    def _scalar(self, field: F, value: Any) -> Any:
        if field.type == F.TYPE_BYTES:
            return self.rng.choice(
                (b"", b"\0" + value, b"\1" + value, value[:-1], b"\xff" * 7, b"\xff" + value)
            )
        if field.type == F.TYPE_STRING:
            return "x"
        if field.type == F.TYPE_BOOL:
            return not value
        if field.type == F.TYPE_ENUM:
            return self.rng.choice(field.enum_type.values).number
        number = self.rng.choice((*NUMBERS, *self.actions, *self.profiles))
        signed = field.type in (F.TYPE_INT32, F.TYPE_INT64)
        return -number if signed and self._chance(0.2) else number


def _places(message: Message) -> Iterator[tuple[Any, F]]:
    """Yield the fields of a message and of the messages in it, set or not."""
    for field in message.DESCRIPTOR.fields:
        yield message, field
        if field.type == F.TYPE_MESSAGE:
            held = getattr(message, field.name)
            if field.is_repeated:
                for one in held:
                    yield from _places(one)
            elif message.HasField(field.name):
                yield from _places(held)
