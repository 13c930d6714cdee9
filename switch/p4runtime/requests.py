# SPDX-License-Identifier: Apache-2.0
"""Requests as bytes. Large ones are refused before they are parsed, because parsing cannot be interrupted."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

import grpc
from finsy.proto import p4r
from google.protobuf.message import DecodeError, Message

from railweave.switch.p4runtime.errors import Refused, exhausted, invalid, refuse
from railweave.switch.p4runtime.service import Service

MAX_BYTES = 1 << 20  # of a request without its program: parsed within 10 ms if it has 500,000 parts
MAX_PROGRAM_BYTES = 8 << 20  # of a request with its program; that of 256 lanes has 0.9 MB
MAX_WRITE_BYTES = 4 << 20  # gRPC's default, and so BMv2's limit
MAX_UPDATES = 1 << 17  # of a Write
MAX_BYTES_IN_PROGRESS = 16 << 20  # of all requests: parsed they take up to 40 times the memory
_MAX_FIELDS = 64  # of a message that is searched for the program
_PART_BYTES, _PART_FIELDS = 64 << 10, 1000  # of a Write, parsed at once

_Context = grpc.aio.ServicerContext[Any, Any]
_Push = p4r.SetForwardingPipelineConfigRequest
_Request = TypeVar("_Request", bound=Message)


class Requests:
    """Stands between gRPC and the service, all of whose methods may raise Refused."""

    def __init__(self, service: Service) -> None:
        """Begin with no request in progress."""
        self._service = service
        self._bytes = 0

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the methods for a server."""
        kinds = {
            "Write": p4r.WriteRequest,
            "SetForwardingPipelineConfig": _Push,
            "GetForwardingPipelineConfig": p4r.GetForwardingPipelineConfigRequest,
            "Capabilities": p4r.CapabilitiesRequest,
        }
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(
                self._unary(getattr(self._service, name), kind), response_serializer=_serialize
            )
            for name, kind in kinds.items()
        }
        methods["Read"] = grpc.unary_stream_rpc_method_handler(self._read, response_serializer=_serialize)
        methods["StreamChannel"] = grpc.stream_stream_rpc_method_handler(
            self._stream, response_serializer=_serialize
        )
        return grpc.method_handlers_generic_handler("p4.v1.P4Runtime", methods)

    def _unary(self, behaviour: Callable[..., Any], kind: type[Message]) -> Callable[..., Any]:
        async def call(data: bytes, context: _Context) -> Message | None:
            try:
                async with self._parsed(data, kind) as request:
                    answer: Message = await behaviour(request, context)
                    return answer
            except Refused as refusal:
                refuse(context, refusal.code.grpc, refusal.message)
                return None

        return call

    async def _read(self, data: bytes, context: _Context) -> AsyncIterator[Message]:
        try:
            async with (
                self._parsed(data, p4r.ReadRequest) as request,
                contextlib.aclosing(self._service.Read(request, context)) as answers,
            ):
                async for answer in answers:
                    yield answer
        except Refused as refusal:
            refuse(context, refusal.code.grpc, refusal.message)

    async def _stream(self, incoming: object, context: _Context) -> AsyncIterator[Message]:
        async def requests() -> AsyncIterator[p4r.StreamMessageRequest]:
            # Not `incoming`: it would make a reference cycle with the messages that it yields.
            while (data := await context.read()) is not grpc.aio.EOF:
                yield parse(data, p4r.StreamMessageRequest)

        try:
            async with contextlib.aclosing(self._service.StreamChannel(requests(), context)) as answers:
                async for answer in answers:
                    yield answer
        except Refused as refusal:
            refuse(context, refusal.code.grpc, refusal.message)

    @contextlib.asynccontextmanager
    async def _parsed(self, data: bytes, kind: type[_Request]) -> AsyncIterator[_Request]:
        size = len(data)
        if self._bytes + size > MAX_BYTES_IN_PROGRESS:
            raise exhausted(f"requests in progress have up to {MAX_BYTES_IN_PROGRESS} bytes together")
        self._bytes += size
        try:
            if kind is p4r.WriteRequest and _PART_BYTES < size <= MAX_WRITE_BYTES:
                request = kind()
                async for _ in self._service.turns.shared(merged(request, data)):
                    pass
                yield request
            else:
                yield parse(data, kind)
        finally:
            self._bytes -= size


def parse(data: bytes, kind: type[_Request]) -> _Request:
    """Return the request. Refused if it is malformed or too large, for which up to 64 fields are examined."""
    if len(data) > MAX_BYTES:
        program = _program_bytes(data) if kind is _Push else 0
        if len(data) - program > MAX_BYTES:
            limit = MAX_WRITE_BYTES if kind is p4r.WriteRequest else MAX_BYTES
            raise exhausted(f"a {kind.__name__} has up to {limit} bytes, a program not counted")
        if len(data) > MAX_PROGRAM_BYTES:
            raise exhausted(f"a request with a program has up to {MAX_PROGRAM_BYTES} bytes, not {len(data)}")
    request = kind()
    _merge(request, data)
    return request


def merged(request: Message, data: bytes) -> Iterator[None]:
    """Parse a Write in steps. Fields that follow each other are a message, too."""
    view, start = memoryview(data), 0
    for number, (_, begin, end) in enumerate(_fields(view), 1):
        if number > MAX_UPDATES or end - begin > MAX_BYTES:
            raise exhausted(f"a WriteRequest has up to {MAX_UPDATES} updates of up to {MAX_BYTES} bytes")
        if end - start >= _PART_BYTES or number % _PART_FIELDS == 0:
            _merge(request, view[start:end])
            start = end
        yield
    if len(data) - start > MAX_BYTES:
        raise invalid("not a WriteRequest: a field has an unknown type")
    _merge(request, view[start:])


def _merge(request: Message, data: bytes | memoryview) -> None:
    try:
        request.MergeFromString(bytes(data))
    except DecodeError as error:
        raise invalid(f"not a {type(request).__name__}: {error}") from None


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _program_bytes(data: bytes) -> int:
    """Return the size of config.p4_device_config, without parsing."""
    configs = _parts(memoryview(data), _Push.CONFIG_FIELD_NUMBER)
    number = p4r.ForwardingPipelineConfig.P4_DEVICE_CONFIG_FIELD_NUMBER
    return sum(len(part) for config in configs for part in _parts(config, number))


def _parts(data: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the values of a field that is bytes or a message."""
    for number, begin, end in itertools.islice(_fields(data), _MAX_FIELDS):
        if number == wanted:
            yield data[begin:end]


def _fields(data: memoryview) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each field, and where its bytes begin and end, up to a field of another type."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        begin = at
        if tag & 7 == 2:
            at += value
        elif tag & 7 != 0:
            return
        yield tag >> 3, begin, at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number of up to 64 bits and the place behind it, or 7, which is no field's tag."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return 7, at
