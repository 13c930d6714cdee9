# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime server against the specification: what it must refuse, with which code, and who may write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import finsy
import grpc
import pytest
from finsy import P4CounterEntry, P4MulticastGroupEntry, P4RegisterEntry
from finsy.proto import U128, p4r
from p4runtime_clients import (
    DEVICE,
    JSON,
    PROGRAMS,
    SCHEMA,
    B,
    Config,
    Served,
    Server,
    client,
    codes,
    to_port,
    update,
)

from railweave.switch.p4runtime.server import listen
from railweave.switch.p4runtime.service import Service


def test_a_batch_reports_every_update_and_goes_on_after_a_failure(served: Served) -> None:
    async def test(server: Server) -> None:
        async with client(server, load=True) as primary:
            errors = await primary.write(
                update("INSERT", to_port(1)),
                update("INSERT", to_port(2)),
                update("DELETE", to_port(1, destination=B)),
                update("INSERT", to_port(3, destination=B)),
            )
            assert codes(errors) == ["OK", "ALREADY_EXISTS", "NOT_FOUND", "OK"]
            assert len(server.pipelines[0].tables.entries("RouterIngress.bridge")) == 2
            assert await primary.write(update("DELETE", to_port(1))) == []

    served(test)


def test_a_full_table_is_said_to_be_full(served: Served) -> None:
    async def test(server: Server) -> None:
        async with client(server, load=True) as primary:
            errors = await primary.write(*(update("INSERT", to_port(1, destination=n)) for n in range(9)))
            assert codes(errors) == ["OK"] * 8 + ["RESOURCE_EXHAUSTED"]

    served(test)


def raw_entry(table: str, **fields: object) -> p4r.Entity:
    return p4r.Entity(table_entry=p4r.TableEntry(table_id=SCHEMA.tables[table].id, **fields))  # type: ignore[arg-type]


def action(name: str, *values: bytes) -> p4r.TableAction:
    made = p4r.TableAction()
    made.action.action_id = SCHEMA.actions[name].id
    for number, value in enumerate(values, 1):
        made.action.params.add(param_id=number, value=value)
    return made


def exact(value: bytes) -> list[p4r.FieldMatch]:
    return [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=value))]


def ternary(value: bytes, mask: bytes) -> list[p4r.FieldMatch]:
    return [p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=value, mask=mask))]


def lpm(value: bytes, prefix: int) -> list[p4r.FieldMatch]:
    return [p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=value, prefix_len=prefix))]


def span(low: bytes, high: bytes) -> list[p4r.FieldMatch]:
    return [p4r.FieldMatch(field_id=2, range=p4r.FieldMatch.Range(low=low, high=high))]


ONE = b"\x01"
PASS, TO_1 = action("pass"), action("to_port", ONE)
REFUSED = {
    "unknown table": ("INSERT", p4r.Entity(table_entry=p4r.TableEntry(table_id=7)), "NOT_FOUND"),
    "no entity": ("INSERT", p4r.Entity(), "INVALID_ARGUMENT"),
    "no kind": ("UNSPECIFIED", raw_entry("bridge", match=exact(ONE), action=TO_1), "INVALID_ARGUMENT"),
    "no action": ("INSERT", raw_entry("bridge", match=exact(ONE)), "INVALID_ARGUMENT"),
    "no match": ("INSERT", raw_entry("bridge", action=TO_1), "INVALID_ARGUMENT"),
    "match twice": ("INSERT", raw_entry("bridge", match=exact(ONE) * 2, action=TO_1), "INVALID_ARGUMENT"),
    "other match": ("INSERT", raw_entry("bridge", match=lpm(ONE, 48), action=TO_1), "INVALID_ARGUMENT"),
    "unknown field": (
        "INSERT",
        raw_entry("bridge", match=[*exact(ONE), *span(ONE, ONE)], action=TO_1),
        "INVALID_ARGUMENT",
    ),
    "empty value": ("INSERT", raw_entry("bridge", match=exact(b""), action=TO_1), "INVALID_ARGUMENT"),
    "value too wide": ("INSERT", raw_entry("bridge", match=exact(b"\1" * 7), action=TO_1), "OUT_OF_RANGE"),
    "priority": (
        "INSERT",
        raw_entry("bridge", match=exact(ONE), action=TO_1, priority=1),
        "INVALID_ARGUMENT",
    ),
    "no priority": ("INSERT", raw_entry("acl", action=PASS), "INVALID_ARGUMENT"),
    "negative priority": ("INSERT", raw_entry("acl", action=PASS, priority=-1), "INVALID_ARGUMENT"),
    "zero mask": (
        "INSERT",
        raw_entry("acl", match=ternary(b"\0", b"\0"), action=PASS, priority=1),
        "INVALID_ARGUMENT",
    ),
    "bits outside the mask": (
        "INSERT",
        raw_entry("acl", match=ternary(b"\3", ONE), action=PASS, priority=1),
        "INVALID_ARGUMENT",
    ),
    "empty range": (
        "INSERT",
        raw_entry("acl", match=span(b"\2", ONE), action=PASS, priority=1),
        "INVALID_ARGUMENT",
    ),
    "full range": (
        "INSERT",
        raw_entry("acl", match=span(b"\0", b"\xff\xff"), action=PASS, priority=1),
        "INVALID_ARGUMENT",
    ),
    "prefix 0": ("INSERT", raw_entry("routes", match=lpm(b"\0", 0), action=PASS), "INVALID_ARGUMENT"),
    "prefix 33": ("INSERT", raw_entry("routes", match=lpm(b"\0", 33), action=PASS), "INVALID_ARGUMENT"),
    "bits behind the prefix": (
        "INSERT",
        raw_entry("routes", match=lpm(ONE, 8), action=PASS),
        "INVALID_ARGUMENT",
    ),
    "another table's action": (
        "INSERT",
        raw_entry("bridge", match=exact(ONE), action=PASS),
        "INVALID_ARGUMENT",
    ),
    "default-only action": ("INSERT", raw_entry("routes", action=action("drop")), "PERMISSION_DENIED"),
    "missing parameter": (
        "INSERT",
        raw_entry("bridge", match=exact(ONE), action=action("to_port")),
        "INVALID_ARGUMENT",
    ),
    "parameter too wide": (
        "INSERT",
        raw_entry("bridge", match=exact(ONE), action=action("to_port", b"\2\0")),
        "OUT_OF_RANGE",
    ),
    "constant entries": ("INSERT", raw_entry("painted", match=exact(ONE), action=TO_1), "PERMISSION_DENIED"),
    "constant default": (
        "MODIFY",
        raw_entry("painted", is_default_action=True, action=TO_1),
        "PERMISSION_DENIED",
    ),
    "insert default": (
        "INSERT",
        raw_entry("bridge", is_default_action=True, action=TO_1),
        "INVALID_ARGUMENT",
    ),
    "idle timeout": (
        "INSERT",
        raw_entry("bridge", match=exact(ONE), action=TO_1, idle_timeout_ns=1),
        "INVALID_ARGUMENT",
    ),
    "group 0": ("INSERT", P4MulticastGroupEntry(0, replicas=[1]), "INVALID_ARGUMENT"),
    "unknown group": ("MODIFY", P4MulticastGroupEntry(5, replicas=[1]), "NOT_FOUND"),
    "port too wide": ("INSERT", P4MulticastGroupEntry(5, replicas=[512]), "INVALID_ARGUMENT"),
    "replica twice": ("INSERT", P4MulticastGroupEntry(5, replicas=[(1, 1), (1, 1)]), "INVALID_ARGUMENT"),
    "counter index": ("MODIFY", P4CounterEntry("arrivals", index=16), "OUT_OF_RANGE"),
    "insert counter": ("INSERT", P4CounterEntry("arrivals", index=1), "INVALID_ARGUMENT"),
    "register value": (
        "MODIFY",
        P4RegisterEntry("last_source", index=1, data=1 << 48),
        "OUT_OF_RANGE",
    ),
    "action profile": (
        "INSERT",
        p4r.Entity(action_profile_member=p4r.ActionProfileMember(action_profile_id=1)),
        "NOT_FOUND",
    ),
}


@pytest.mark.parametrize(("kind", "entity", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_what_the_specification_forbids_is_refused(
    served: Served, kind: str, entity: finsy.P4Entity | p4r.Entity, code: str
) -> None:
    async def test(server: Server) -> None:
        async with client(server, load=True) as primary:
            assert codes(await primary.write(update(kind, entity))) == [code]

    if isinstance(entity, P4RegisterEntry):  # finsy checks the width itself
        raw = P4RegisterEntry("last_source", index=1, data=1).encode(SCHEMA)
        raw.register_entry.data.bitstring = b"\1" + bytes(6)
        entity = raw
    served(test)


def test_a_value_with_leading_zeros_names_the_same_entry(served: Served) -> None:
    async def test(server: Server) -> None:
        async with client(server, load=True) as primary:
            padded = raw_entry("bridge", match=exact(b"\0\0\0\1"), action=action("to_port", b"\0\2"))
            canonical = raw_entry("bridge", match=exact(ONE), action=action("to_port", b"\2"))
            assert await primary.write(update("INSERT", padded)) == []
            assert codes(await primary.write(update("INSERT", canonical))) == ["ALREADY_EXISTS"]
            request = p4r.ReadRequest(device_id=DEVICE, entities=[canonical])
            assert [e async for reply in primary.stub.Read(request) for e in reply.entities] == [canonical]

    served(test)


async def refusal(call: Awaitable[object]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


def test_nothing_works_before_there_is_a_primary_and_a_program(served: Served) -> None:
    async def test(server: Server) -> None:
        async with client(server) as one:
            get = p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE)
            assert not (await one.stub.GetForwardingPipelineConfig(get)).HasField("config")
            assert await refusal(one.write()) == grpc.StatusCode.PERMISSION_DENIED
            assert await refusal(one.set_pipeline(Config.VERIFY)) == grpc.StatusCode.PERMISSION_DENIED
            await one.arbitrate()
            assert await refusal(one.write()) == grpc.StatusCode.FAILED_PRECONDITION
            assert await refusal(one.set_pipeline(Config.COMMIT)) == grpc.StatusCode.NOT_FOUND
            other = p4r.GetForwardingPipelineConfigRequest(device_id=99)
            assert await refusal(one.stub.GetForwardingPipelineConfig(other)) == grpc.StatusCode.NOT_FOUND

    served(test)


def test_programs_are_verified_saved_and_committed(served: Served) -> None:
    async def test(server: Server) -> None:
        async with client(server) as one:
            await one.arbitrate()
            await one.set_pipeline(Config.VERIFY)
            await one.set_pipeline(Config.VERIFY_AND_SAVE, cookie=5)
            assert server.pipelines == []
            await one.set_pipeline(Config.COMMIT)
            assert len(server.pipelines) == 1
            kinds = p4r.GetForwardingPipelineConfigRequest
            for kind, p4info, blob in (
                (kinds.ALL, True, True),
                (kinds.COOKIE_ONLY, False, False),
                (kinds.P4INFO_AND_COOKIE, True, False),
                (kinds.DEVICE_CONFIG_AND_COOKIE, False, True),
            ):
                request = kinds(device_id=DEVICE, response_type=kind)
                config = (await one.stub.GetForwardingPipelineConfig(request)).config
                assert config.cookie.cookie == 5
                assert (config.HasField("p4info"), bool(config.p4_device_config)) == (p4info, blob)
            assert await refusal(one.set_pipeline(Config.COMMIT)) == grpc.StatusCode.NOT_FOUND

    served(test)


def test_a_commit_forgets_entries_and_a_reconciliation_keeps_them(served: Served) -> None:
    async def test(server: Server) -> None:
        async with client(server, load=True) as one:
            group = P4MulticastGroupEntry(4, replicas=[(1, 1)])
            await one.write(update("INSERT", to_port(1)), update("INSERT", group))
            await one.set_pipeline(Config.RECONCILE_AND_COMMIT, cookie=8)
            assert len(server.pipelines) == 1
            changed = JSON.read_bytes().replace(b'"router.p4"', b'"router2.p4"')
            await one.set_pipeline(Config.RECONCILE_AND_COMMIT, changed)
            assert len(server.pipelines) == 2
            assert len(server.pipelines[1].tables.entries("RouterIngress.bridge")) == 1
            assert len(await one.read(group)) == 1
            await one.set_pipeline(Config.VERIFY_AND_COMMIT)
            assert server.pipelines[2].tables.entries("RouterIngress.bridge") == []

    served(test)


@pytest.mark.parametrize(
    "json", [b"", b"{", b"[]", b"{}", b"\xff\x00", (PROGRAMS / "patch.json").read_bytes()]
)
def test_a_config_that_is_none_is_refused_and_changes_nothing(served: Served, json: bytes) -> None:
    async def test(server: Server) -> None:
        async with client(server, load=True) as one:
            await one.write(update("INSERT", to_port(1)))
            for kind in (Config.VERIFY, Config.VERIFY_AND_COMMIT, Config.RECONCILE_AND_COMMIT):
                assert await refusal(one.set_pipeline(kind, json)) == grpc.StatusCode.INVALID_ARGUMENT
            assert len(server.pipelines[0].tables.entries("RouterIngress.bridge")) == 1

    served(test)


def test_arbitration_follows_the_specification(served: Served) -> None:
    async def test(server: Server) -> None:
        async with client(server, 5) as a, client(server, 5) as same, client(server, 7) as b:
            assert (await a.arbitrate()).status.code == 0
            with pytest.raises(grpc.aio.AioRpcError, match="Election ID is already used"):
                await same.arbitrate()
            update = await b.arbitrate()
            assert (update.status.code, U128.decode(update.election_id)) == (0, 7)
            update = await a.hear()
            assert (update.status.code, U128.decode(update.election_id)) == (6, 7)
            assert (await a.arbitrate(6)).status.code == 6
            b.stream.cancel()
            update = await a.hear()
            assert (update.status.code, U128.decode(update.election_id)) == (5, 7)
            assert await refusal(a.write()) == grpc.StatusCode.PERMISSION_DENIED
            assert (await a.arbitrate(6)).status.code == 5
            assert (await a.arbitrate(7)).status.code == 0
            assert (await a.arbitrate(3)).status.code == 5

    served(test)


def test_a_stream_for_another_device_is_closed(served: Served) -> None:
    async def test(server: Server) -> None:
        async with client(server) as one:
            assert await refusal(one.arbitrate(device=99)) == grpc.StatusCode.NOT_FOUND

    served(test)


def test_without_an_election_id_one_stays_backup(served: Served) -> None:
    async def test(server: Server) -> None:
        async with client(server, None) as one, client(server, None) as another, client(server, 0) as zero:
            assert (await one.arbitrate()).status.code == 5
            assert (await another.arbitrate()).status.code == 5
            assert (await zero.arbitrate()).status.code == 0  # 0 is an id like others: unset is another thing

    served(test)


def test_packets_out_are_answered_with_an_error_not_lost(served: Served) -> None:
    async def test(server: Server) -> None:
        async with client(server, load=True) as _, client(server, None) as one:
            await one.arbitrate()
            packet = p4r.PacketOut(payload=b"hello")
            await one.stream.write(p4r.StreamMessageRequest(packet=packet))
            response = await one.stream.read()
            assert isinstance(response, p4r.StreamMessageResponse)
            assert response.error.canonical_code == grpc.StatusCode.PERMISSION_DENIED.value[0]
            assert response.error.packet_out.packet_out == packet

    served(test)


def test_a_second_server_on_the_same_address_fails() -> None:
    async def main() -> None:
        first = await listen(Service(1, lambda _: None), "127.0.0.1:0")
        await first.start()
        with pytest.raises(OSError, match="in use"):
            await listen(Service(1, lambda _: None), "256.0.0.1:9")
        await first.stop(None)

    asyncio.run(main())
