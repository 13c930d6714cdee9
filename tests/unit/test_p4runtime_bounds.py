# SPDX-License-Identifier: Apache-2.0
"""A client's requests use bounded memory, do not delay other clients, and lose no data of packets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from finsy import P4CounterData, P4CounterEntry, P4MulticastGroupEntry
from finsy.proto import p4i, p4r
from p4runtime_clients import (
    DEVICE,
    ROUTER,
    SCHEMAS,
    A,
    Client,
    Config,
    Server,
    client,
    codes,
    refused,
    to_port,
    update,
)

from railweave.switch.p4runtime import batches, requests
from railweave.switch.p4runtime.arbitration import Arbitration
from railweave.switch.p4runtime.batches import MAX_ATOMIC_UPDATES
from railweave.switch.p4runtime.errors import Code, Refused
from railweave.switch.p4runtime.reads import MAX_READS
from railweave.switch.p4runtime.requests import parse
from railweave.switch.p4runtime.stream import Stream, Streams
from railweave.switch.p4runtime.turns import Turns

WILDCARD = p4r.Entity(table_entry=p4r.TableEntry())
ATOMICITIES = (p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC)


@asynccontextmanager
async def filled(server: Server) -> AsyncIterator[tuple[Client, Client]]:
    """Yield a client that has written eight entries, and a second client."""
    async with client(server, load=True) as one, client(server, None) as other:
        await one.write(*(update("INSERT", to_port(1, A + n)) for n in range(8)))
        yield one, other


async def test_others_are_answered_while_a_read_finds_nothing_in_many_wildcards(server: Server) -> None:
    async with filled(server) as (one, other):
        nothing = p4r.Entity(table_entry=p4r.TableEntry(priority=99))
        request = p4r.ReadRequest(device_id=DEVICE, entities=[nothing] * 20_000)
        long = asyncio.ensure_future(one.stub.Read(request).read())
        # The server answers the other client only after it has begun the Read.
        for _ in range(3):
            await other.stub.Capabilities(p4r.CapabilitiesRequest(device_id=DEVICE))
        assert not long.done()
        long.cancel()


async def test_reads_that_nobody_takes_are_limited(server: Server) -> None:
    async with filled(server) as (one, other):
        request = p4r.ReadRequest(device_id=DEVICE, entities=[WILDCARD] * 10_000)
        reads = [one.stub.Read(request) for _ in range(MAX_READS)]
        await asyncio.gather(*(read.read() for read in reads))
        await refused(other.read(WILDCARD), "RESOURCE_EXHAUSTED", f"{MAX_READS} reads are in progress")
        for read in reads:
            read.cancel()
        await _until_read(other)


async def _until_read(one: Client) -> None:
    """Return when the server serves a Read again. The test has a deadline."""
    while True:
        try:
            await one.read(WILDCARD)
        except grpc.aio.AioRpcError:
            continue
        return


@pytest.mark.parametrize("atomicity", ATOMICITIES)
async def test_batches_that_are_done_in_one_go_are_limited(
    router: Client, monkeypatch: pytest.MonkeyPatch, atomicity: int
) -> None:
    value = P4CounterData(packet_count=1)
    many = [update("MODIFY", P4CounterEntry("arrivals", index=3, data=value))] * (MAX_ATOMIC_UPDATES + 1)
    if atomicity == p4r.WriteRequest.ROLLBACK_ON_ERROR:
        assert await router.write(*many, atomicity=atomicity) == []
    else:
        call = router.write(*many, atomicity=atomicity)
        await refused(call, "UNIMPLEMENTED", "up to 64 updates, not 65")
        assert (
            router.server.pipelines[0].arrays.counters("RouterIngress.arrivals", range(3, 4))[0].packets == 0
        )
    assert await router.write(*many[:-1], atomicity=atomicity) == []
    beyond = update("MODIFY", P4CounterEntry("arrivals", index=16, data=value))
    assert codes(await router.write(many[0], beyond, atomicity=atomicity)) == ["ABORTED", "OUT_OF_RANGE"]
    monkeypatch.setattr(batches, "MAX_KEPT_CELLS", 31)  # arrivals has 16
    wildcard = update("MODIFY", P4CounterEntry("arrivals", data=value))
    call = router.write(wildcard, wildcard, atomicity=atomicity)
    await refused(call, "UNIMPLEMENTED", "up to 31 cells.*not 32")


async def test_updates_are_limited_in_length(router: Client) -> None:
    group = P4MulticastGroupEntry(4, replicas=[(1, n) for n in range(3000)])
    [error] = await router.write(update("INSERT", group))
    assert error.canonical_code == Code.RESOURCE_EXHAUSTED
    call = router.write(update("INSERT", group), atomicity=p4r.WriteRequest.DATAPLANE_ATOMIC)
    await refused(call, "UNIMPLEMENTED", "up to 16384 bytes of updates")


async def test_requests_are_limited_before_they_are_parsed(router: Client) -> None:
    config = SCHEMAS[ROUTER].get_pipeline_config()
    push = Config(device_id=DEVICE, election_id=router.election_id, action=Config.VERIFY, config=config)
    push.config.p4_device_config += b" " * (2 << 20)
    await router.stub.SetForwardingPipelineConfig(push)
    push.config.p4_device_config += b" " * (4 << 20)
    push.config.p4info.pkg_info.doc.brief = "x" * (1 << 20)
    many = [p4r.Entity()] * (1 << 20)
    for call in (router.stub.SetForwardingPipelineConfig(push), router.read(*many)):
        await refused(call, "RESOURCE_EXHAUSTED", "up to 1048576 bytes")
    await router.stream.write(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=bytes(1 << 20))))
    await refused(router.stream.read(), "RESOURCE_EXHAUSTED", "up to 1048576 bytes")


def test_a_push_is_no_larger_for_being_hidden() -> None:
    """The size limit leaves out only the program, also if the message repeats the program."""
    program = p4r.ForwardingPipelineConfig(p4_device_config=bytes(1 << 20))
    for config, fits in (
        (program.SerializeToString() * 3, True),
        (p4i.P4Info(pkg_info=p4i.PkgInfo(name="x" * (1 << 20))).SerializeToString(), False),
        (b"\x10\x01" * (1 << 20) + program.SerializeToString(), False),  # unknown fields
    ):
        request = b"\x2a" + _varint(len(config)) + config
        if fits:
            assert len(parse(request, Config).config.p4_device_config) == 1 << 20
            continue
        with pytest.raises(Refused, match="up to 1048576 bytes"):
            parse(request, Config)


def _varint(number: int) -> bytes:
    groups = [number >> shift & 0x7F for shift in range(0, 35, 7)]
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


async def test_requests_in_progress_are_limited_together(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(server) as (one, other):
        request = p4r.ReadRequest(device_id=DEVICE, entities=[WILDCARD] * 10_000)
        monkeypatch.setattr(requests, "MAX_BYTES_IN_PROGRESS", request.ByteSize() + 10)
        reading = one.stub.Read(request)
        await reading.read()
        await refused(other.read(*[WILDCARD] * 100), "RESOURCE_EXHAUSTED", "requests in progress")
        reading.cancel()
        await _until_read(other)


@pytest.mark.parametrize(("length", "fits"), [(1, 256), (1 << 19, 7)])
async def test_notifications_for_a_client_that_does_not_read_are_limited(length: int, fits: int) -> None:
    stream = Stream()
    notice = p4r.StreamMessageResponse(arbitration=p4r.MasterArbitrationUpdate(device_id=1))
    notice.arbitration.role.config.value = bytes(length)
    for _ in range(fits):
        stream.notify(notice)
    assert stream.waiting == fits
    stream.notify(notice)
    assert stream.waiting == 0
    with pytest.raises(Refused, match="does not read them"):
        await stream.next()


@pytest.mark.parametrize(("size", "least", "echoed"), [(1 << 10, 200, True), (1 << 17, 1000, False)])
async def test_errors_for_a_client_that_does_not_read_are_limited(
    size: int, least: int, echoed: bool
) -> None:
    """A client without a role also gets an error per packet. The error does not contain a large packet."""
    refused = p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=bytes(size)))

    async def requests() -> AsyncIterator[p4r.StreamMessageRequest]:
        for _ in range(5000):
            yield refused

    stream = Stream()
    await Streams(Arbitration(DEVICE), lambda: None, Turns()).serve(requests(), stream)
    errors = [message.error for _ in range(stream.waiting) if (message := await stream.next())]
    assert len(errors) >= least
    assert sum(error.ByteSize() for error in errors) <= 256 << 10
    assert {error.packet_out.packet_out == refused.packet for error in errors} == {echoed}
