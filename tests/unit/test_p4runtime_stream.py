# SPDX-License-Identifier: Apache-2.0
"""Messages on streams: packets, digests, idle entries, and their receivers when roles divide the switch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from finsy import (
    P4DigestEntry,
    P4DigestListAck,
    P4PacketOut,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from finsy.proto import p4i, p4r, stratum
from google.protobuf.any_pb2 import Any
from hypothesis import given
from hypothesis import strategies as st
from p4runtime_clients import DEVICE, ENTITIES, SCHEMAS, A, B, Client, Server, client, codes, device, update

from railweave.switch.p4runtime.digests import Digests
from railweave.switch.p4runtime.errors import Refused
from railweave.switch.p4runtime.packet_io import ControllerHeader
from railweave.switch.p4runtime.schema import Schema
from railweave.switch.pipeline import Digest, Pipeline

SCHEMA = SCHEMAS[ENTITIES]
FRAME = A.to_bytes(6, "big") + B.to_bytes(6, "big") + b"\x12\x34" + bytes(50)
TO_CONTROLLER = P4TableEntry(
    "policy",
    match=P4TableMatch(marked=0),
    action=P4TableAction("to_controller", reason=9),
    priority=1,
)
LEARN = P4TableEntry("sources", action=P4TableAction("learn"), is_default_action=True)
HOST = P4TableEntry(
    "hosts", match=P4TableMatch(destination=A), action=P4TableAction("host_port", port=3), idle_timeout_ns=1
)


async def hear(one: Client, kind: str) -> p4r.StreamMessageResponse:
    response = await one.stream.read()
    assert isinstance(response, p4r.StreamMessageResponse)
    assert response.WhichOneof("update") == kind
    return response


async def test_packets_go_to_the_controller_and_come_from_it(server: Server) -> None:
    async with server.finsy(ENTITIES) as switch:
        [pipeline] = server.pipelines
        sent: list[tuple[int, bytes]] = []
        pipeline.connect(lambda port, packet: sent.extend(pipeline.inject(port, packet)))
        await switch.insert([TO_CONTROLLER])
        heard = asyncio.ensure_future(anext(switch.read_packets()))
        await asyncio.sleep(0)
        assert pipeline.inject(5, FRAME) == []
        packet = await heard
        assert (packet.payload, dict(packet.metadata)) == (FRAME, {"ingress_port": 5, "reason": 9})
        await switch.write([P4PacketOut(FRAME, egress_port=6, color=0)])
        await until(lambda: bool(sent))
        assert sent == [(6, FRAME)]


async def test_packets_out_that_are_refused_are_answered(entities: Client) -> None:
    port, color = (p4r.PacketMetadata(metadata_id=n, value=b"\1") for n in (1, 2))
    wide = p4r.PacketMetadata(metadata_id=1, value=b"\2\0")
    for metadata, code in (([port], 3), ([port, port, color], 3), ([wide, color], 11)):
        packet = p4r.PacketOut(payload=FRAME, metadata=metadata)
        await entities.stream.write(p4r.StreamMessageRequest(packet=packet))
        error = (await hear(entities, "error")).error
        assert (error.canonical_code, error.packet_out.packet_out) == (code, packet)
    ack = p4r.DigestListAck(digest_id=7)
    await entities.stream.write(p4r.StreamMessageRequest(digest_ack=ack))
    error = (await hear(entities, "error")).error
    assert (error.canonical_code, error.digest_list_ack.digest_list_ack) == (3, ack)
    await entities.stream.write(p4r.StreamMessageRequest())
    assert (await hear(entities, "error")).error.HasField("other")
    async with client(entities.server, None) as backup:
        await backup.arbitrate()
        await backup.stream.write(p4r.StreamMessageRequest(packet=packet))
        error = (await hear(backup, "error")).error
        assert (error.canonical_code, error.packet_out.packet_out) == (7, packet)


def header(*fields: tuple[int, int], annotation: str = "") -> ControllerHeader:
    p4info = p4i.P4Info()
    made = p4info.controller_packet_metadata.add()
    made.preamble.name = "packet_in"
    for number, bitwidth in fields:
        made.metadata.add(id=number, name=f"f{number}", bitwidth=bitwidth, annotations=[annotation])
    return ControllerHeader.of(p4info, "packet_in")


def test_every_field_of_a_controller_header_is_metadata() -> None:
    padded = header((1, 9), (2, 7), annotation="@padding")
    packet = padded.decode(b"\x02\x83rest")
    assert packet is not None
    assert [(one.metadata_id, one.value) for one in packet.metadata] == [(1, b"\5"), (2, b"\3")]
    assert padded.encode(packet.metadata) + packet.payload == b"\x02\x83rest"
    with pytest.raises(Refused, match="missing"):
        padded.encode(packet.metadata[:1])
    with pytest.raises(Refused, match="differ"):
        header((1, 8), (1, 8))


def test_the_program_sets_the_width_of_translated_ports_in_headers() -> None:
    p4info = p4i.P4Info()
    p4info.CopyFrom(SCHEMA.p4info)
    for one in p4info.controller_packet_metadata:
        one.metadata[0].type_name.name = "logical_port_t"
        one.metadata[0].bitwidth = 32
    packet = device(ENTITIES, p4info).packet_in.decode((5 << 7 | 9).to_bytes(2, "big"))
    assert packet is not None
    assert [one.value for one in packet.metadata] == [b"\5", b"\x09"]


async def test_digests_come_in_lists_and_are_acknowledged(server: Server) -> None:
    async with server.finsy(ENTITIES) as switch:
        [pipeline] = server.pipelines
        digest = P4DigestEntry("learned_t", max_list_size=2, max_timeout_ns=10**15, ack_timeout_ns=10**15)
        await switch.write([+digest, ~LEARN])
        lists = switch.read_digests("learned_t")
        heard = asyncio.ensure_future(anext(lists))
        await asyncio.sleep(0)
        for _ in range(3):  # a digest that already waits is not repeated
            pipeline.inject(1, FRAME)
        pipeline.inject(2, FRAME)
        first = await heard
        expected = [{"source": B, "port": 1}, {"source": B, "port": 2}]
        assert (list(first.data), first.list_id) == (expected, 1)
        await switch.write([P4DigestListAck("learned_t", first.list_id)])
        heard = asyncio.ensure_future(anext(lists))
        while not heard.done():  # after the acknowledgement the same digests may come again
            pipeline.inject(1, FRAME)
            pipeline.inject(2, FRAME)
            await asyncio.sleep(0)
        assert list((await heard).data) == expected


def config(**fields: int) -> p4r.DigestEntry:
    return p4r.DigestEntry(digest_id=SCHEMA.digests["learned_t"].id, config=p4r.DigestEntry.Config(**fields))


DIGESTS = Digests(Schema(SCHEMA.p4info, Pipeline.load(SCHEMA.p4blob).program), {})
DIGESTS.write(p4r.Update.INSERT, config())


def sources(*lists: p4r.DigestList) -> list[list[int]]:
    return [[int.from_bytes(data.struct.members[0].bitstring, "big") for data in one.data] for one in lists]


CONFIGS = st.fixed_dictionaries(
    {
        "max_list_size": st.integers(0, 4),
        "max_timeout_ns": st.integers(0, 30),
        "ack_timeout_ns": st.sampled_from((0, 20, 1000)),
    }
)
STEPS = st.one_of(st.integers(0, 5), st.tuples(st.integers(0, 3)), CONFIGS, st.none())


@given(CONFIGS, st.lists(st.tuples(st.integers(0, 15), STEPS), max_size=60))
def test_digests_follow_the_pseudo_code_of_the_specification(
    first: dict[str, int], steps: list[tuple[int, object]]
) -> None:
    """A step is a message, an acknowledgement, a new config, or DELETE and INSERT of the digest."""
    DIGESTS.write(p4r.Update.DELETE, config())
    DIGESTS.write(p4r.Update.INSERT, config(**first))
    wanted, buffer, since, cache, now = first, [], 0, {}, 0  # type: ignore[var-annotated]
    lists = set[int]()
    for passed, step in steps:
        now += passed
        expected = []
        match step:
            case int():
                cache = {of: told for of, told in cache.items() if now - told[0] < wanted["ack_timeout_ns"]}
                DIGESTS.take(Digest("learned_t", (step, 1)), now)
                if step not in buffer and all(step not in told[1] for told in cache.values()):
                    since = since if buffer else now
                    buffer.append(step)
            case (at,):  # acknowledge one of the lists, or none
                list_id = dict(enumerate(cache)).get(at, 0)
                cache.pop(list_id, None)
                DIGESTS.acknowledge(p4r.DigestListAck(digest_id=config().digest_id, list_id=list_id))
            case dict():
                wanted = step
                DIGESTS.write(p4r.Update.MODIFY, config(**wanted))
            case None:
                DIGESTS.write(p4r.Update.DELETE, config(max_list_size=-1))  # the config does not matter
                DIGESTS.write(p4r.Update.INSERT, config(**wanted))
                buffer, cache = [], {}
        found = list(DIGESTS.due(now))
        most = wanted["max_list_size"] or len(buffer) + 1  # 0: as many as fit
        while len(buffer) >= most or (buffer and now - since >= wanted["max_timeout_ns"]):
            expected.append(buffer[:most])
            buffer = buffer[most:]
        assert sources(*found) == expected
        assert DIGESTS.deadline_ns() == (since + wanted["max_timeout_ns"] if buffer else None)
        assert lists.isdisjoint(one.list_id for one in found)  # an acknowledgement means one list only
        lists |= {one.list_id for one in found}
        cache |= {one.list_id: (now, told) for one, told in zip(found, expected, strict=True)}
        cache = {of: told for of, told in cache.items() if wanted["ack_timeout_ns"]}


async def test_digests_come_again_to_the_next_primary(server: Server) -> None:
    async with client(server, 1, load=True, program=ENTITIES) as one:
        digest = P4DigestEntry("learned_t", max_list_size=1, ack_timeout_ns=10**15)
        assert await one.write(update("INSERT", digest, ENTITIES), update("MODIFY", LEARN, ENTITIES)) == []
        server.pipelines[0].inject(1, FRAME)
        first = (await hear(one, "digest")).digest
        async with client(server, 2, program=ENTITIES) as two:
            await two.arbitrate()
            server.pipelines[0].inject(1, FRAME)
            assert (await hear(two, "digest")).digest.data == first.data


async def test_idle_entries_are_told_of(server: Server) -> None:
    async with server.finsy(ENTITIES) as switch:
        await switch.insert([HOST])
        idle = switch.read_idle_timeouts()
        for _ in range(3):  # it is told again after each time-out
            [entry] = (await anext(idle)).table_entry
            assert (entry.table_id, entry.match, entry.idle_timeout_ns) == ("hosts", HOST.match, 1)
    async with client(server, 99, program=ENTITIES) as one:
        await one.arbitrate()
        [told] = (await hear(one, "idle_timeout_notification")).idle_timeout_notification.table_entry
        assert told.idle_timeout_ns == 1  # also to the next primary
        pattern = p4r.Entity(table_entry=p4r.TableEntry(table_id=SCHEMA.tables["hosts"].id))
        [plain] = await one.read(pattern)
        assert not plain.table_entry.HasField("time_since_last_hit")
        pattern.table_entry.time_since_last_hit.SetInParent()
        [timed] = await one.read(pattern)
        assert timed.table_entry.time_since_last_hit.elapsed_ns > 0
        assert timed.table_entry.idle_timeout_ns == 1


def role(name: str, *exclusive: str, **rights: bool) -> p4r.Role:
    ids = [SCHEMA.tables[table].id for table in exclusive]
    config = Any()
    config.Pack(stratum.P4RoleConfig(exclusive_p4_ids=ids, **rights))
    return p4r.Role(name=name, config=config)


async def take_role(one: Client, wanted: p4r.Role) -> p4r.MasterArbitrationUpdate:
    arbitration = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=one.election_id, role=wanted)
    await one.stream.write(p4r.StreamMessageRequest(arbitration=arbitration))
    return (await hear(one, "arbitration")).arbitration


async def test_roles_divide_the_switch(server: Server) -> None:
    async with (
        client(server, load=True, program=ENTITIES) as _,
        client(server, 1, program=ENTITIES) as routes,
    ):
        wanted = role("routes", "hosts", "spread")
        answer = await take_role(routes, wanted)
        assert (answer.status.code, answer.role) == (0, wanted)
        errors = await routes.write(
            update("INSERT", HOST, ENTITIES), update("INSERT", TO_CONTROLLER, ENTITIES), role="routes"
        )
        assert codes(errors) == ["OK", "PERMISSION_DENIED"]
        request = p4r.ReadRequest(device_id=DEVICE, role="routes", entities=[P4TableEntry().encode(SCHEMA)])
        [reply] = [r async for r in routes.stub.Read(request)]
        assert [e.table_entry.table_id for e in reply.entities] == [SCHEMA.tables["hosts"].id]
        async with client(server, 1, program=ENTITIES) as taps:
            assert (await take_role(taps, role("taps", "policy", receives_packet_ins=True))).status.code == 0
            assert await taps.write(update("INSERT", TO_CONTROLLER, ENTITIES), role="taps") == []
            server.pipelines[0].inject(5, FRAME[:5] + b"\0" + FRAME[6:])
            assert (await hear(taps, "packet")).packet.payload[:5] == FRAME[:5]
        assert (await hear(routes, "idle_timeout_notification")).HasField("idle_timeout_notification")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)
