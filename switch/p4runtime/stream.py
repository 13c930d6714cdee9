# SPDX-License-Identifier: Apache-2.0
"""The bidirectional stream of one controller: arbitration now; packets and digests pass here too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from finsy.proto import p4r
from railweave.switch.p4runtime.arbitration import Arbitration, Notice
from railweave.switch.p4runtime.errors import Code

_QUEUED_MESSAGES = 4096  # for a controller that does not read


class Stream:
    """What waits to be sent to one controller. Messages beyond the bound are dropped, as packets may be."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._queue: asyncio.Queue[p4r.StreamMessageResponse] = asyncio.Queue(_QUEUED_MESSAGES)

    def send(self, message: p4r.StreamMessageResponse) -> bool:
        """Queue a message; False if there is no room."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            return False
        return True

    async def next(self) -> p4r.StreamMessageResponse:
        """Wait for a message to send."""
        return await self._queue.get()


class Streams:
    """All controllers of a device."""

    def __init__(self, arbitration: Arbitration) -> None:
        """No controller is connected."""
        self._arbitration = arbitration

    async def serve(self, requests: AsyncIterator[p4r.StreamMessageRequest], stream: Stream) -> None:
        """Take the controller's messages until it leaves; Refused: close the stream with that status."""
        try:
            async for request in requests:
                self._take(stream, request)
        finally:
            _deliver(self._arbitration.leave(stream))

    def _take(self, stream: Stream, request: p4r.StreamMessageRequest) -> None:
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            _deliver(self._arbitration.update(stream, request.arbitration))
        elif not self._arbitration.is_primary(stream):
            stream.send(_stream_error(Code.PERMISSION_DENIED, "only the primary may send this", request))
        elif kind == "packet":
            stream.send(_stream_error(Code.UNIMPLEMENTED, "packet-out is not supported", request))
        elif kind == "digest_ack":
            stream.send(_stream_error(Code.NOT_FOUND, "no digest list waits for this", request))
        else:
            stream.send(
                _stream_error(Code.INVALID_ARGUMENT, "the message is empty or of unknown kind", request)
            )


def _deliver(notices: Iterable[Notice]) -> None:
    for stream, message in notices:
        if isinstance(stream, Stream):
            stream.send(message)


def _stream_error(code: Code, message: str, request: p4r.StreamMessageRequest) -> p4r.StreamMessageResponse:
    error = p4r.StreamError(canonical_code=code, message=message)
    match request.WhichOneof("update"):
        case "packet":
            error.packet_out.packet_out.CopyFrom(request.packet)
        case "digest_ack":
            error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
        case _:
            error.other.SetInParent()
    return p4r.StreamMessageResponse(error=error)
