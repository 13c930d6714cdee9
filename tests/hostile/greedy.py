# SPDX-License-Identifier: Apache-2.0
"""Clients that ask for as much as they can and read no answers. Each client reaches a stated limit."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc, stratum
from hostile.messages import HIGHEST, SERVICE

MANY_STREAMS = 300
MANY_READS = 80
MANY_ENTITIES = 250_000  # 1 MB
MANY_UPDATES = 2000
MANY_NOTICES, NOTICE_BYTES = 4000, 8 << 10  # more than gRPC's buffers hold
TIMEOUT_S = 60.0


class Greedy:
    """Sends large requests to a switch whose primary has the election id HIGHEST."""

    def __init__(self, address: str, device: int, p4info: p4i.P4Info) -> None:
        """Use separate channels, because unread answers must not delay other clients."""
        self._address = address
        self._device = device
        self._register = p4info.registers[0].preamble.id

    def ask_everything(self) -> None:
        """Send each kind of request once. Raise AssertionError with the name of an unreached limit."""
        for ask, limit in (
            (self._long_read, "up to 1048576 bytes"),
            (self._unread_reads, "requests in progress|reads are in progress"),
            (self._unread_streams, "streams are open"),
            (self._unread_notices, "does not read them"),
            (self._wildcard_batch, "up to 64 updates"),
            (self._wildcard_cells, "up to 4096 cells"),
        ):
            refusals = list(ask())
            assert any(re.search(f"RESOURCE_EXHAUSTED: .*({limit})", refusal) for refusal in refusals), (
                f"{ask.__name__}: {limit!r} is in none of {refusals[:3]}"
            )
        self._wildcard_writes()

    def _long_read(self) -> Iterator[str]:
        with self._channel() as channel:
            yield from _refusals([p4r_grpc.P4RuntimeStub(channel).Read(self._reading(2 * MANY_ENTITIES))])

    def _unread_reads(self) -> Iterator[str]:
        request = self._reading(MANY_ENTITIES).SerializeToString()
        with self._channel() as channel:
            read = channel.unary_stream(SERVICE + "Read", response_deserializer=p4r.ReadResponse.FromString)
            yield from _refusals([read(request, timeout=TIMEOUT_S) for _ in range(MANY_READS)])

    def _unread_streams(self) -> Iterator[str]:
        ended = threading.Event()
        with self._channel() as one, self._channel() as two:
            stubs = [p4r_grpc.P4RuntimeStub(channel) for channel in (one, two)]
            yield from _refusals([stubs[n % 2].StreamChannel(_until(ended)) for n in range(MANY_STREAMS)])
            ended.set()

    def _unread_notices(self) -> Iterator[str]:
        """Claim to be primary many times, and do not read the notices that confirm it."""
        said = threading.Event()

        def claims() -> Iterator[p4r.StreamMessageRequest]:
            yield from (self._hello(1 + n) for n in range(MANY_NOTICES))
            said.set()

        with self._channel() as channel:
            unread = p4r_grpc.P4RuntimeStub(channel).StreamChannel(claims(), timeout=TIMEOUT_S)
            unread.add_done_callback(lambda _: said.set())
            said.wait()
            try:
                for _ in unread:
                    pass
            except grpc.RpcError as error:
                yield _refusal(error)

    def _wildcard_batch(self) -> Iterator[str]:
        yield self._written(MANY_UPDATES, p4r.WriteRequest.ROLLBACK_ON_ERROR)

    def _wildcard_cells(self) -> Iterator[str]:
        yield self._written(1, p4r.WriteRequest.DATAPLANE_ATOMIC)

    def _wildcard_writes(self) -> None:
        """Write wildcards. The switch allows them, because they take turns with other requests."""
        refusal = self._written(MANY_UPDATES, p4r.WriteRequest.CONTINUE_ON_ERROR)
        assert not refusal, refusal

    def _written(self, count: int, atomicity: Any) -> str:
        """Send `count` updates of all cells of a register. Return the refusal or an empty string."""
        update = p4r.Update(type=p4r.Update.MODIFY)
        update.entity.register_entry.register_id = self._register
        update.entity.register_entry.data.bitstring = b"\1"
        request = p4r.WriteRequest(
            device_id=self._device,
            election_id=U128.encode(HIGHEST),
            updates=[update] * count,
            atomicity=atomicity,
        )
        with self._channel() as channel:
            try:
                p4r_grpc.P4RuntimeStub(channel).Write(request, timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                return _refusal(error)
        return ""

    def _channel(self) -> grpc.Channel:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        return grpc.insecure_channel(self._address, options=options)

    def _reading(self, count: int) -> p4r.ReadRequest:
        tables = p4r.Entity(table_entry=p4r.TableEntry())
        return p4r.ReadRequest(device_id=self._device, entities=[tables] * count)

    def _hello(self, election_id: int) -> p4r.StreamMessageRequest:
        hello = p4r.StreamMessageRequest()
        hello.arbitration.device_id = self._device
        hello.arbitration.election_id.CopyFrom(U128.encode(election_id))
        hello.arbitration.role.name = "noisy"
        config = stratum.P4RoleConfig()
        config.packet_in_filter.value = bytes(NOTICE_BYTES)
        hello.arbitration.role.config.Pack(config)
        return hello


def _until(ended: threading.Event, *first: p4r.StreamMessageRequest) -> Iterator[p4r.StreamMessageRequest]:
    yield from first
    ended.wait()


def _refusals(calls: Sequence[Any]) -> list[str]:
    """Wait until one call ends without being read. Return the refusals of all ended calls."""
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for call in calls:
        call.add_done_callback(done.put)
    found = []
    try:
        found.append(_refusal(done.get(timeout=TIMEOUT_S)))
        while True:
            found.append(_refusal(done.get_nowait()))
    except queue.Empty:
        return found
    finally:
        for call in calls:
            call.cancel()


def _refusal(call: Any) -> str:
    return f"{call.code().name}: {call.details()}"
