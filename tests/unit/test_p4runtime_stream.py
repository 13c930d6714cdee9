# SPDX-License-Identifier: Apache-2.0
"""Messages on streams: packets, digests, idle entries, and their receivers when roles divide the switch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from finsy import (
    P4DigestEntry,
    P4DigestListAck,
    P4PacketOut,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from finsy.proto import p4r, stratum
from google.protobuf.any_pb2 import Any
from p4runtime_clients import DEVICE, ENTITIES, SCHEMAS, A, B, Client, Server, client, codes, update

from railweave.switch.p4runtime.digests import Digests
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


async def test_packets_out_that_do_not_fit_the_p4info_are_answered(entities: Client) -> None:
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


def learner(**config: int) -> tuple[Digests, int]:
    encoded = P4DigestEntry("learned_t", **config).encode(SCHEMA)
    program = Pipeline.load(SCHEMA.p4blob).program
    digests = Digests(Schema.of(SCHEMA.p4info, program), {})
    digests.write(p4r.Update.INSERT, encoded.digest_entry)
    return digests, encoded.digest_entry.digest_id


def told(number: int) -> Digest:
    return Digest("learned_t", (number, 1))


def test_a_list_that_is_not_full_waits_no_longer_than_it_may() -> None:
    digests, _ = learner(max_list_size=9, max_timeout_ns=100)
    assert digests.deadline_ns() is None
    assert digests.take(told(1), 1000) is None
    assert digests.take(told(2), 1050) is None
    assert digests.deadline_ns() == 1100
    assert digests.due(1099) == []
    [late] = digests.due(1100)
    assert len(late.data) == 2
    assert digests.deadline_ns() is None


def test_what_is_not_acknowledged_is_not_repeated_until_its_time_is_over() -> None:
    digests, number = learner(max_list_size=1, ack_timeout_ns=100)
    first = digests.take(told(1), 0)
    assert first is not None
    assert digests.take(told(1), 99) is None
    assert digests.take(told(1), 100) is not None
    again = digests.take(told(2), 110)
    assert again is not None
    digests.acknowledge(p4r.DigestListAck(digest_id=number, list_id=again.list_id))
    assert digests.take(told(2), 111) is not None
    eager, _ = learner()
    assert eager.take(told(1), 0) is not None
    assert eager.take(told(1), 0) is not None  # without acknowledgements nothing is remembered


async def test_idle_entries_are_told_of(server: Server) -> None:
    async with server.finsy(ENTITIES) as switch:
        idle = asyncio.ensure_future(anext(switch.read_idle_timeouts()))
        await asyncio.sleep(0)
        await switch.insert([HOST])
        [entry] = (await idle).table_entry
        assert (entry.table_id, entry.match, entry.idle_timeout_ns) == ("hosts", HOST.match, 1)
    async with client(server, 99, program=ENTITIES) as one:
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
