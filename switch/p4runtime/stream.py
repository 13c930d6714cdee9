# SPDX-License-Identifier: Apache-2.0
"""The bidirectional streams of controllers: arbitration, packets, digests, and time-outs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

from finsy.proto import p4r

from railweave.switch.p4runtime.arbitration import Arbitration, ElectionIdInUse, Notice
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import (
    Code,
    Refused,
    denied,
    exhausted,
    failed_precondition,
    invalid,
    require,
)
from railweave.switch.p4runtime.packet_io import MAX_PACKET_BYTES
from railweave.switch.p4runtime.roles import Scope
from railweave.switch.p4runtime.turns import Turns
from railweave.switch.ports import PortError

# Limits of a controller that does not read. Packets and errors beyond them are dropped.
_QUEUED_MESSAGES = 4096
_QUEUED_BYTES = 16 << 20
_QUEUED_ERROR_BYTES = 256 << 10  # with errors on top: any client is sent these, only primaries the rest
_ECHOED_BYTES = 64 << 10  # of a refused message, in its error
_UNREAD = "too many notifications wait for this controller, which does not read them"
# Arbitration is not dropped for packets; a stream that lets it pile up is ended.
_QUEUED_NOTICE_BYTES = 4 << 20
_LEAST_NOTICE_BYTES = 16 << 10  # counted for each: up to 256 of them
_ENDING_S = 0.1  # for the end of a client's old stream to arrive


class Stream:
    """Messages that wait to be sent to one controller."""

    def __init__(self) -> None:
        """Begin with no message."""
        self._waiting: deque[tuple[p4r.StreamMessageResponse, int]] = deque()
        self._bytes = 0
        self._notice_bytes = 0
        self._end: tuple[Code, str] | None = None
        self._ready = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Return how many messages have not been sent yet."""
        return len(self._waiting)

    def send(self, message: p4r.StreamMessageResponse) -> bool:
        """Queue a message; False if there is no room."""
        size = message.ByteSize()
        most = _QUEUED_ERROR_BYTES if message.HasField("error") else _QUEUED_BYTES
        if self._end or len(self._waiting) >= _QUEUED_MESSAGES or self._bytes + size > most:
            return False
        self._queue(message, size)
        return True

    def notify(self, message: p4r.StreamMessageResponse) -> None:
        """Queue a message that must not be lost: if there is no room, all are dropped and the stream ends."""
        size = message.ByteSize()
        self._notice_bytes += max(size, _LEAST_NOTICE_BYTES)
        if self._notice_bytes <= _QUEUED_NOTICE_BYTES:
            self._queue(message, size)
        else:
            self._waiting.clear()
            self.end(Code.RESOURCE_EXHAUSTED, _UNREAD)

    def _queue(self, message: p4r.StreamMessageResponse, size: int) -> None:
        self._waiting.append((message, size))
        self._bytes += size
        self._ready.set()

    def end(self, code: Code = Code.OK, message: str = "") -> None:
        """End the stream with this status, after the messages that wait."""
        self._end = self._end or (code, message)
        self._ready.set()

    async def next(self) -> p4r.StreamMessageResponse | None:
        """Wait for a message to send; None, or Refused, after the last."""
        await self._ready.wait()
        if not self._waiting and self._end:
            code, why = self._end
            if code is Code.OK:
                return None
            # A new refusal: that of `serve` refers to frames that refer to this stream.
            raise Refused(code, why, "")
        message, size = self._waiting.popleft()
        self._bytes -= size
        if message.HasField("arbitration"):
            self._notice_bytes -= max(size, _LEAST_NOTICE_BYTES)
        if not self._waiting and not self._end:
            self._ready.clear()
        return message


class Streams:
    """All controllers of a device."""

    def __init__(
        self, arbitration: Arbitration, committed: Callable[[], Device | None], turns: Turns
    ) -> None:
        """Begin with no controller; `committed` returns the device that packets go through."""
        self._arbitration = arbitration
        self._committed = committed
        self._turns = turns
        self._left = asyncio.Event()  # a stream has ended

    async def serve(self, requests: AsyncIterator[p4r.StreamMessageRequest], stream: Stream) -> None:
        """Take the controller's messages until it leaves. A refusal ends the stream with its status."""
        try:
            async for request in requests:
                if request.HasField("arbitration"):
                    await self._arbitrate(stream, request.arbitration)
                else:
                    self._take(stream, request)
        except Refused as refusal:
            stream.end(refusal.code, refusal.message)
        finally:
            _deliver(self._arbitration.leave(stream))
            self._left.set()
            stream.end()

    def tell_primaries(self, message: p4r.StreamMessageResponse, may_hear: Callable[[Scope], bool]) -> None:
        """Send a message to the primary of every role that may get it, if its stream has room."""
        for stream, scope in self.primaries():
            if may_hear(scope):
                stream.send(message)

    def primaries(self) -> list[tuple[Stream, Scope]]:
        """Return the primary's stream of every role that has a primary, with the role's rights."""
        return self._arbitration.primaries()

    async def _arbitrate(self, stream: Stream, message: p4r.MasterArbitrationUpdate) -> None:
        """Elect a primary. It is accepted only after a Write of the previous primary is complete."""
        _deliver(await self._update(stream, message))
        if self._arbitration.must_wait(stream):
            async with self._turns.exclusive:
                pass
        _deliver([self._arbitration.accept(stream)])

    async def _update(self, stream: Stream, message: p4r.MasterArbitrationUpdate) -> list[Notice]:
        """Elect. The end of a client's old stream may arrive after its new stream: wait for it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_S):
                while True:
                    try:
                        return self._arbitration.update(stream, message)
                    except ElectionIdInUse:
                        self._left.clear()
                        await self._left.wait()
        return self._arbitration.update(stream, message)

    def _take(self, stream: Stream, request: p4r.StreamMessageRequest) -> None:
        kind = request.WhichOneof("update")
        try:
            if not self._arbitration.is_primary(stream):
                raise denied("only the primary may send this", "become primary")
            device = self._committed()
            if device is None:
                raise failed_precondition("No forwarding pipeline config set for this device")
            if kind == "packet":
                _packet_out(device, request.packet)
            elif kind == "digest_ack":
                device.digests.acknowledge(request.digest_ack)
            else:
                raise invalid(
                    "expected is an arbitration, a packet or a digest_ack, not " + (kind or "nothing")
                )
        except Refused as refusal:
            stream.send(_stream_error(refusal, request))


def _packet_out(device: Device, message: p4r.PacketOut) -> None:
    inward = device.translation.packet_out(message)
    packet = device.packet_out.encode(inward.metadata) + inward.payload
    most, size = MAX_PACKET_BYTES, len(packet)
    require(size <= most, f"a packet has up to {most} bytes with its header, not {size}")
    require(device.pipeline.cpu_port is not None, "the switch has no CPU port; see --cpu-port")
    try:
        device.pipeline.packet_out(packet)
    except PortError as error:
        raise exhausted(str(error), "") from None


def _deliver(notices: Iterable[Notice]) -> None:
    for stream, message in notices:
        stream.notify(message)


def _stream_error(refusal: Refused, request: p4r.StreamMessageRequest) -> p4r.StreamMessageResponse:
    error = p4r.StreamError(canonical_code=refusal.code, message=refusal.message)
    match request.WhichOneof("update"):
        case _ if request.ByteSize() > _ECHOED_BYTES:
            pass
        case "packet":
            error.packet_out.packet_out.CopyFrom(request.packet)
        case "digest_ack":
            error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
        case _:
            error.other.SetInParent()
    return p4r.StreamMessageResponse(error=error)
