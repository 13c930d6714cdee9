# SPDX-License-Identifier: Apache-2.0
"""Random P4Runtime messages: well-formed messages with wrong contents, and malformed messages."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r
from google.protobuf.descriptor import FieldDescriptor as F
from google.protobuf.message import Message
from hostile.configs import mutilated

SERVICE = "/p4.v1.P4Runtime/"
UNARY: dict[str, type[Message]] = {
    "Write": p4r.WriteRequest,
    "Read": p4r.ReadRequest,
    "SetForwardingPipelineConfig": p4r.SetForwardingPipelineConfigRequest,
    "GetForwardingPipelineConfig": p4r.GetForwardingPipelineConfigRequest,
    "Capabilities": p4r.CapabilitiesRequest,
}
NUMBERS = (0, 1, 2, 3, 7, 255, 256, 511, 512, 65535, (1 << 31) - 1)
TEXTS = ("", "x", "a.b", "\u2603" * 50, "hit")
TIMEOUT_S = 120.0
DEPTH = 6
REPEATS = 5000  # of an item in a request, at most
HIGHEST = (1 << 128) - 1  # the honest primary's election id
MAX_REPLIES = 200  # that the client reads before it leaves, each of 256 entities


class Chaos:
    """Makes random messages. `ids` are valid ids of the program."""

    def __init__(self, rng: random.Random, p4info: p4i.P4Info, config: bytes, device: int) -> None:
        self.rng = rng
        self.p4info = p4info
        self.config = config
        self.device = device
        self.ids = tuple(sorted(_ids(p4info)))

    def unary(self) -> tuple[str, bytes]:
        """Return a method and a request for it."""
        name, kind = self.rng.choice(list(UNARY.items()))
        message = self.filled(kind())
        if self.rng.random() < 0.8:
            self._aim(message)
        if isinstance(message, p4r.SetForwardingPipelineConfigRequest) and self.rng.random() < 0.8:
            self._configure(message)
        return name, self._spoilt(message.SerializeToString())

    def stream(self) -> list[bytes]:
        """Return requests for one stream."""
        messages = []
        for _ in range(self.rng.randint(1, 4)):
            message = self.filled(p4r.StreamMessageRequest())
            if message.HasField("arbitration") and self.rng.random() < 0.8:
                message.arbitration.device_id = self.device
            messages.append(self._spoilt(message.SerializeToString()))
        return messages

    def filled(self, message: Any, depth: int = 0) -> Any:
        """Set some random fields, one field of each oneof, and their nested fields."""
        for field in message.DESCRIPTOR.fields:
            if field.containing_oneof is None and self.rng.random() < 0.4:
                self._fill(message, field, depth)
        for oneof in message.DESCRIPTOR.oneofs:
            self._fill(message, self.rng.choice(oneof.fields), depth)
        return message

    def _fill(self, message: Any, field: F, depth: int) -> None:
        if field.type == F.TYPE_MESSAGE:
            if depth >= DEPTH or (field.message_type.GetOptions().map_entry):
                return
            if field.is_repeated:
                self._repeat(getattr(message, field.name), depth)
            else:
                inner = getattr(message, field.name)
                inner.SetInParent()
                self.filled(inner, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(self._value(field) for _ in range(self.rng.randrange(4)))
        else:
            setattr(message, field.name, self._value(field))

    def _repeat(self, items: Any, depth: int) -> None:
        """Add some items. Sometimes repeat an item or a wildcard thousands of times."""
        for _ in range(self.rng.randrange(4)):
            self.filled(items.add(), depth + 1)
        if depth == 0 and self.rng.random() < 0.1:
            one = self.rng.choice(items) if items and self.rng.random() < 0.5 else self._wildcard(items.add())
            items.extend([one] * self.rng.randrange(REPEATS))

    def _wildcard(self, message: Any) -> Any:
        """Make a message a wildcard: an entity means all of its kind, an update means all cells."""
        message.Clear()
        if isinstance(message, p4r.Update):
            message.type = p4r.Update.MODIFY
        entity = message.entity if isinstance(message, p4r.Update) else message
        if isinstance(entity, p4r.Entity):
            kind = self.rng.choice(entity.DESCRIPTOR.fields)
            getattr(entity, kind.name).SetInParent()
            if isinstance(message, p4r.Update):
                entity.register_entry.register_id = self.rng.choice(self.p4info.registers).preamble.id
                entity.register_entry.data.bitstring = b"\1"
        return message

    def _value(self, field: F) -> Any:
        if field.type == F.TYPE_BYTES:
            return self.rng.randbytes(self.rng.choice((0, 1, 1, 2, 4, 6, 6, 17)))
        if field.type == F.TYPE_STRING:
            return self.rng.choice(TEXTS)
        if field.type == F.TYPE_BOOL:
            return self.rng.random() < 0.5
        if field.type == F.TYPE_ENUM:
            return self.rng.choice(field.enum_type.values).number
        if field.type in {F.TYPE_FLOAT, F.TYPE_DOUBLE}:
            return self.rng.choice((0.0, -1.0, 1e300, float("nan")))
        value = self.rng.choice(self.ids) if self.rng.random() < 0.5 else self.rng.choice(NUMBERS)
        signed = field.type in {F.TYPE_INT32, F.TYPE_INT64, F.TYPE_SINT32, F.TYPE_SINT64}
        return -value if signed and self.rng.random() < 0.3 else value

    def _aim(self, message: Any) -> None:
        """Set the device id and the primary's election id in a message."""
        names = {field.name for field in message.DESCRIPTOR.fields}
        if "device_id" in names:
            message.device_id = self.device
        if "election_id" in names:
            message.election_id.CopyFrom(U128.encode(HIGHEST))

    def _configure(self, message: Any) -> None:
        message.config.p4info.CopyFrom(self.p4info)
        message.config.p4_device_config = self.config
        if self.rng.random() < 0.6:
            message.config.p4_device_config = mutilated(self.rng, self.config)
        elif self.rng.random() < 0.6:
            data = self._spoilt(self.p4info.SerializeToString(), always=True)
            try:
                message.config.p4info.ParseFromString(data)
            except Exception:
                message.config.p4info.Clear()

    def _spoilt(self, data: bytes, always: bool = False) -> bytes:
        if not always and self.rng.random() < 0.8:
            return data
        changed = bytearray(data)
        for _ in range(self.rng.randint(1, 4)):
            if changed:
                changed[self.rng.randrange(len(changed))] = self.rng.randrange(256)
        return bytes(changed[: self.rng.randrange(len(changed) + 1)] if self.rng.random() < 0.3 else changed)


def _ids(p4info: p4i.P4Info) -> Iterator[int]:
    """Yield the ids of all objects, fields and parameters."""
    for field, value in p4info.ListFields():
        if field.name != "pkg_info" and field.is_repeated:
            for item in value:
                if hasattr(item, "preamble"):
                    yield item.preamble.id
    yield from range(1, 5)


class Caller:
    """Sends raw bytes to the methods. The switch itself must answer each request with a status."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._calls = {name: channel.unary_unary(SERVICE + name) for name in UNARY if name != "Read"}
        self._read = channel.unary_stream(SERVICE + "Read")
        self._stream = channel.stream_stream(SERVICE + "StreamChannel")

    def unary(self, name: str, request: bytes) -> grpc.StatusCode:
        """Call a method and return the status."""
        try:
            if name == "Read":
                replies = self._read(request, timeout=TIMEOUT_S)
                for _ in itertools.islice(replies, MAX_REPLIES):
                    pass
                replies.cancel()
            else:
                self._calls[name](request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            return _own(error, name, request)
        return grpc.StatusCode.OK

    def stream(self, requests: list[bytes]) -> grpc.StatusCode:
        """Open a stream, send all requests, and close the stream. Return the status."""
        try:
            list(self._stream(iter(requests), timeout=TIMEOUT_S))
        except grpc.RpcError as error:
            return _own(error, "StreamChannel", requests[0])
        return grpc.StatusCode.OK


def _own(error: Any, name: str, request: bytes) -> grpc.StatusCode:
    """Return the status. Raise AssertionError for an unhandled exception or a missing answer."""
    code = error.code()
    details = str(error.details())
    unanswered = code in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE}
    # gRPC itself answers requests that are no valid messages.
    unhandled = code is grpc.StatusCode.INTERNAL or "Unexpected <class" in details
    unparsed = "DecodeError" in details or "deserializing" in details
    wrong = unanswered or (unhandled and not unparsed)
    assert not wrong, f"{name}({request.hex()}): {code} {details}"
    return code  # type: ignore[no-any-return]
