# SPDX-License-Identifier: Apache-2.0
"""Clauses of the P4Runtime specification, one small case each. A page lists all clauses with their tests."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from finsy import P4TableEntry
from finsy.proto import U128, p4r
from google.protobuf.any_pb2 import Any as AnyMessage
from p4runtime_clients import (
    DEVICE,
    JSON,
    ORACLE,
    ROUTER,
    SCHEMAS,
    A,
    Client,
    Config,
    Server,
    client,
    codes,
    device,
    files,
    refused,
    to_port,
    update,
)
from p4runtime_oracle.rules import (
    DELETE,
    DENIED,
    EXISTS,
    FULL,
    IN_USE,
    INSERT,
    INVALID,
    MODIFY,
    OUT_OF_RANGE,
    UNKNOWN,
    UNSUPPORTED,
)
from p4runtime_oracle.session import variant
from vectors.case import case

from railweave.switch.p4runtime import stream
from railweave.switch.p4runtime.batches import Batch
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Refused
from railweave.switch.p4runtime.roles import Scope
from railweave.switch.pipeline import Pipeline

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "p4runtime.md"
SCHEMA = SCHEMAS[ORACLE]
ZERO, ONE, TWO = b"\0", b"\1", b"\2"
Case: TypeAlias = tuple[str, "p4r.Update.Type.ValueType", p4r.Entity]


# ------------------------------------------------------------ entities of the program `oracle`


def number(name: str) -> int:
    """Return the id of an object of the program."""
    [found] = [
        one.preamble.id
        for field, objects in SCHEMA.p4info.ListFields()
        if field.is_repeated
        for one in objects
        if one.preamble.alias == name
    ]
    return found


def call(name: str, *params: bytes) -> p4r.Action:
    made = p4r.Action(action_id=number(name))
    for place, value in enumerate(params, 1):
        made.params.add(param_id=place, value=value)
    return made


def target(**fields: Any) -> p4r.TableAction:
    return p4r.TableAction(**{f"action_profile_{name}": value for name, value in fields.items()})


def shots(*weights: int, watch_port: bytes | None = None, **fields: Any) -> p4r.TableAction:
    one_shot = p4r.ActionProfileActionSet(**fields)
    for weight in weights:
        one_shot.action_profile_actions.add(action=TO_ONE, weight=weight, watch_port=watch_port)
    return target(action_set=one_shot)


def entry(table: str, *match: p4r.FieldMatch, action: Any = None, **fields: Any) -> p4r.Entity:
    made = p4r.TableEntry(table_id=number(table), match=match, **fields)
    if action is not None:
        made.action.CopyFrom(p4r.TableAction(action=action) if isinstance(action, p4r.Action) else action)
    return p4r.Entity(table_entry=made)


def exact(field: int, value: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field, exact=p4r.FieldMatch.Exact(value=value))


def ternary(field: int, value: bytes, mask: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field, ternary=p4r.FieldMatch.Ternary(value=value, mask=mask))


def lpm(value: bytes, length: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=value, prefix_len=length))


def span(low: bytes, high: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=4, range=p4r.FieldMatch.Range(low=low, high=high))


def default(table: str, **fields: Any) -> p4r.Entity:
    return entry(table, is_default_action=True, **fields)


def constant(match: p4r.FieldMatch, **fields: Any) -> p4r.Entity:
    return entry("constant", match, priority=2, **fields)


def counted_members(*match: p4r.FieldMatch, action: p4r.TableAction) -> p4r.Entity:
    return entry("counted_members", *match, priority=1, action=action)


def exacts(value: bytes = ONE, **fields: Any) -> p4r.Entity:
    return entry("exacts", exact(1, value), exact(2, ONE), **fields)


def mixed(*match: p4r.FieldMatch, priority: int = 1) -> p4r.Entity:
    return entry("mixed", exact(1, ONE), *match, action=call("drop"), priority=priority)


def prefixes(value: bytes, length: int, **fields: Any) -> p4r.Entity:
    return entry("prefixes", lpm(value, length), action=TO_ONE, **fields)


def member(of: str, member_id: int, action: p4r.Action | None = None) -> p4r.Entity:
    made = p4r.ActionProfileMember(action_profile_id=number(of), member_id=member_id, action=action)
    return p4r.Entity(action_profile_member=made)


def group(of: str, group_id: int, *members: tuple[int, int], max_size: int = 6) -> p4r.Entity:
    made = p4r.ActionProfileGroup(action_profile_id=number(of), group_id=group_id, max_size=max_size)
    for member_id, weight in members:
        made.members.add(member_id=member_id, weight=weight)
    return p4r.Entity(action_profile_group=made)


def watching(port: bytes, old: int = 4) -> p4r.Entity:
    """Return a group that watches two ports. The deprecated field names the second one."""
    made = group("by_weight", 1, (1, 1), (2, 1))
    made.action_profile_group.members[0].watch_port = port
    made.action_profile_group.members[1].watch = old
    return made


def cell(kind: str, name: str, index: int | None = 0, **fields: Any) -> p4r.Entity:
    made = p4r.Entity()
    part = getattr(made, f"{kind}_entry")
    setattr(part, f"{kind}_id", number(name))
    if index is not None:
        part.index.index = index
    for field, value in fields.items():
        getattr(part, field).CopyFrom(value)
    return made


def register(name: str, value: bytes, index: int | None = 0) -> p4r.Entity:
    made = cell("register", name, index)
    made.register_entry.data.bitstring = value
    return made


def counts(packets: int) -> p4r.CounterData:
    return p4r.CounterData(packet_count=packets)


def rates(cir: int, pir: int, eburst: int = 0) -> p4r.MeterConfig:
    return p4r.MeterConfig(cir=cir, cburst=1, pir=pir, pburst=1, eburst=eburst)


def direct(of: p4r.Entity, **fields: Any) -> p4r.Entity:
    kind = "direct_counter_entry" if "data" in fields else "direct_meter_entry"
    part = (p4r.DirectCounterEntry if "data" in fields else p4r.DirectMeterEntry)(
        table_entry=of.table_entry, **fields
    )
    return p4r.Entity(**{kind: part})


def values(*members: bytes) -> p4r.Entity:
    made = p4r.ValueSetEntry(value_set_id=number("words"))
    for value in members:
        made.members.add(match=[exact(1, value)])
    return p4r.Entity(value_set_entry=made)


def multicast(number_: int, *replicas: p4r.Replica, metadata: bytes = b"") -> p4r.Entity:
    made = p4r.MulticastGroupEntry(multicast_group_id=number_, replicas=replicas, metadata=metadata)
    engine = p4r.PacketReplicationEngineEntry(multicast_group_entry=made)
    return p4r.Entity(packet_replication_engine_entry=engine)


def clone(session: int, *replicas: p4r.Replica, length: int = 0, **fields: Any) -> p4r.Entity:
    made = p4r.CloneSessionEntry(session_id=session, replicas=replicas, packet_length_bytes=length, **fields)
    engine = p4r.PacketReplicationEngineEntry(clone_session_entry=made)
    return p4r.Entity(packet_replication_engine_entry=engine)


def replica(port: bytes = ONE, instance: int = 0, **fields: Any) -> p4r.Replica:
    return p4r.Replica(port=port, instance=instance, **fields)


def digest(**config: int) -> p4r.Entity:
    made = p4r.DigestEntry(digest_id=number("told_t"), config=p4r.DigestEntry.Config(**config))
    return p4r.Entity(digest_entry=made)


TO_ONE, NOTHING, COUNTED = call("port", ONE), call("NoAction"), call("counted", ONE)
NO_ACTION = p4r.Action(action_id=7)
STRANGE = p4r.ActionProfileGroup(action_profile_id=7, group_id=1)
BEHIND = p4r.BackupReplica(port=TWO, instance=1)
COLOURS = p4r.MeterCounterData()
CONSTANT = ternary(1, ONE, b"\3")
WEIGHED = exact(1, ONE)
HASH = p4r.ActionProfileActionSet.ActionSelectionMode.HASH
RANDOM = p4r.ActionProfileActionSet.ActionSelectionMode.RANDOM
OF_WEIGHTS = p4r.ActionProfileActionSet.SizeSemantics.SUM_OF_WEIGHTS
OF_MEMBERS = p4r.ActionProfileActionSet.SizeSemantics.SUM_OF_MEMBERS

WRITTEN = [
    exacts(action=COUNTED, counter_data=counts(5), meter_config=rates(1, 2)),
    member("by_weight", 1, TO_ONE),
    member("by_weight", 2, TO_ONE),
    member("by_weight", 3, TO_ONE),
    watching(b"\0\1"),
    entry("weighed", WEIGHED, action=target(group_id=1)),
    entry("weighed", exact(1, TWO), action=target(member_id=2)),
    entry("spread", action=shots(1, action_selection_mode=HASH, size_semantics=OF_WEIGHTS)),
    multicast(1, replica(b"\0\1")),
    clone(1, p4r.Replica(egress_port=1)),
    digest(max_list_size=1),
]
WRITES: dict[str, Case] = {
    # section 8
    "id 0": (UNKNOWN, INSERT, p4r.Entity(table_entry=p4r.TableEntry())),
    "padded value": ("OK", INSERT, exacts(b"\0\0\0\2", action=COUNTED)),
    "value of too many bits": (OUT_OF_RANGE, INSERT, exacts(b"\2\0", action=COUNTED)),
    "empty value": (OUT_OF_RANGE, INSERT, exacts(b"", action=COUNTED)),
    "negative value": ("OK", MODIFY, register("signs", b"\xff\x80")),
    "signed value of too many bits": (OUT_OF_RANGE, MODIFY, register("signs", b"\0\x80")),
    # section 9.1: entries and keys
    "keyless INSERT": (INVALID, INSERT, entry("keyless", action=TO_ONE)),
    "is_const in INSERT": (INVALID, INSERT, exacts(TWO, action=COUNTED, is_const=True)),
    "is_const in MODIFY": (INVALID, MODIFY, exacts(action=COUNTED, is_const=True)),
    "is_const in DELETE": (INVALID, DELETE, exacts(is_const=True)),
    "DELETE with nonsense": (
        "OK",
        DELETE,
        exacts(action=NO_ACTION, idle_timeout_ns=-1, time_since_last_hit={}, counter_data=counts(-1)),
    ),
    "two entries of one priority": ("OK", INSERT, counted_members(ternary(1, ONE, ONE), action=shots(1))),
    "match that another table has": (INVALID, INSERT, exacts(action=COUNTED, priority=1)),
    "no priority": (INVALID, INSERT, mixed(priority=0)),
    "negative priority": (INVALID, INSERT, mixed(priority=-1)),
    "exact field left out": (INVALID, INSERT, entry("exacts", exact(1, TWO), action=COUNTED)),
    "field twice": (INVALID, INSERT, mixed(exact(1, ONE))),
    "unknown field": (INVALID, INSERT, mixed(exact(5, ONE))),
    "match of another kind": (INVALID, INSERT, mixed(exact(3, ONE))),
    "mask 0": (INVALID, INSERT, mixed(ternary(3, ZERO, ZERO))),
    "bits outside the mask": (INVALID, INSERT, mixed(ternary(3, b"\3", ONE))),
    "range without a value": (INVALID, INSERT, mixed(span(TWO, ONE))),
    "range of all values": (INVALID, INSERT, mixed(span(ZERO, b"\x7f"))),
    "prefix of length 0": (INVALID, INSERT, prefixes(ZERO, 0)),
    "prefix too long": (INVALID, INSERT, prefixes(ZERO, 49)),
    "bits behind the prefix": (INVALID, INSERT, prefixes(ONE, 8)),
    # section 9.1.2: actions
    "INSERT without action": (INVALID, INSERT, exacts(TWO)),
    "MODIFY without action": ("OK", MODIFY, exacts(counter_data=counts(7))),
    "unknown action": (INVALID, MODIFY, exacts(action=NO_ACTION)),
    "another table's action": (INVALID, MODIFY, exacts(action=TO_ONE)),
    "member id in a direct table": (INVALID, MODIFY, exacts(action=target(member_id=1))),
    "action in an indirect table": (INVALID, MODIFY, entry("weighed", WEIGHED, action=TO_ONE)),
    "group without a selector": (
        INVALID,
        INSERT,
        entry("indirect", exact(1, ONE), action=target(group_id=1)),
    ),
    "set without selector": (INVALID, INSERT, entry("indirect", exact(1, ONE), action=shots(1))),
    "unknown member in an entry": (UNKNOWN, MODIFY, entry("weighed", WEIGHED, action=target(member_id=9))),
    "unknown group in an entry": (UNKNOWN, MODIFY, entry("weighed", WEIGHED, action=target(group_id=9))),
    "parameter missing": (INVALID, MODIFY, exacts(action=call("counted"))),
    "parameter of too many bits": (OUT_OF_RANGE, MODIFY, exacts(action=call("counted", b"\2\0"))),
    "parameter too many": (INVALID, MODIFY, exacts(action=call("counted", ONE, ONE))),
    "default-only action in an entry": (DENIED, MODIFY, exacts(action=NOTHING)),
    "table-only action as default": (DENIED, MODIFY, default("prefixes", action=NOTHING)),
    # sections 9.1.3 to 9.1.5: default and constant entries
    "default INSERT": (INVALID, INSERT, default("keyless", action=TO_ONE)),
    "default DELETE": (INVALID, DELETE, default("keyless")),
    "default with match": (INVALID, MODIFY, exacts(is_default_action=True, action=NOTHING)),
    "default with priority": (INVALID, MODIFY, default("mixed", priority=1)),
    "default with idle time-out": (INVALID, MODIFY, default("exacts", idle_timeout_ns=1)),
    "default with direct counter": (UNSUPPORTED, MODIFY, default("exacts", counter_data=counts(1))),
    "constant default": (DENIED, MODIFY, default("constant")),
    "default of an indirect table": (DENIED, MODIFY, default("spread")),
    "constant INSERT": (DENIED, INSERT, constant(ternary(1, TWO, TWO), action=call("drop"))),
    "constant DELETE": (DENIED, DELETE, constant(CONSTANT)),
    "constant MODIFY with action": (DENIED, MODIFY, constant(CONSTANT, action=call("constant_port", ONE))),
    "constant MODIFY of a counter": ("OK", MODIFY, constant(CONSTANT, counter_data=counts(1))),
    # sections 9.1.7 and 9.1.8: direct resources and idle time-outs
    "counter data without counter": (INVALID, INSERT, prefixes(ONE, 48, counter_data=counts(1))),
    "meter counter data": (UNSUPPORTED, MODIFY, exacts(action=COUNTED, meter_counter_data={})),
    "idle time-out without support": (INVALID, INSERT, prefixes(ONE, 48, idle_timeout_ns=1)),
    "time since last hit in a write": (INVALID, MODIFY, exacts(action=COUNTED, time_since_last_hit={})),
    "idle time-out of 1 ns": ("OK", MODIFY, exacts(action=COUNTED, idle_timeout_ns=1)),
    # section 9.2: members, groups and one-shot sets
    "member twice": (EXISTS, INSERT, member("by_weight", 1, TO_ONE)),
    "member 0": (INVALID, INSERT, member("by_weight", 0, TO_ONE)),
    "member without action": (INVALID, MODIFY, member("by_weight", 1)),
    "member that is not there": (UNKNOWN, MODIFY, member("by_weight", 9, TO_ONE)),
    "DELETE of no member": (UNKNOWN, DELETE, member("by_weight", 9)),
    "DELETE of a group's member": (IN_USE, DELETE, member("by_weight", 1)),
    "DELETE of an entry's member": (IN_USE, DELETE, member("by_weight", 2)),
    "DELETE of a member with nonsense": ("OK", DELETE, member("by_weight", 3, NO_ACTION)),
    "group twice": (EXISTS, INSERT, group("by_weight", 1)),
    "group with the number of a member": ("OK", INSERT, group("by_weight", 2, (1, 1), (2, 2))),
    "group 0": (INVALID, INSERT, group("by_weight", 0)),
    "group of unknown members": (UNKNOWN, INSERT, group("by_weight", 2, (9, 1))),
    "group that is not there": (UNKNOWN, MODIFY, group("by_weight", 9)),
    "group with a member twice": (INVALID, MODIFY, group("by_weight", 1, (1, 1), (1, 1))),
    "weight 0": (INVALID, MODIFY, group("by_weight", 1, (1, 0))),
    "another max_size": (INVALID, MODIFY, group("by_weight", 1, max_size=5)),
    "max_size 0 with a limit": (INVALID, INSERT, group("by_weight", 2, max_size=0)),
    "max_size above the limit": (INVALID, INSERT, group("by_weight", 2, max_size=7)),
    "size above max_size": (FULL, INSERT, group("by_weight", 2, (1, 4), max_size=3)),
    "group without selector": (INVALID, INSERT, group("members", 1)),
    "group of an unknown selector": (UNKNOWN, INSERT, p4r.Entity(action_profile_group=STRANGE)),
    "group with too great a weight": (INVALID, INSERT, group("by_member", 1, (1, 5), max_size=3)),
    "group with too many members": (FULL, INSERT, group("by_member", 1, (1, 4), (2, 4), max_size=1)),
    "DELETE of an entry's group": (IN_USE, DELETE, group("by_weight", 1)),
    "DELETE of no group": (UNKNOWN, DELETE, group("by_weight", 9)),
    "watch port of too many bits": (OUT_OF_RANGE, MODIFY, watching(b"\2\0")),
    "one shot beside members": (INVALID, MODIFY, entry("weighed", WEIGHED, action=shots(1))),
    "member beside one shots": (INVALID, INSERT, member("unbounded", 1, TO_ONE)),
    "group beside one shots": (INVALID, INSERT, group("unbounded", 1)),
    "weight 0 in a set": (INVALID, MODIFY, entry("spread", action=shots(0))),
    "equal actions in a set": ("OK", MODIFY, entry("spread", action=shots(1, 1))),
    "empty set": ("OK", MODIFY, entry("spread", action=shots())),
    "too many members in a set": (INVALID, INSERT, counted_members(action=shots(1, 1, 1, 1))),
    "too great a weight in a set": (INVALID, INSERT, counted_members(action=shots(5))),
    "too many copies in a set": (FULL, MODIFY, entry("spread", action=shots(1 << 30))),
    "default mode of a set": ("OK", MODIFY, entry("spread", action=shots(1))),
    "another mode of a set": (
        UNSUPPORTED,
        MODIFY,
        entry("spread", action=shots(1, action_selection_mode=RANDOM)),
    ),
    "other size of a set": (UNSUPPORTED, MODIFY, entry("spread", action=shots(1, size_semantics=OF_MEMBERS))),
    # sections 9.3 and 9.4: counters and meters
    "counter INSERT": (INVALID, INSERT, cell("counter", "packets")),
    "counter DELETE": (INVALID, DELETE, cell("counter", "packets")),
    "counter index -1": (INVALID, MODIFY, cell("counter", "packets", -1, data=counts(1))),
    "counter index too great": (OUT_OF_RANGE, MODIFY, cell("counter", "packets", 4, data=counts(1))),
    "direct counter INSERT": (INVALID, INSERT, direct(exacts(), data=counts(1))),
    "direct counter DELETE": (INVALID, DELETE, direct(exacts(), data=counts(1))),
    "direct counter of no entry": (UNKNOWN, MODIFY, direct(exacts(TWO), data=counts(1))),
    "direct counter without counter": (INVALID, MODIFY, direct(entry("spread"), data=counts(1))),
    "meter INSERT": (INVALID, INSERT, cell("meter", "two_rates")),
    "meter DELETE": (INVALID, DELETE, cell("meter", "two_rates")),
    "meter index -1": (INVALID, MODIFY, cell("meter", "two_rates", -1)),
    "meter index too great": (OUT_OF_RANGE, MODIFY, cell("meter", "two_rates", 4)),
    "peak below committed": (INVALID, MODIFY, cell("meter", "two_rates", config=rates(2, 1))),
    "two rates with eburst": (INVALID, MODIFY, cell("meter", "two_rates", config=rates(1, 2, 3))),
    "three colours, two rates": (INVALID, MODIFY, cell("meter", "three_colors", config=rates(1, 2))),
    "three colours, eburst": (UNSUPPORTED, MODIFY, cell("meter", "three_colors", config=rates(1, 1, 3))),
    "two colours, two rates": (INVALID, MODIFY, cell("meter", "two_colors", config=rates(1, 2))),
    "two colours, eburst": (INVALID, MODIFY, cell("meter", "two_colors", config=rates(1, 1, 3))),
    "meter with colour counters": (UNSUPPORTED, MODIFY, cell("meter", "two_rates", counter_data=COLOURS)),
    "direct meter INSERT": (INVALID, INSERT, direct(exacts(), config=rates(1, 2))),
    "direct meter of no entry": (UNKNOWN, MODIFY, direct(exacts(TWO), config=rates(1, 2))),
    "direct meter with colour counters": (UNSUPPORTED, MODIFY, direct(exacts(), counter_data=COLOURS)),
    # sections 9.5 to 9.9: replication, value sets, registers, digests, externs
    "multicast group 0": (INVALID, INSERT, multicast(0, replica())),
    "multicast group twice": (EXISTS, INSERT, multicast(1)),
    "multicast group that is not there": (UNKNOWN, MODIFY, multicast(9)),
    "DELETE of a multicast group with nonsense": ("OK", DELETE, multicast(1, replica(b""), replica(b""))),
    "instance too great": (INVALID, INSERT, multicast(2, replica(instance=1 << 16))),
    "replica twice": (INVALID, INSERT, multicast(2, replica(), replica(b"\0\1"))),
    "replica without a port": (INVALID, INSERT, multicast(2, p4r.Replica())),
    "replica with an empty port": (OUT_OF_RANGE, INSERT, multicast(2, replica(b""))),
    "replica with a port of too many bits": (OUT_OF_RANGE, INSERT, multicast(2, replica(b"\2\0"))),
    "replica with too great a port": (INVALID, INSERT, multicast(2, p4r.Replica(egress_port=512))),
    "backup replica": (UNSUPPORTED, INSERT, multicast(2, replica(backup_replicas=[BEHIND]))),
    "clone session 0": (INVALID, INSERT, clone(0, replica())),
    "clone session of negative length": (INVALID, INSERT, clone(2, replica(), length=-1)),
    "clone session with a class": (UNSUPPORTED, INSERT, clone(2, replica(), class_of_service=1)),
    "neither group nor session": (INVALID, INSERT, p4r.Entity(packet_replication_engine_entry={})),
    "clone session twice": (EXISTS, INSERT, clone(1)),
    "clone session that is not there": (UNKNOWN, MODIFY, clone(9)),
    "DELETE of a clone session with nonsense": ("OK", DELETE, clone(1, replica(b""), length=-1)),
    "value set INSERT": (INVALID, INSERT, values(ONE)),
    "value set DELETE": (INVALID, DELETE, values(ONE)),
    "value set too full": (FULL, MODIFY, values(*(bytes([n]) for n in range(1, 6)))),
    "value set member twice": (EXISTS, MODIFY, values(ONE, b"\0\1")),
    "register index -1": (INVALID, MODIFY, register("numbers", ONE, -1)),
    "register index too great": (OUT_OF_RANGE, MODIFY, register("numbers", ONE, 4)),
    "register of another type": (INVALID, MODIFY, cell("register", "numbers")),
    "digest twice": (EXISTS, INSERT, digest()),
    "DELETE of a digest with nonsense": ("OK", DELETE, digest(max_list_size=-1)),
    "extern": (UNSUPPORTED, INSERT, p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=0x81))),
    # section 12
    "no type": (INVALID, p4r.Update.UNSPECIFIED, exacts(TWO, action=COUNTED)),
    "no entity": (INVALID, INSERT, p4r.Entity()),
}


def served() -> Device:
    """Return the program with some entities in it."""
    made = device(ORACLE)
    for entity in WRITTEN:
        made.write(p4r.Update(type=INSERT, entity=entity))
    return made


def answer(do: Callable[[Device], object]) -> object:
    """Return the result, or the code of a refusal."""
    try:
        return do(served())
    except Refused as refused:
        return refused.code.name


@pytest.mark.parametrize("name", WRITES)
def test_a_write_gets_its_code(name: str) -> None:
    code, kind, entity = WRITES[name]
    update = p4r.Update(type=kind, entity=entity)
    assert answer(lambda one: one.write(update)) == (None if code == "OK" else code)


# ------------------------------------------------------------ reads

DATA, CONFIG = p4r.CounterData(), p4r.MeterConfig()
READS: dict[str, tuple[p4r.Entity, list[p4r.Entity] | str]] = {
    "an entry by its key": (exacts(), [exacts(action=COUNTED)]),
    "a key that is not there": (exacts(TWO), []),
    "an entry with its direct resources": (
        exacts(counter_data=DATA, meter_config=CONFIG),
        [exacts(action=COUNTED, counter_data=counts(5), meter_config=rates(1, 2))],
    ),
    "entries with an action": (entry("exacts", action=COUNTED), [exacts(action=COUNTED)]),
    "entries with another action": (entry("exacts", action=NOTHING), []),
    "entries with metadata": (entry("exacts", metadata=b"x"), []),
    "the default entry": (default("keyless"), [default("keyless", action=NOTHING)]),
    "constant entries of a priority": (
        entry("constant", priority=1),
        [entry("constant", priority=1, action=call("constant_port", TWO), is_const=True)],
    ),
    "a one-shot set": (entry("spread"), [WRITTEN[7]]),
    "a member": (member("by_weight", 1), [member("by_weight", 1, TO_ONE)]),
    "all groups": (p4r.Entity(action_profile_group={}), [watching(ONE)]),
    "a direct counter": (direct(exacts(), data=DATA), [direct(exacts(), data=counts(5))]),
    "a direct counter of no entry": (direct(exacts(TWO), data=DATA), UNKNOWN),
    "a direct meter of no entry": (direct(exacts(TWO), config=CONFIG), UNKNOWN),
    "a counter's cell": (cell("counter", "single"), [cell("counter", "single", data=DATA)]),
    "all cells of a counter": (
        cell("counter", "packets", None),
        [cell("counter", "packets", index, data=DATA) for index in range(4)],
    ),
    "all counters": (
        p4r.Entity(counter_entry={"index": {"index": 3}}),
        [
            cell("counter", name, index, data=DATA)
            for name, size in (("packets", 4), ("single", 1))
            for index in range(size)
        ],
    ),
    "a meter that is not configured": (cell("meter", "two_rates"), [cell("meter", "two_rates")]),
    "a register's cells": (
        cell("register", "nines", None),
        [register("nines", ZERO, index) for index in range(2)],
    ),
    "a multicast group, whatever else is given": (multicast(1, replica(TWO)), [multicast(1, replica())]),
    "all clone sessions": (clone(0), [WRITTEN[9]]),
    "a value set": (values(ONE), [values()]),
    "a digest": (digest(), [digest(max_list_size=1)]),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_finds(name: str) -> None:
    pattern, found = READS[name]
    assert answer(lambda one: list(one.read(pattern))) == found


def written(one: Device, kind: p4r.Update.Type.ValueType, entity: p4r.Entity) -> None:
    one.write(p4r.Update(type=kind, entity=entity))


def to(port: int, priority: int, string: bytes = b"") -> p4r.Entity:
    action = call("constant_port", string or bytes([port]))
    return entry("constant", *([CONSTANT] if priority == 2 else []), priority=priority, action=action)


def test_entries_without_const_are_changed_like_others() -> None:
    one = device(ORACLE, variant(preinitialized=True))

    def ports() -> list[list[int]]:
        return [[port for port, _ in one.pipeline.inject(4, bytes([seven]) + bytes(20))] for seven in (1, 2)]

    def read() -> list[p4r.Entity]:
        return list(one.read(entry("constant")))

    assert (ports(), read()) == ([[1], [2]], [to(1, 2), to(2, 1)])
    written(one, MODIFY, to(3, 2))
    written(one, DELETE, to(2, 1))
    assert (ports(), read()) == ([[3], []], [to(3, 2)])
    written(one, INSERT, to(5, 1))
    written(one, INSERT, to(6, 9))
    assert (ports(), read()) == ([[6], [6]], [to(3, 2), to(5, 1), to(6, 9)])
    for priority in range(10, 10 + 1024 - 3):  # as many as the P4Info says
        written(one, INSERT, to(6, priority))
    with pytest.raises(Refused, match="full"):
        written(one, INSERT, to(6, 3))


def test_a_constant_table_without_entries_takes_none() -> None:
    p4info = SCHEMA.get_pipeline_config().p4info
    for table in p4info.tables:
        table.is_const_table |= table.preamble.alias == "exacts"
    with pytest.raises(Refused, match="constant entries only"):
        written(device(ORACLE, p4info), INSERT, exacts(action=COUNTED))


def test_a_deleted_initial_entry_frees_its_strings() -> None:
    one = device(ORACLE, variant(strings=True, preinitialized=True))
    free = (1 << 9) - 2  # the initial entries have the ports 1 and 2
    for number in range(free):
        written(one, INSERT, to(0, 10 + number, b"port %d" % number))
    with pytest.raises(Refused, match="all 512 values"):
        written(one, INSERT, to(0, 3, b"another"))
    written(one, DELETE, to(2, 1))
    written(one, INSERT, to(0, 3, b"another"))


def test_only_ports_of_the_switch_can_be_watched() -> None:
    one = served()
    one.pipeline.ports = {1, 4}
    for wrong in (watching(TWO), watching(ONE, old=2), entry("spread", action=shots(1, watch_port=TWO))):
        with pytest.raises(Refused, match="port 2 cannot be watched"):
            one.write(p4r.Update(type=MODIFY, entity=wrong))
    for right in (watching(ONE), entry("spread", action=shots(1, watch_port=ONE))):
        one.write(p4r.Update(type=MODIFY, entity=right))


def test_a_clone_is_cut_to_the_length_of_its_session() -> None:
    config = case("paths").schema.get_pipeline_config()
    one = Device.of(config, Pipeline.load(config.p4_device_config))
    one.write(p4r.Update(type=INSERT, entity=clone(1, replica(b"\3"), length=9)))
    to_session_1 = bytes.fromhex("8001") + bytes(60)
    assert [len(data) for port, data in one.pipeline.inject(2, to_session_1) if port == 3] == [9]


# ------------------------------------------------------------ RPCs as a whole

Kinds = p4r.GetForwardingPipelineConfigRequest
TELEPORT = JSON.read_bytes().replace(b'"op" : "mark_to_drop"', b'"op" : "teleport"')
PROGRAMS = dict.fromkeys((b"", b"{", b"[]", b"{}", b"\xff\x00", files("patch")[1].read_bytes()), ".")


def push(one: Client, action: int) -> Awaitable[object]:
    """Push no config."""
    request = Config(device_id=DEVICE, election_id=one.election_id, action=action)  # type: ignore[arg-type]
    return one.stub.SetForwardingPipelineConfig(request)


async def test_checks_of_an_rpc_come_in_order(server: Server) -> None:
    async with client(server, program=ORACLE) as one:
        assert not (await one.stub.GetForwardingPipelineConfig(Kinds(device_id=DEVICE))).HasField("config")
        await refused(one.stub.GetForwardingPipelineConfig(Kinds(device_id=99)), "NOT_FOUND")
        read = p4r.ReadRequest(device_id=99, entities=[exacts()])
        await refused(one.stub.Read(read).read(), "NOT_FOUND")
        await refused(one.write(role="nobody"), "NOT_FOUND")
        verify = Config(device_id=DEVICE, role="nobody", action=Config.VERIFY)
        await refused(one.stub.SetForwardingPipelineConfig(verify), "NOT_FOUND")
        await refused(one.write(), "PERMISSION_DENIED")
        await refused(one.set_pipeline(Config.VERIFY), "PERMISSION_DENIED")
        await one.arbitrate()
        await refused(one.write(), "FAILED_PRECONDITION")
        await refused(one.read(exacts()), "FAILED_PRECONDITION")


async def test_a_push_with_and_without_a_config(oracle: Client) -> None:
    for action in (Config.VERIFY, Config.VERIFY_AND_SAVE, Config.VERIFY_AND_COMMIT):
        await refused(push(oracle, action), "INVALID_ARGUMENT")
    await refused(push(oracle, Config.COMMIT), "NOT_FOUND")
    await oracle.set_pipeline(Config.VERIFY_AND_SAVE)
    commit = Config(device_id=DEVICE, election_id=oracle.election_id, action=Config.COMMIT)
    commit.config.cookie.cookie = 1
    await refused(oracle.stub.SetForwardingPipelineConfig(commit), "INVALID_ARGUMENT")
    await refused(oracle.set_pipeline(Config.RECONCILE_AND_COMMIT), "UNIMPLEMENTED")


async def test_a_config_that_cannot_be_realized_changes_nothing(router: Client) -> None:
    await router.write(update("INSERT", to_port(1)))
    for json, words in {**PROGRAMS, TELEPORT: "teleport"}.items():
        for action in (Config.VERIFY, Config.VERIFY_AND_COMMIT):
            await refused(router.set_pipeline(action, json), "INVALID_ARGUMENT", words)
    for wrong in (0, SCHEMAS[ROUTER].p4info.tables[1].preamble.id):
        p4info = SCHEMAS[ROUTER].get_pipeline_config().p4info
        p4info.tables[0].preamble.id = wrong
        await refused(router.set_pipeline(Config.VERIFY, p4info=p4info), "INVALID_ARGUMENT")
    assert len(await router.read(P4TableEntry("bridge"))) == 1


async def test_programs_are_verified_saved_written_and_committed(router: Client) -> None:
    pipelines, packet = router.server.pipelines, A.to_bytes(6, "big") + bytes(60)
    assert await router.write(update("INSERT", to_port(1))) == []
    await router.set_pipeline(Config.VERIFY)
    await router.set_pipeline(Config.VERIFY_AND_SAVE, cookie=5)
    assert await router.read(P4TableEntry("bridge")) == []
    assert await router.write(update("INSERT", to_port(5))) == []
    assert len(pipelines) == 1
    assert pipelines[0].inject(2, packet) == [(1, packet)]
    await router.set_pipeline(Config.COMMIT)
    assert pipelines[1].inject(2, packet) == [(5, packet)]
    for kind, p4info, blob in (
        (Kinds.ALL, True, True),
        (Kinds.COOKIE_ONLY, False, False),
        (Kinds.P4INFO_AND_COOKIE, True, False),
        (Kinds.DEVICE_CONFIG_AND_COOKIE, False, True),
    ):
        request = Kinds(device_id=DEVICE, response_type=kind)
        config = (await router.stub.GetForwardingPipelineConfig(request)).config
        assert config.cookie.cookie == 5
        assert (config.HasField("p4info"), bool(config.p4_device_config)) == (p4info, blob)


async def test_the_ports_of_the_switch_are_known_before_a_program_runs(server: Server) -> None:
    async with client(server, program=ORACLE) as one:
        server.config.ports = (1,)
        await one.arbitrate()
        await one.set_pipeline(Config.VERIFY_AND_SAVE)
        wrong, right = (entry("spread", action=shots(1, watch_port=port)) for port in (TWO, ONE))
        updates = (p4r.Update(type=INSERT, entity=entity) for entity in (wrong, right))
        assert codes(await one.write(*updates)) == ["INVALID_ARGUMENT", "OK"]


async def test_an_all_or_none_batch_names_the_update_that_fails(oracle: Client) -> None:
    """Also where the update names a cell that is not there, so that its cells cannot be counted."""
    for wrong in (cell("meter", "two_rates", 4), p4r.Entity(meter_entry={})):
        updates = [p4r.Update(type=MODIFY, entity=entity) for entity in (register("numbers", ONE), wrong)]
        errors = await oracle.write(*updates, atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
        assert errors[1].canonical_code in (5, 11)
        assert await oracle.read(register("numbers", ZERO)) == [register("numbers", ZERO)]


async def test_an_all_or_none_batch_that_fails_keeps_times_of_hits() -> None:
    config, now_us = SCHEMA.get_pipeline_config(), 0
    one = Device.of(config, Pipeline.load(config.p4_device_config), lambda: now_us)
    written(one, INSERT, exacts(action=COUNTED, idle_timeout_ns=10**9))
    now_us = 900_000
    for kind in (DELETE, MODIFY):
        request = p4r.WriteRequest(atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR)
        request.updates.add(type=kind, entity=exacts(action=COUNTED))
        request.updates.add(type=DELETE, entity=exacts(TWO))
        assert all(await Batch(one, Scope()).write(request))
        [found] = one.read(exacts(time_since_last_hit=p4r.TableEntry.IdleTimeout()))
        assert found.table_entry.time_since_last_hit.elapsed_ns == 900_000_000
    now_us = 1_000_000
    assert [len(idle) for idle, _ in [one.expired(9)]] == [1]


# ------------------------------------------------------------ arbitration


async def say(one: Client, election_id: int, device_id: int = DEVICE, role: p4r.Role | None = None) -> None:
    update = p4r.MasterArbitrationUpdate(device_id=device_id, election_id=U128.encode(election_id), role=role)
    await one.stream.write(p4r.StreamMessageRequest(arbitration=update))


async def test_a_stream_keeps_its_device_and_its_role(server: Server) -> None:
    for device_id, role in ((99, None), (DEVICE, p4r.Role(name="other"))):
        async with client(server) as one:
            await one.arbitrate()
            await say(one, 1, device_id, role)
            await refused(one.hear(), "FAILED_PRECONDITION")


async def test_arbitrations_that_the_specification_forbids_end_the_stream(server: Server) -> None:
    foreign = AnyMessage(type_url="type.googleapis.com/p4.v1.Entity")
    async with client(server, 1) as one, client(server, 2) as two, client(server, 1) as same:
        await one.arbitrate()
        await refused(same.arbitrate(), "INVALID_ARGUMENT", "election id 1 belongs to another open stream")
        await two.arbitrate()
        await say(two, 1)
        await refused(two.hear(), "INVALID_ARGUMENT")
    async with client(server) as three, client(server) as lost:
        await say(three, 1, role=p4r.Role(name="own", config=foreign))
        await refused(three.hear(), "INVALID_ARGUMENT")
        await refused(lost.arbitrate(device=99), "NOT_FOUND")


async def test_the_new_stream_of_a_client_may_arrive_before_the_end_of_its_old_one(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_ENDING_S", 60)
    async with client(server, 5) as old, client(server, 5) as new, client(server, 6) as other:
        assert (await old.arbitrate()).status.code == 0
        arbitrating = asyncio.ensure_future(new.arbitrate())
        assert (await other.arbitrate()).status.code == 0
        other.stream.cancel()  # the end of another client's stream changes nothing
        old.stream.cancel()
        update = await arbitrating  # a backup: ALREADY_EXISTS, or NOT_FOUND once the other has left
        assert (update.status.code in (5, 6), U128.decode(update.election_id)) == (True, 6)


async def test_election_ids_belong_to_a_role(server: Server) -> None:
    async with client(server, load=True, program=ORACLE) as one, client(server) as other:
        await say(other, 1, role=p4r.Role(name="second"))
        assert (await other.hear()).status.code == 0
        change = p4r.Update(type=MODIFY, entity=register("numbers", ONE))
        assert await one.write(change) == await other.write(change, role="second") == []
        async with client(server, 2) as newer:
            await newer.arbitrate()
            assert (await one.hear()).status.code == 6
            await refused(one.write(change), "PERMISSION_DENIED")
            assert await other.write(change, role="second") == []


async def test_whom_an_arbitration_concerns(server: Server) -> None:
    """The messages of a role come in the order of its arbitrations, so a missing one is noticed."""

    def said(update: p4r.MasterArbitrationUpdate) -> tuple[int, int | None]:
        known = update.HasField("election_id")
        return update.status.code, U128.decode(update.election_id) if known else None

    async with client(server, None) as idle, client(server, 5) as one, client(server, 3) as backup:
        assert said(await idle.arbitrate()) == (5, None)  # nobody has been primary yet
        async with client(server, 0) as zero:
            assert said(await zero.arbitrate()) == (0, 0)  # 0 is an id, unlike an unset id
            assert said(await idle.hear()) == (6, 0)
        assert said(await idle.hear()) == (5, 0)
        assert said(await one.arbitrate()) == (0, 5)
        assert said(await idle.hear()) == (6, 5)
        assert said(await backup.arbitrate()) == (6, 5)  # only the new backup is told
        await say(one, 5)  # stays primary: all are told again
        assert said(await one.hear()) == (0, 5)
        assert said(await idle.hear()) == said(await backup.hear()) == (6, 5)
        await say(one, 4)  # gives way: all are told, and nobody is primary
        for each in (one, idle, backup):
            assert said(await each.hear()) == (5, 5)
        await say(one, 7)
        assert said(await one.hear()) == (0, 7)
        assert said(await idle.hear()) == said(await backup.hear()) == (6, 7)
        one.stream.cancel()  # the primary leaves: all are told, and nobody is primary
        assert said(await idle.hear()) == said(await backup.hear()) == (5, 7)
        await refused(backup.write(), "PERMISSION_DENIED")
        assert said(await backup.arbitrate(6)) == (5, 7)
        assert said(await backup.arbitrate(7)) == (0, 7)


# ------------------------------------------------------------ the page


def test_the_page_names_tests_that_exist() -> None:
    tables = {"test_a_write_gets_its_code": WRITES, "test_a_read_finds": READS}
    defined: dict[str, set[str]] = {}
    unknown = []
    for path, function, row in re.findall(r"`(tests/[^:`]+)::(\w+)(?:\[([^`]+)\])?`", PAGE.read_text()):
        if path not in defined:
            nodes = ast.walk(ast.parse((ROOT / path).read_text())) if (ROOT / path).exists() else ()
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
            defined[path] = {node.name for node in nodes if isinstance(node, kinds)}
        if function not in defined[path] or (row and row not in tables[function]):
            unknown.append(f"{path}::{function}[{row}]")
    assert unknown == []


def test_the_page_counts_its_clauses() -> None:
    page = PAGE.read_text()
    clauses = re.findall(r"^\| (?:[\d.]+|Appendix) \| \w+ \| .* \| (.*) \|$", page, re.MULTILINE)
    tested, unsupported, different = (
        sum(clause.startswith(start) for clause in clauses)
        for start in ("tested by `", "not supported: answers UNIMPLEMENTED, tested by `", "differs because ")
    )
    assert f"has {len(clauses)} clauses: {tested} are tested, {unsupported} are not supported" in page
    assert f"in {different} the switch differs" in page
    assert tested + unsupported + different == len(clauses) > 200


def test_the_page_names_every_case() -> None:
    named = set(re.findall(r"::\w+\[([^`]+)\]`", PAGE.read_text()))
    assert named == WRITES.keys() | READS.keys()
