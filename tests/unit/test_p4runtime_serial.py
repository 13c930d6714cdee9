# SPDX-License-Identifier: Apache-2.0
"""Writes, Reads, pushes and fail-over are strictly serializable, and the status of a large batch arrives."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import grpc
import pytest
from finsy import (
    P4CounterData,
    P4CounterEntry,
    P4DirectCounterEntry,
    P4MeterEntry,
    P4RegisterEntry,
    P4TableEntry,
    P4ValueSetEntry,
)
from finsy.proto import U128, p4r, p4r_grpc
from p4runtime_clients import (
    DEVICE,
    ENTITIES,
    JSON,
    SCHEMAS,
    A,
    Client,
    Config,
    Server,
    client,
    codes,
    encode,
    errors,
    refused,
    status,
    to_port,
    update,
)
from p4runtime_entities import EVERYTHING, MODIFIED, WRITTEN, write

from railweave.switch.p4runtime import arbitration
from railweave.switch.p4runtime.arbitration import Arbitration
from railweave.switch.p4runtime.errors import Code, Refused
from railweave.switch.p4runtime.requests import MAX_WRITE_BYTES

MANY = 3000
LARGE = JSON.read_bytes().replace(b'"max_size" : 8,', b'"max_size" : 100000,')
BRIDGE = P4TableEntry("bridge")


@asynccontextmanager
async def two(server: Server) -> AsyncIterator[tuple[Client, Client]]:
    """Serve a large table. Yield its primary client and a second client."""
    async with server, client(server, 1) as one, client(server, 1) as other:
        await one.arbitrate()
        await one.set_pipeline(Config.VERIFY_AND_COMMIT, LARGE)
        yield one, other


@pytest.fixture
def clients(server: Server) -> AbstractAsyncContextManager[tuple[Client, Client]]:
    return two(server)


def entries(kind: str, port: int, count: int = MANY) -> list[p4r.Update]:
    return [update(kind, to_port(port, A + number)) for number in range(count)]


def ports(found: list[p4r.Entity]) -> list[int]:
    return [entity.table_entry.action.action.params[0].value[0] for entity in found]


async def begun(one: Client, updates: list[p4r.Update]) -> asyncio.Future[list[p4r.Error]]:
    """Send a Write, and return it when the switch has carried out the first update."""
    tables = one.server.pipelines[-1].tables
    before = tables["RouterIngress.bridge"].entries()
    writing = asyncio.ensure_future(one.write(*updates))
    while tables["RouterIngress.bridge"].entries() == before:
        await asyncio.sleep(0)
    assert not writing.done()
    return writing


async def test_a_read_shows_the_state_before_or_after_a_whole_write(
    clients: tuple[Client, Client],
) -> None:
    one, other = clients
    writing = await begun(one, entries("INSERT", 1))
    found = [len(await other.read(BRIDGE))]
    while not writing.done():
        found.append(len(await other.read(BRIDGE)))
    assert await writing == []
    assert set(found) <= {0, MANY}


async def test_two_writes_do_not_mix(clients: tuple[Client, Client]) -> None:
    one, other = clients
    assert await one.write(*entries("INSERT", 1)) == []
    for _ in range(2):
        writes = (one.write(*entries("MODIFY", 2)), other.write(*entries("MODIFY", 3)))
        assert [error for errors in await asyncio.gather(*writes) for error in errors] == []
        assert len(set(ports(await one.read(BRIDGE)))) == 1


async def test_a_write_beside_a_push_is_completed_in_one_of_the_programs(
    clients: tuple[Client, Client],
) -> None:
    one, other = clients
    writing = await begun(one, entries("INSERT", 1))
    await other.set_pipeline(Config.VERIFY_AND_COMMIT, LARGE)
    assert await writing == []
    kept = [len(pipeline.tables["RouterIngress.bridge"].entries()) for pipeline in one.server.pipelines]
    assert kept == [MANY, 0]


async def test_a_write_is_completed_before_the_next_primary_is_accepted(
    clients: tuple[Client, Client],
) -> None:
    one, other = clients
    writing = await begun(one, entries("INSERT", 1))
    elected = asyncio.ensure_future(other.arbitrate(2))
    notice = await one.hear()  # the primary before loses its rights at once
    assert (notice.status.code, U128.decode(notice.election_id)) == (Code.ALREADY_EXISTS, 2)
    await refused(one.write(update("INSERT", to_port(1, 1))), "PERMISSION_DENIED")
    assert (await elected).status.code == Code.OK
    assert len(one.server.pipelines[0].tables["RouterIngress.bridge"].entries()) == MANY
    assert await writing == []


async def test_a_write_whose_client_has_left_is_completed(clients: tuple[Client, Client]) -> None:
    one, other = clients
    writing = await begun(one, entries("INSERT", 1))
    writing.cancel()
    one.stream.cancel()
    assert (await other.arbitrate(2)).status.code == Code.OK
    assert len(await other.read(BRIDGE)) == MANY


async def test_an_answer_shows_no_write_that_came_while_it_was_read(entities: Client) -> None:
    for kind, written in (("INSERT", WRITTEN), ("MODIFY", MODIFIED)):
        assert await write(entities, *((kind, entity) for entity in written)) == []
    cells = [P4RegisterEntry("sizes"), P4CounterEntry("arrivals"), P4MeterEntry("rates")]
    wildcards = [*EVERYTHING, *cells, P4ValueSetEntry("marked_types", members=[]), P4DirectCounterEntry()]
    patterns = [encode(pattern, ENTITIES) for pattern in wildcards]
    replies = aiter(entities.stub.Read(p4r.ReadRequest(device_id=DEVICE, entities=patterns * 200)))
    found = list((await anext(replies)).entities)
    changed = [
        P4RegisterEntry("sizes", data=8),
        P4CounterEntry("arrivals", data=P4CounterData(packet_count=8)),
        P4MeterEntry("rates"),
        P4ValueSetEntry("marked_types", members=[]),
    ]
    deleted = [("DELETE", entity) for entity in reversed(WRITTEN)]
    assert await write(entities, *(("MODIFY", entity) for entity in changed), *deleted) == []
    found += [entity async for reply in replies for entity in reply.entities]
    per_round = len(found) // 200
    assert found == found[:per_round] * 200
    direct_counters = 1
    assert len(await entities.read(*wildcards)) == per_round - len(WRITTEN) - direct_counters


@asynccontextmanager
async def strict(one: Client) -> AsyncIterator[p4r_grpc.P4RuntimeStub]:
    """Yield a client that refuses what default clients of gRPC may refuse: 8 KiB of metadata, in base64."""
    options = [("grpc.max_metadata_size", 8192), ("grpc.absolute_max_metadata_size", 8192)]
    options.append(("grpc.http2.true_binary", 0))
    async with grpc.aio.insecure_channel(one.server.address, options) as channel:
        yield p4r_grpc.P4RuntimeStub(channel)


ALL = "number 0: NOT_FOUND: "


@pytest.mark.parametrize(
    ("count", "failing", "described", "words"),
    [
        (1, range(1), 1, ALL),
        (100, range(100), 100, ALL),
        (280, range(280), 280, ALL),
        (290, range(290), 0, f"{ALL}.*; all failures: NOT_FOUND 0-289$"),
        (345, [17], 345, "number 17: NOT_FOUND: "),
        (10_000, [17], 18, "number 17: NOT_FOUND: "),
        (10_000, [344], 345, "number 344: NOT_FOUND: "),
        (10_000, [17, 8123], 0, "number 8123: NOT_FOUND: .*; all failures: NOT_FOUND 17, 8123$"),
        (10_000, range(10_000), 0, rf"{ALL}.*; all failures: NOT_FOUND 0-8191\.\.\.$"),
        (10_000, range(0, 10_000, 2), 0, rf"{ALL}.*; all failures: NOT_FOUND 0, 2, 4.*\.\.\.$"),
    ],
)
async def test_failures_of_a_batch_arrive_within_default_limits(
    clients: tuple[Client, Client], count: int, failing: Sequence[int], described: int, words: str
) -> None:
    one, _ = clients
    updates = entries("INSERT", 1, count)
    for number in failing:
        updates[number].type = p4r.Update.DELETE
    request = p4r.WriteRequest(device_id=DEVICE, election_id=one.election_id, updates=updates)
    async with strict(one) as stub:
        expected = f'"{len(failing)} of {count} updates failed; number'
        failed = await refused(stub.Write(request), "UNKNOWN", expected)
    assert re.search(words, str(failed.details()))
    found = errors(failed)
    assert codes(found) == ["NOT_FOUND" if number in failing else "OK" for number in range(described)]
    if described:
        assert (status(failed).code, status(failed).message) == (Code.UNKNOWN, failed.details())
    if described in (1, 100, 345):
        first = found[failing[0]].message
        assert "bridge" in first
        assert first in str(failed.details())


@pytest.mark.parametrize("count", [5, 250, 5000])
async def test_the_cause_of_an_undone_batch_arrives_within_default_limits(
    clients: tuple[Client, Client], count: int
) -> None:
    one, _ = clients
    updates = entries("INSERT", 1, count)
    updates[-2].type = p4r.Update.DELETE
    request = p4r.WriteRequest(device_id=DEVICE, election_id=one.election_id, updates=updates)
    request.atomicity = p4r.WriteRequest.ROLLBACK_ON_ERROR
    words = f"{count} of {count} updates failed; number 0: ABORTED: nothing was done, "
    words += f"because update {count - 2} failed: NOT_FOUND: table RouterIngress.bridge "
    async with strict(one) as stub:
        failed = await refused(stub.Write(request), "UNKNOWN", words)
    if count < 5000:
        assert codes(errors(failed)[-2:]) == ["NOT_FOUND", "ABORTED"]
    if count == 5:
        assert "bridge" in errors(failed)[0].message


async def test_a_write_of_four_megabytes_is_carried_out_and_a_larger_one_refused(
    clients: tuple[Client, Client],
) -> None:
    one, _ = clients
    request = p4r.WriteRequest(device_id=DEVICE, election_id=one.election_id)
    request.updates.extend(entries("INSERT", 1))
    padding = (MAX_WRITE_BYTES - request.ByteSize()) // MANY - 8
    for part in request.updates:
        part.entity.table_entry.metadata = bytes(padding)
    assert MAX_WRITE_BYTES - 20_000 < request.ByteSize() < MAX_WRITE_BYTES
    await one.stub.Write(request)
    assert len(await one.read(BRIDGE)) == MANY
    request.updates[0].entity.table_entry.metadata = bytes(100_000)
    await refused(one.stub.Write(request), "RESOURCE_EXHAUSTED", f"up to {MAX_WRITE_BYTES} bytes")


async def test_valid_requests_of_a_read_are_answered_beside_invalid_ones(router: Client) -> None:
    assert await router.write(update("INSERT", to_port(1))) == []
    unknown = p4r.Entity(table_entry=p4r.TableEntry(table_id=7))
    patterns = [encode(BRIDGE), unknown, p4r.Entity(), encode(BRIDGE)]
    replies = router.stub.Read(p4r.ReadRequest(device_id=DEVICE, entities=patterns))
    found = list((await anext(aiter(replies))).entities)
    failed = await refused(anext(aiter(replies)), "UNKNOWN", "2 of 4 requests failed; number 1: ")
    assert ports(found) == [1, 1]
    assert codes(errors(failed)) == ["OK", "NOT_FOUND", "INVALID_ARGUMENT", "OK"]


# A wildcard of each kind of entity, as in the specification's section 15.2.
EVERY_KIND = [p4r.Entity(**{field.name: {}}) for field in p4r.Entity.DESCRIPTOR.fields]  # type: ignore[arg-type]


@pytest.mark.parametrize("program", SCHEMAS)
async def test_the_whole_state_is_read_in_one_request(server: Server, program: str) -> None:
    async with client(server, load=True, program=program) as one:
        found = {entity.WhichOneof("entity") for entity in await one.read(*EVERY_KIND)}
        assert {"counter_entry", "register_entry"} <= found
        extern = p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=0x81))
        await refused(one.read(extern), "UNKNOWN", "UNIMPLEMENTED")


async def test_a_primary_that_comes_too_late_learns_the_election_id_that_it_needs(server: Server) -> None:
    async with client(server, 5) as first, client(server, 3) as second:
        await first.arbitrate()
        await second.arbitrate()
        await refused(second.write(), "PERMISSION_DENIED", "election id 3 is not the id of the primary, 5")
        first.stream.cancel()
        await second.hear()
        await refused(second.write(), "PERMISSION_DENIED", "no primary; send .* election id 5 or greater")


def test_roles_without_controllers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arbitration, "MAX_ROLES", 4)
    now_s = 0.0
    roles = Arbitration(DEVICE, lambda: now_s)

    def take(name: str) -> None:
        role = p4r.Role(name=name)
        roles.update(name, p4r.MasterArbitrationUpdate(device_id=DEVICE, role=role))

    for name in ("a", "b", "c"):
        take(name)
    with pytest.raises(Refused, match="4 roles"):
        take("d")
    for name in ("b", "a"):
        roles.leave(name)
        now_s += 1
    take("d")  # in the place of `b`, which has been without controllers for longest
    assert roles.scope("a")
    with pytest.raises(Refused, match="no role 'b'"):
        roles.scope("b")
    now_s += arbitration.ROLE_LIFETIME_S
    take("c")
    with pytest.raises(Refused, match="no role 'a'"):
        roles.scope("a")
