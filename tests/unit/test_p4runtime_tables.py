# SPDX-License-Identifier: Apache-2.0
"""Tables, action profiles and value sets over P4Runtime: one device in this process, without gRPC."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

import finsy as fy
import pytest
from finsy.p4entity import P4ValueSetMember
from finsy.proto import p4i, p4r
from p4runtime_clients import ENTITIES, SCHEMAS, A, Config, Server, client, files
from p4runtime_entities import GROUP, MEMBERS, RATES, host, port, spread, write

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Code, Refused
from railweave.switch.pipeline import Pipeline

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
SCHEMA = SCHEMAS[ENTITIES]
ONE_SHOT = spread(fy.P4IndirectAction([(1, port(3)), (2, port(4))]))
Entity: TypeAlias = "fy.P4Entity | p4r.Entity"


def device(change: Callable[[p4i.P4Info], object] = bool, program: bytes | None = None) -> Device:
    config = fy.P4Schema(*files(ENTITIES)).get_pipeline_config()
    change(config.p4info)
    return Device.of(config, Pipeline.load(program or config.p4_device_config))


def encode(entity: Entity) -> p4r.Entity:
    return entity if isinstance(entity, p4r.Entity) else entity.encode(SCHEMA)


def update(to: Device, kind: p4r.Update.Type.ValueType, *entities: Entity) -> None:
    for entity in entities:
        to.write(p4r.Update(type=kind, entity=encode(entity)))


def refusal(to: Device, kind: p4r.Update.Type.ValueType, entity: Entity) -> Code:
    with pytest.raises(Refused) as refused:
        update(to, kind, entity)
    return refused.value.code


def read(of: Device, pattern: Entity) -> list[p4r.Entity]:
    return list(of.read(encode(pattern)))


def entry(**fields: object) -> p4r.Entity:
    """Return an entry of `hosts` with some fields replaced."""
    entity = host(3, metadata=b"mine").encode(SCHEMA)
    entity.table_entry.MergeFrom(p4r.TableEntry(**fields))  # type: ignore[arg-type]
    return entity


@pytest.mark.parametrize("kind", [INSERT, MODIFY, DELETE])
def test_is_const_is_refused_in_writes(kind: p4r.Update.Type.ValueType) -> None:
    one = device()
    if kind != INSERT:
        update(one, INSERT, entry())
    assert refusal(one, kind, entry(is_const=True)) is Code.INVALID_ARGUMENT


def test_delete_looks_at_the_key_only() -> None:
    one = device()
    elapsed = p4r.TableEntry.IdleTimeout(elapsed_ns=1)
    assert refusal(one, INSERT, entry(time_since_last_hit=elapsed)) is Code.INVALID_ARGUMENT
    update(one, INSERT, entry())
    nonsense = entry(time_since_last_hit=elapsed, idle_timeout_ns=-1)
    nonsense.table_entry.action.action_profile_member_id = 7
    update(one, DELETE, nonsense)
    assert read(one, fy.P4TableEntry()) == []


def test_an_action_that_the_table_lacks_is_an_invalid_argument() -> None:
    one, unknown = device(), entry()
    unknown.table_entry.action.action.action_id = 99
    assert refusal(one, INSERT, unknown) is Code.INVALID_ARGUMENT


def test_a_table_without_key_takes_no_entries() -> None:
    program = json.loads(files(ENTITIES)[1].read_bytes())
    tables = [table for pipeline in program["pipelines"] for table in pipeline["tables"]]
    [table] = [table for table in tables if table["name"] == "EntitiesIngress.sources"]
    table["key"] = []
    one = device(lambda p4info: p4info.tables[1].ClearField("match_fields"), json.dumps(program).encode())
    learn = fy.P4TableEntry("sources", action=fy.P4TableAction("learn"))
    assert refusal(one, INSERT, learn) is Code.INVALID_ARGUMENT
    learn.is_default_action = True
    update(one, MODIFY, learn)


def test_modify_without_an_action_changes_only_direct_resources() -> None:
    one = device()
    update(one, INSERT, entry(idle_timeout_ns=10**12, meter_config=RATES.encode()))
    counted = fy.P4CounterData(packet_count=5, byte_count=6).encode()
    bare = entry(counter_data=counted)
    bare.table_entry.ClearField("action")
    bare.table_entry.ClearField("metadata")
    update(one, MODIFY, bare)
    wish = entry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
    expected = entry(idle_timeout_ns=10**12, counter_data=counted)  # the meter is green again
    assert read(one, wish) == [expected]
    bare.table_entry.match[0].exact.value = b"\1"
    assert refusal(one, MODIFY, bare) is Code.NOT_FOUND


def group(*watched: bytes) -> p4r.Entity:
    """Return a group, each of whose members watches a port."""
    message = p4r.ActionProfileGroup(
        action_profile_id=SCHEMA.action_profiles["next_hops"].id, group_id=1, max_size=9
    )
    for number, name in enumerate(watched, 1):
        message.members.add(member_id=number, weight=1, watch_port=name)
    return p4r.Entity(action_profile_group=message)


def one_shot(*watched: bytes) -> p4r.Entity:
    """Return an entry with a one-shot set, each of whose actions watches a port."""
    entity = ONE_SHOT.encode(SCHEMA)
    parts = entity.table_entry.action.action_profile_action_set.action_profile_actions
    for part, name in zip(parts, watched, strict=False):
        part.watch_port = name
    return entity


def test_only_ports_of_the_switch_can_be_watched() -> None:
    one = device()
    one.pipeline.ports = {1, 2}
    assert refusal(one, INSERT, one_shot(b"\3")) is Code.INVALID_ARGUMENT
    update(one, INSERT, one_shot(b"\1", b"\2"))
    update(one, DELETE, one_shot())
    update(one, INSERT, *MEMBERS)
    assert refusal(one, INSERT, group(b"\1", b"\3")) is Code.INVALID_ARGUMENT
    update(one, INSERT, group(b"\1", b"\2", b""))
    assert refusal(one, MODIFY, group(b"\0")) is Code.INVALID_ARGUMENT


async def test_the_ports_of_the_switch_are_known_before_a_program_runs(server: Server) -> None:
    async with client(server, program=ENTITIES) as one:
        server.config.ports = (4,)
        await one.arbitrate()
        await one.set_pipeline(Config.VERIFY_AND_SAVE)
        refused = ("INSERT", spread(fy.P4IndirectAction([((1, 5), port(3))])))
        assert await write(one, refused) == ["INVALID_ARGUMENT"]
        assert await write(one, ("INSERT", spread(fy.P4IndirectAction([((1, 4), port(3))])))) == []


def test_bytes_are_read_back_in_canonical_form() -> None:
    one = device()
    padded = one_shot(b"\0\1", b"\2")
    sets = padded.table_entry.action.action_profile_action_set
    sets.action_profile_actions[0].action.params[0].value = b"\0\3"
    update(one, INSERT, padded)
    assert read(one, ONE_SHOT) == [one_shot(b"\1", b"\2")]
    update(one, DELETE, ONE_SHOT)
    update(one, INSERT, *MEMBERS, group(b"\0\1", b"\0\0\2"))
    assert read(one, fy.P4ActionProfileGroup()) == [group(b"\1", b"\2")]
    types = fy.P4ValueSetEntry("marked_types", members=[P4ValueSetMember(5)]).encode(SCHEMA)
    expected = p4r.Entity.FromString(types.SerializeToString())
    types.value_set_entry.members[0].match[0].exact.value = b"\0\5"
    update(one, MODIFY, types)
    assert read(one, types) == [expected]


def test_the_mode_of_a_one_shot_set_is_read_back() -> None:
    one, entity = device(), ONE_SHOT.encode(SCHEMA)
    given = entity.table_entry.action.action_profile_action_set
    given.action_selection_mode = given.HASH
    given.size_semantics = given.SUM_OF_WEIGHTS
    update(one, INSERT, entity)
    assert read(one, ONE_SHOT) == [entity]
    given.action_selection_mode = given.RANDOM
    assert refusal(one, MODIFY, entity) is Code.UNIMPLEMENTED


def test_the_deprecated_field_of_a_watched_port_is_read_back() -> None:
    one, old = device(), group(b"")
    old.action_profile_group.members[0].watch = 4
    update(one, INSERT, *MEMBERS, old)
    assert read(one, fy.P4ActionProfileGroup()) == [old]
    one.pipeline.set_port_up(4, up=False)
    update(one, INSERT, spread(fy.P4IndirectAction(group_id=1)))
    assert one.pipeline.inject(5, A.to_bytes(6, "big") + bytes(60)) == []


def test_the_size_of_a_group_is_what_the_selector_counts() -> None:
    def count_members(p4info: p4i.P4Info) -> None:
        p4info.action_profiles[0].sum_of_members.max_member_weight = 7

    heavy = GROUP.encode(SCHEMA)
    heavy.action_profile_group.max_size = 2
    heavy.action_profile_group.members[0].weight = 7
    weights, members = device(), device(count_members)
    for one in (weights, members):
        update(one, INSERT, *MEMBERS)
    assert refusal(weights, INSERT, heavy) is Code.RESOURCE_EXHAUSTED
    update(members, INSERT, heavy)
    heavy.action_profile_group.members[0].weight = 8
    assert refusal(members, MODIFY, heavy) is Code.INVALID_ARGUMENT


def test_an_empty_group_also_rules_out_one_shot_sets() -> None:
    one = device()
    update(one, INSERT, group())
    assert refusal(one, INSERT, ONE_SHOT) is Code.INVALID_ARGUMENT
    update(one, DELETE, group())
    update(one, INSERT, ONE_SHOT)
    assert refusal(one, INSERT, group()) is Code.INVALID_ARGUMENT
