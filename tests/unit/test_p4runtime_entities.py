# SPDX-License-Identifier: Apache-2.0
"""Every kind of entity: writes, refusals, reads that return the written value, and the effect on packets."""

from __future__ import annotations

import finsy as fy
import pytest
from finsy.p4entity import P4ValueSetMember
from finsy.proto import p4r
from p4runtime_clients import ENTITIES, SCHEMAS, B, Client, Server, codes, update
from p4runtime_entities import (
    EVERYTHING,
    GROUP,
    MEMBERS,
    MODIFIED,
    RATES,
    WRITTEN,
    frame,
    host,
    policy,
    port,
    spread,
    write,
)


async def test_what_is_written_is_read_back(server: Server) -> None:
    async with server.finsy(ENTITIES) as switch:
        await switch.write([*(+entity for entity in WRITTEN), *(~entity for entity in MODIFIED)])
        found = [str(e.encode(SCHEMAS[ENTITIES])) async for e in switch.read(EVERYTHING)]
        expected = [str(entity.encode(SCHEMAS[ENTITIES])) for entity in WRITTEN]
        assert sorted(found) == sorted(expected)
        for entity in MODIFIED:
            [read] = [e async for e in switch.read([entity])]
            assert str(read.encode(SCHEMAS[ENTITIES])) == str(entity.encode(SCHEMAS[ENTITIES]))
        await switch.delete(list(reversed(WRITTEN)))
        assert [e async for e in switch.read(EVERYTHING)] == []


async def test_groups_and_one_shot_sets_spread_packets(entities: Client) -> None:
    [pipeline] = entities.server.pipelines

    def leaves() -> set[int]:
        return {out for source in range(64) for out, _ in pipeline.inject(5, frame(source))}

    group = spread(fy.P4IndirectAction(group_id=1))
    await write(entities, *(("INSERT", entity) for entity in (*MEMBERS, GROUP, group)))
    assert leaves() == {1, 2}
    shot = fy.P4IndirectAction([(1, port(3)), (2, port(4))])
    assert await write(entities, ("MODIFY", spread(shot))) == ["INVALID_ARGUMENT"]
    clear = [("DELETE", entity) for entity in (group, GROUP, *MEMBERS)]
    assert await write(entities, *clear) == []
    assert await write(entities, ("INSERT", spread(shot))) == []
    assert leaves() == {3, 4}
    assert await write(entities, ("INSERT", MEMBERS[0])) == ["INVALID_ARGUMENT"]
    assert await entities.read(fy.P4TableEntry("spread")) == [spread(shot).encode(SCHEMAS[ENTITIES])]
    assert await write(entities, ("DELETE", spread(shot)), ("INSERT", MEMBERS[0])) == []


def raw_group(weight: int = 1, **fields: object) -> p4r.Entity:
    encoded = GROUP.encode(SCHEMAS[ENTITIES])
    encoded.action_profile_group.group_id = 2
    for member in encoded.action_profile_group.members:
        member.weight = weight
    for name, value in fields.items():
        setattr(encoded.action_profile_group, name, value)
    return encoded


def next_hops(*members: int, max_size: int = 9) -> fy.P4ActionProfileGroup:
    weighed = [fy.P4Member(member, weight=1) for member in members]
    return fy.P4ActionProfileGroup("next_hops", group_id=1, max_size=max_size, members=weighed)


def marked_types(*members: int) -> fy.P4ValueSetEntry:
    return fy.P4ValueSetEntry("marked_types", members=[P4ValueSetMember(member) for member in members])


def copies(kind: str = "multicast", *replicas: p4r.Replica, **fields: object) -> p4r.Entity:
    """Return multicast group or clone session 5."""
    entity = p4r.Entity()
    entry = entity.packet_replication_engine_entry
    if kind == "multicast":
        entry.multicast_group_entry.MergeFrom(
            p4r.MulticastGroupEntry(multicast_group_id=6, replicas=replicas, **fields)  # type: ignore[arg-type]
        )
    else:
        entry.clone_session_entry.MergeFrom(
            p4r.CloneSessionEntry(session_id=6, replicas=replicas, **fields)  # type: ignore[arg-type]
        )
    return entity


REPLICA = p4r.Replica(port=b"\1", instance=1)
BACKED_UP = p4r.Replica(port=b"\1", backup_replicas=[p4r.BackupReplica(port=b"\2")])
SLOW_PEAK = fy.P4MeterConfig(cir=9, cburst=1, pir=1, pburst=1)
NO_COPIES = p4r.PacketReplicationEngineEntry()
COLOURS = p4r.MeterEntry(meter_id=1, counter_data=p4r.MeterCounterData())
OF_A_GROUP = fy.P4IndirectAction(group_id=1)
PROFILE_CASES = {
    "ALREADY_EXISTS": {
        "member again": ("INSERT", MEMBERS[0]),
        "group again": ("INSERT", GROUP),
        "digest again": ("INSERT", WRITTEN[-1]),
        "value set member twice": ("MODIFY", marked_types(1, 1)),
    },
    "NOT_FOUND": {
        "unknown member": ("MODIFY", fy.P4ActionProfileMember("next_hops", member_id=9, action=port(1))),
        "group of a stranger": ("MODIFY", next_hops(8)),
        "unknown profile": ("INSERT", raw_group(action_profile_id=5)),
        "colours": ("MODIFY", p4r.Entity(meter_entry=COLOURS)),
    },
    "INVALID_ARGUMENT": {
        "member 0": ("INSERT", fy.P4ActionProfileMember("next_hops", action=port(1))),
        "member without action": ("INSERT", fy.P4ActionProfileMember("next_hops", member_id=7)),
        "another max_size": ("MODIFY", next_hops(1, max_size=8)),
        "member twice": ("MODIFY", next_hops(1, 1)),
        "no weight": ("INSERT", raw_group(0)),
        "group 0": ("INSERT", raw_group(group_id=0)),
        "an action in an indirect table": (
            "INSERT",
            fy.P4TableEntry("spread", match=fy.P4TableMatch(destination=(B, 48)), action=port(1)),
        ),
        "a group without selector": (
            "INSERT",
            fy.P4TableEntry("classified", match=fy.P4TableMatch(type=6), action=OF_A_GROUP),
        ),
        "an idle default": ("MODIFY", fy.P4TableEntry("hosts", is_default_action=True, idle_timeout_ns=5)),
        "replica without a port": ("INSERT", copies("multicast", p4r.Replica(instance=1))),
        "replica twice": ("INSERT", copies("multicast", REPLICA, p4r.Replica(port=b"\0\1", instance=1))),
        "wide instance": ("INSERT", copies("clone", p4r.Replica(port=b"\1", instance=1 << 16))),
        "negative length": ("INSERT", copies("clone", REPLICA, packet_length_bytes=-1)),
        "no group and no session": ("INSERT", p4r.Entity(packet_replication_engine_entry=NO_COPIES)),
        "peak below committed": ("MODIFY", fy.P4MeterEntry("rates", index=1, config=SLOW_PEAK)),
    },
    "FAILED_PRECONDITION": {"member in use": ("DELETE", MEMBERS[0]), "group in use": ("DELETE", GROUP)},
    "PERMISSION_DENIED": {
        "a default of an indirect table": (
            "MODIFY",
            fy.P4TableEntry("spread", action=fy.P4TableAction("drop"), is_default_action=True),
        ),
    },
    "OUT_OF_RANGE": {
        "replica's wide port": ("INSERT", copies("multicast", p4r.Replica(port=b"\2\0"))),
        "replica's empty port": ("INSERT", copies("multicast", p4r.Replica(port=b""))),
        "a port beyond the program's": ("INSERT", policy(port(1), ingress=512)),
        "meter index": ("MODIFY", fy.P4MeterEntry("rates", index=8, config=RATES)),
    },
    "UNIMPLEMENTED": {
        "backup replicas": ("INSERT", copies("multicast", BACKED_UP)),
        "class of service": ("INSERT", copies("clone", REPLICA, class_of_service=1)),
    },
    "RESOURCE_EXHAUSTED": {
        "too heavy": ("INSERT", raw_group(max_size=1)),
        "value set too full": ("MODIFY", marked_types(*range(5))),
    },
}


async def test_what_the_specification_forbids_is_refused_and_changes_nothing(entities: Client) -> None:
    await write(entities, *(("INSERT", entity) for entity in WRITTEN))
    before = await entities.read(*EVERYTHING)
    for code, cases in PROFILE_CASES.items():
        for name, case in cases.items():
            assert (name, codes(await entities.write(update(*case, ENTITIES)))) == (name, [code])
    assert await entities.read(*EVERYTHING) == before


async def test_ports_of_replicas_are_read_in_canonical_form(entities: Client) -> None:
    written = [p4r.Replica(port=b"\0\0\x05", instance=2), p4r.Replica(egress_port=6)]
    canonical = [p4r.Replica(port=b"\x05", instance=2), p4r.Replica(egress_port=6)]
    for kind, fields in (("multicast", {"metadata": b"mine"}), ("clone", {"packet_length_bytes": 1 << 20})):
        update_ = p4r.Update(type=p4r.Update.INSERT, entity=copies(kind, *written, **fields))
        assert await entities.write(update_) == []
        assert await entities.read(copies(kind)) == [copies(kind, *canonical, **fields)]
        update_ = p4r.Update(type=p4r.Update.DELETE, entity=copies(kind, p4r.Replica()))
        assert await entities.write(update_) == []  # replicas do not matter


async def test_counters_keep_their_values_without_data(entities: Client) -> None:
    five, zero = (
        fy.P4CounterEntry("arrivals", index=1, data=fy.P4CounterData(packet_count=n)) for n in (5, 0)
    )
    assert await write(entities, ("MODIFY", five)) == []
    unchanged = [five.encode(SCHEMAS[ENTITIES]) for _ in range(2)]
    unchanged[0].counter_entry.ClearField("data")
    unchanged[1].counter_entry.ClearField("data")
    unchanged[1].counter_entry.ClearField("index")
    assert await entities.write(*(p4r.Update(type=p4r.Update.MODIFY, entity=one) for one in unchanged)) == []
    assert await entities.read(five) == [five.encode(SCHEMAS[ENTITIES])]
    assert await write(entities, ("MODIFY", zero)) == []
    assert await entities.read(five) == [zero.encode(SCHEMAS[ENTITIES])]


async def test_all_cells_are_read_without_an_id(entities: Client) -> None:
    pattern = p4r.Entity(counter_entry=p4r.CounterEntry(index=p4r.Index(index=3)))
    assert len(await entities.read(pattern)) == 8


async def test_meters_come_with_entries_and_turn_green_again(entities: Client) -> None:
    [pipeline] = entities.server.pipelines
    any_meter = fy.P4MeterConfig(cir=0, cburst=0, pir=0, pburst=0)
    wish = fy.P4TableEntry("hosts", meter_config=any_meter, counter_data=fy.P4CounterData())
    counted = [fy.P4CounterData(packet_count=count) for count in (1, 8)]
    await write(entities, ("INSERT", host(3, meter_config=RATES, counter_data=counted[1])))
    for _ in range(2):
        assert pipeline.inject(1, frame()) == [(3, frame())]
    [entry] = await entities.read(wish)
    assert entry.table_entry.meter_config == RATES.encode()
    assert entry.table_entry.counter_data.packet_count == 10
    [direct] = await entities.read(fy.P4DirectMeterEntry(table_entry=host(3)))
    assert direct.direct_meter_entry.config == RATES.encode()
    await write(entities, ("MODIFY", host(4)))  # as the specification says: the counter stays, the meter not
    [entry] = await entities.read(wish)
    assert not entry.table_entry.HasField("meter_config")
    assert entry.table_entry.counter_data.packet_count == 10
    await write(entities, ("MODIFY", fy.P4DirectMeterEntry(table_entry=host(4), config=RATES)))
    await write(entities, ("MODIFY", fy.P4DirectCounterEntry(table_entry=host(4), data=counted[0])))
    [entry] = await entities.read(wish)
    assert entry.table_entry.meter_config == RATES.encode()
    assert entry.table_entry.counter_data.packet_count == 1


@pytest.mark.parametrize("atomicity", [p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC])
async def test_a_batch_is_done_as_a_whole_or_not_at_all(entities: Client, atomicity: int) -> None:
    await write(entities, *(("INSERT", entity) for entity in WRITTEN))
    await write(entities, *(("MODIFY", entity) for entity in MODIFIED))
    counters = (fy.P4CounterEntry(), fy.P4RegisterEntry(), fy.P4MeterEntry(), fy.P4DirectCounterEntry())
    before = await entities.read(*EVERYTHING, *counters)
    changes = [
        ("MODIFY", host(9, counter_data=fy.P4CounterData(packet_count=77))),
        ("DELETE", WRITTEN[6]),
        ("DELETE", GROUP),
        ("DELETE", MEMBERS[0]),
        ("INSERT", fy.P4MulticastGroupEntry(9, replicas=[1])),
        ("MODIFY", fy.P4RegisterEntry("sizes", data=6)),
        ("MODIFY", fy.P4CounterEntry("arrivals", data=fy.P4CounterData(packet_count=99))),
        ("MODIFY", fy.P4TableEntry("policy", action=port(3), is_default_action=True)),
        ("DELETE", WRITTEN[-1]),
    ]
    failed = await write(entities, *changes, ("DELETE", fy.P4MulticastGroupEntry(99)), atomicity=atomicity)
    assert failed == ["ABORTED"] * len(changes) + ["NOT_FOUND"]
    after = await entities.read(*EVERYTHING, *counters)
    assert sorted(map(str, after)) == sorted(map(str, before))
    assert await write(entities, *changes, atomicity=atomicity) == []
    assert len(await entities.read(fy.P4MulticastGroupEntry())) == 2
