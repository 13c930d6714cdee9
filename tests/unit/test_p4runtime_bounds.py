# SPDX-License-Identifier: Apache-2.0
"""What one client asks takes bounded memory, makes no other wait, and loses nothing that packets write."""

from __future__ import annotations

import asyncio
import threading

import grpc
import pytest
from finsy import P4CounterData, P4CounterEntry, P4Schema
from finsy.proto import p4r
from p4runtime_clients import (
    DEVICE,
    ROUTER,
    A,
    Client,
    Config,
    Server,
    client,
    files,
    to_port,
    update,
)

from railweave.switch.p4runtime import batches
from railweave.switch.p4runtime.batches import MAX_ATOMIC_UPDATES
from railweave.switch.p4runtime.service import MAX_READS, Service
from railweave.switch.p4runtime.stream import Overrun, Stream
from railweave.switch.pipeline import Pipeline

ATOMICITIES = (p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC)


async def test_others_are_answered_while_a_read_finds_nothing_in_many_wildcards(server: Server) -> None:
    async with client(server, load=True) as one, client(server, None) as other:
        await one.write(*(update("INSERT", to_port(1, A + n)) for n in range(8)))
        nothing = p4r.Entity(table_entry=p4r.TableEntry(priority=99))
        request = p4r.ReadRequest(device_id=DEVICE, entities=[nothing] * 20_000)
        long = asyncio.ensure_future(one.stub.Read(request).read())
        # Only when the Read has been taken up does the server answer the one who asks after it.
        for _ in range(3):
            await other.stub.Capabilities(p4r.CapabilitiesRequest(device_id=DEVICE))
        assert not long.done()
        long.cancel()


async def test_an_answer_shows_no_write_that_came_while_it_was_read(server: Server) -> None:
    async with client(server, load=True) as one, client(server, None) as other:
        await one.write(*(update("INSERT", to_port(1, A + n)) for n in range(8)))
        wildcard = p4r.Entity(table_entry=p4r.TableEntry())
        reading = one.stub.Read(p4r.ReadRequest(device_id=DEVICE, entities=[wildcard] * 5000))
        replies = aiter(reading)
        found = list((await anext(replies)).entities)
        await one.write(update("DELETE", to_port(1)), update("INSERT", to_port(2, A + 8)))
        found += [entity async for reply in replies for entity in reply.entities]
        keys = [entity.table_entry.match[0].exact.value for entity in found]
        each = len(keys) // 5000
        assert keys == keys[:each] * 5000
        assert (A + 8).to_bytes(6, "big") not in keys
        assert len(await other.read(wildcard)) == each


async def test_reads_that_nobody_takes_are_limited(server: Server) -> None:
    async with client(server, load=True) as one, client(server, None) as other:
        await one.write(*(update("INSERT", to_port(1, A + n)) for n in range(8)))
        wildcard = p4r.Entity(table_entry=p4r.TableEntry())
        request = p4r.ReadRequest(device_id=DEVICE, entities=[wildcard] * 10_000)
        reads = [one.stub.Read(request) for _ in range(MAX_READS)]
        await asyncio.gather(*(read.read() for read in reads))
        with pytest.raises(grpc.aio.AioRpcError, match=f"{MAX_READS} reads are in progress") as refused:
            await other.read(wildcard)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        for read in reads:
            read.cancel()
        await _until_read(other, wildcard)


async def _until_read(one: Client, wildcard: p4r.Entity) -> None:
    """Return when a Read is served again; the test has a deadline."""
    while True:
        try:
            await one.read(wildcard)
        except grpc.aio.AioRpcError:
            continue
        return


@pytest.mark.parametrize("atomicity", ATOMICITIES)
async def test_batches_that_are_done_in_one_go_are_limited(
    server: Server, monkeypatch: pytest.MonkeyPatch, atomicity: int
) -> None:
    async with client(server, load=True) as one:
        value = P4CounterData(packet_count=1)
        many = [update("MODIFY", P4CounterEntry("arrivals", index=3, data=value))] * (MAX_ATOMIC_UPDATES + 1)
        with pytest.raises(grpc.aio.AioRpcError, match="up to 128 updates, not 129") as refused:
            await one.write(*many, atomicity=atomicity)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.pipelines[0].arrays.counter("RouterIngress.arrivals", 3).packets == 0
        assert await one.write(*many[:-1], atomicity=atomicity) == []
        monkeypatch.setattr(batches, "MAX_ATOMIC_CELLS", 31)  # arrivals has 16
        wildcard = update("MODIFY", P4CounterEntry("arrivals", data=value))
        with pytest.raises(grpc.aio.AioRpcError, match=r"up to 31 cells.*not 32"):
            await one.write(wildcard, wildcard, atomicity=atomicity)


async def test_a_wildcard_is_undone(server: Server) -> None:
    async with client(server, load=True) as one:
        for index in range(16):
            value = P4CounterEntry("arrivals", index=index, data=P4CounterData(packet_count=index))
            await one.write(update("MODIFY", value))
        before = await one.read(P4CounterEntry("arrivals"))
        wildcard = update("MODIFY", P4CounterEntry("arrivals", data=P4CounterData(packet_count=99)))
        errors = await one.write(wildcard, update("DELETE", to_port(1)), atomicity=ATOMICITIES[0])
        assert len(errors) == 2
        assert await one.read(P4CounterEntry("arrivals")) == before


async def test_notifications_for_a_client_that_does_not_read_are_limited() -> None:
    stream = Stream()
    for _ in range(10_000):
        stream.notify(p4r.StreamMessageResponse(arbitration=p4r.MasterArbitrationUpdate(device_id=1)))
    assert stream.waiting == 0
    with pytest.raises(Overrun):
        await stream.next()


def test_reconciliation_loses_nothing_that_packets_write_meanwhile() -> None:
    """Packets are counted all the while; every one is in the counter of the program that runs at the end."""
    running: list[Pipeline] = []
    between_packets, enough = threading.Lock(), threading.Event()
    sent = 0

    def commit(pipeline: Pipeline) -> None:
        with between_packets:
            running.append(pipeline)

    def send() -> None:
        nonlocal sent
        while not enough.is_set():
            with between_packets:
                running[-1].inject(2, bytes(64))
                sent += 1

    async def main() -> None:
        service = Service(DEVICE, commit)
        config = P4Schema(*files(ROUTER)).get_pipeline_config()
        await service.config.set(Config(action=Config.VERIFY_AND_COMMIT, config=config))
        sender = threading.Thread(target=send)
        sender.start()
        try:
            for name in (b'"one.p4"', b'"two.p4"', b'"three.p4"', b'"four.p4"', b'"five.p4"'):
                config.p4_device_config = files(ROUTER)[1].read_bytes().replace(b'"router.p4"', name)
                await service.config.set(Config(action=Config.RECONCILE_AND_COMMIT, config=config))
        finally:
            enough.set()
            sender.join()
            service.close()

    asyncio.run(main())
    assert len(running) == 6
    assert running[-1].arrays.counter("RouterIngress.arrivals", 2).packets == sent
