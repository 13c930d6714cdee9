# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime server follows the specification: refusals, their codes, and the right to write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import grpc
import pytest
from finsy import (
    P4CounterEntry,
    P4MulticastGroupEntry,
    P4RegisterEntry,
    P4TableEntry,
)
from finsy.proto import U128, p4r
from p4runtime_clients import (
    DEVICE,
    JSON,
    SCHEMA,
    A,
    B,
    Client,
    Config,
    Server,
    client,
    codes,
    files,
    to_port,
    update,
)

from railweave.switch.p4runtime import stream
from railweave.switch.p4runtime.server import listen
from railweave.switch.p4runtime.service import Service


async def test_a_batch_reports_every_update_and_goes_on_after_a_failure(router: Client) -> None:
    errors = await router.write(
        update("INSERT", to_port(1)),
        update("INSERT", to_port(2)),
        update("DELETE", to_port(1, destination=B)),
        update("INSERT", to_port(3, destination=B)),
    )
    assert codes(errors) == ["OK", "ALREADY_EXISTS", "NOT_FOUND", "OK"]
    assert len(router.server.pipelines[0].tables["RouterIngress.bridge"].entries()) == 2
    assert await router.write(update("DELETE", to_port(1))) == []


async def test_a_full_table_is_said_to_be_full(router: Client) -> None:
    errors = await router.write(*(update("INSERT", to_port(1, destination=n)) for n in range(9)))
    assert codes(errors) == ["OK"] * 8 + ["RESOURCE_EXHAUSTED"]


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
UNKNOWN = p4r.TableAction(action=p4r.Action(action_id=7))
PASS, TO_1 = action("pass"), action("to_port", ONE)


def bridge(**fields: object) -> p4r.Entity:
    return raw_entry("bridge", **{"match": exact(ONE), "action": TO_1, **fields})


def acl(**fields: object) -> p4r.Entity:
    return raw_entry("acl", **{"action": PASS, "priority": 1, **fields})


def routes(*match: p4r.FieldMatch) -> p4r.Entity:
    return raw_entry("routes", match=match, action=PASS)


MEMBER = p4r.ActionProfileMember(action_profile_id=1)
WIDE = P4RegisterEntry("last_source", index=1, data=1).encode(SCHEMA)
WIDE.register_entry.data.bitstring = b"\1" + bytes(6)  # finsy checks the width itself
REFUSED = {
    "NOT_FOUND": {
        "unknown table": ("INSERT", p4r.Entity(table_entry=p4r.TableEntry(table_id=7))),
        "unknown group": ("MODIFY", P4MulticastGroupEntry(5, replicas=[1])),
        "action profile": ("INSERT", p4r.Entity(action_profile_member=MEMBER)),
    },
    "INVALID_ARGUMENT": {
        "no entity": ("INSERT", p4r.Entity()),
        "no kind": ("UNSPECIFIED", bridge()),
        "unknown action": ("INSERT", bridge(action=UNKNOWN)),
        "no action": ("INSERT", bridge(action=None)),
        "no match": ("INSERT", bridge(match=None)),
        "match twice": ("INSERT", bridge(match=exact(ONE) * 2)),
        "other match": ("INSERT", bridge(match=lpm(ONE, 48))),
        "unknown field": ("INSERT", bridge(match=[*exact(ONE), *span(ONE, ONE)])),
        "priority": ("INSERT", bridge(priority=1)),
        "no priority": ("INSERT", acl(priority=0)),
        "negative priority": ("INSERT", acl(priority=-1)),
        "zero mask": ("INSERT", acl(match=ternary(b"\0", b"\0"))),
        "bits outside the mask": ("INSERT", acl(match=ternary(b"\3", ONE))),
        "empty range": ("INSERT", acl(match=span(b"\2", ONE))),
        "full range": ("INSERT", acl(match=span(b"\0", b"\xff\xff"))),
        "prefix 0": ("INSERT", routes(*lpm(b"\0", 0))),
        "prefix 33": ("INSERT", routes(*lpm(b"\0", 33))),
        "bits behind the prefix": ("INSERT", routes(*lpm(ONE, 8))),
        "another table's action": ("INSERT", bridge(action=PASS)),
        "missing parameter": ("INSERT", bridge(action=action("to_port"))),
        "insert default": ("INSERT", bridge(match=None, is_default_action=True)),
        "idle timeout": ("INSERT", bridge(idle_timeout_ns=1)),
        "group 0": ("INSERT", P4MulticastGroupEntry(0, replicas=[1])),
        "port too wide": ("INSERT", P4MulticastGroupEntry(5, replicas=[512])),
        "replica twice": ("INSERT", P4MulticastGroupEntry(5, replicas=[(1, 1), (1, 1)])),
        "insert counter": ("INSERT", P4CounterEntry("arrivals", index=1)),
    },
    "OUT_OF_RANGE": {
        "empty value": ("INSERT", bridge(match=exact(b""))),
        "value too wide": ("INSERT", bridge(match=exact(b"\1" * 7))),
        "parameter too wide": ("INSERT", bridge(action=action("to_port", b"\2\0"))),
        "counter index": ("MODIFY", P4CounterEntry("arrivals", index=16)),
        "register value": ("MODIFY", WIDE),
    },
    "PERMISSION_DENIED": {
        "default-only action": ("INSERT", raw_entry("routes", action=action("drop"))),
        "constant entries": ("INSERT", raw_entry("painted", match=exact(ONE), action=TO_1)),
        "constant default": ("MODIFY", raw_entry("painted", is_default_action=True, action=TO_1)),
    },
}


async def test_what_the_specification_forbids_is_refused(router: Client) -> None:
    for code, cases in REFUSED.items():
        for name, case in cases.items():
            assert (name, codes(await router.write(update(*case)))) == (name, [code])


async def test_a_value_with_leading_zeros_names_the_same_entry(router: Client) -> None:
    padded = raw_entry("bridge", match=exact(b"\0\0\0\1"), action=action("to_port", b"\0\2"))
    canonical = raw_entry("bridge", match=exact(ONE), action=action("to_port", b"\2"))
    assert await router.write(update("INSERT", padded)) == []
    assert codes(await router.write(update("INSERT", canonical))) == ["ALREADY_EXISTS"]
    request = p4r.ReadRequest(device_id=DEVICE, entities=[canonical])
    assert [e async for reply in router.stub.Read(request) for e in reply.entities] == [canonical]


async def refusal(call: Awaitable[object]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


async def test_nothing_works_before_there_is_a_primary_and_a_program(server: Server) -> None:
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
    kinds = p4r.GetForwardingPipelineConfigRequest
    for kind, p4info, blob in (
        (kinds.ALL, True, True),
        (kinds.COOKIE_ONLY, False, False),
        (kinds.P4INFO_AND_COOKIE, True, False),
        (kinds.DEVICE_CONFIG_AND_COOKIE, False, True),
    ):
        request = kinds(device_id=DEVICE, response_type=kind)
        config = (await router.stub.GetForwardingPipelineConfig(request)).config
        assert config.cookie.cookie == 5
        assert (config.HasField("p4info"), bool(config.p4_device_config)) == (p4info, blob)
    assert await refusal(router.set_pipeline(Config.COMMIT)) == grpc.StatusCode.NOT_FOUND
    reconciled = refusal(router.set_pipeline(Config.RECONCILE_AND_COMMIT))
    assert await reconciled == grpc.StatusCode.UNIMPLEMENTED


TELEPORT = JSON.read_bytes().replace(b'"op" : "mark_to_drop"', b'"op" : "teleport"')


@pytest.mark.parametrize(
    ("json", "words"),
    [
        *((json, ".") for json in (b"", b"{", b"[]", b"{}", b"\xff\x00", files("patch")[1].read_bytes())),
        (TELEPORT, "teleport"),
    ],
)
async def test_a_config_that_is_none_is_refused_and_changes_nothing(
    router: Client, json: bytes, words: str
) -> None:
    await router.write(update("INSERT", to_port(1)))
    for kind in (Config.VERIFY, Config.VERIFY_AND_COMMIT):
        with pytest.raises(grpc.aio.AioRpcError, match=words) as refused:
            await router.set_pipeline(kind, json)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert len(router.server.pipelines[0].tables["RouterIngress.bridge"].entries()) == 1


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


async def test_arbitration_follows_the_specification(server: Server) -> None:
    async with client(server, 5) as a, client(server, 5) as same, client(server, 7) as b:
        assert (await a.arbitrate()).status.code == 0
        with pytest.raises(grpc.aio.AioRpcError, match="election id 5 belongs to another open stream"):
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


async def test_without_an_election_id_one_is_backup_and_another_device_is_not_found(
    server: Server,
) -> None:
    async with client(server, None) as one, client(server, None) as another, client(server, 0) as zero:
        assert (await one.arbitrate()).status.code == 5
        assert (await another.arbitrate()).status.code == 5
        assert (await zero.arbitrate()).status.code == 0  # 0 is a valid id, other than an unset one
    async with client(server) as lost:
        assert await refusal(lost.arbitrate(device=99)) == grpc.StatusCode.NOT_FOUND


async def test_packets_out_are_answered_with_an_error_not_lost(server: Server) -> None:
    async with client(server, load=True) as _, client(server, None) as one:
        await one.arbitrate()
        packet = p4r.PacketOut(payload=b"hello")
        await one.stream.write(p4r.StreamMessageRequest(packet=packet))
        response = await one.stream.read()
        assert isinstance(response, p4r.StreamMessageResponse)
        assert response.error.canonical_code == grpc.StatusCode.PERMISSION_DENIED.value[0]
        assert response.error.packet_out.packet_out == packet


async def test_an_address_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(OSError, match="in use"):
        await listen(Service(1, lambda _: None), "256.0.0.1:9")
