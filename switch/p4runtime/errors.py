# SPDX-License-Identifier: Apache-2.0
"""Refusals of the P4Runtime server, and how they travel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import grpc
from finsy.proto import p4r, rpc_status

from railweave.errors import explain


class Code(IntEnum):
    """Canonical codes (google.rpc.Code), as they stand in status messages."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13

    @property
    def grpc(self) -> grpc.StatusCode:
        """Return the same code as grpcio spells it."""
        return grpc.StatusCode[self.name]


DO: Mapping[Code, str] = {  # the next step of a client, where a refusal does not name its own
    Code.INVALID_ARGUMENT: "compare the request with the P4Info",
    Code.NOT_FOUND: "read what is there",
    Code.ALREADY_EXISTS: "send MODIFY",
    Code.PERMISSION_DENIED: "become primary",
    Code.RESOURCE_EXHAUSTED: "send less, or free some",
    Code.FAILED_PRECONDITION: "push a pipeline config first",
    Code.ABORTED: "correct that update",
    Code.OUT_OF_RANGE: "compare the request with the P4Info",
    Code.UNIMPLEMENTED: "leave it out",
    Code.INTERNAL: "report this",
}


class Refused(Exception):
    """A request or an update that the server does not carry out."""

    def __init__(self, code: Code, message: str, do: str | None = None) -> None:
        """Answer with a canonical code, a sentence, and the next step of the client.

        Without `do`, the next step is that of the code. With an empty `do`, the sentence contains it.
        """
        self.code = code
        self.message = explain(message, do=DO.get(code, "") if do is None else do)
        super().__init__(self.message)

    def again(self) -> Refused:
        """Return the same refusal without the frames that this one has come through."""
        return Refused(self.code, self.message, "")


invalid = partial(Refused, Code.INVALID_ARGUMENT)  # contradicts the specification or the P4Info
not_found = partial(Refused, Code.NOT_FOUND)  # names something that is not there
already_exists = partial(Refused, Code.ALREADY_EXISTS)
denied = partial(Refused, Code.PERMISSION_DENIED)
exhausted = partial(Refused, Code.RESOURCE_EXHAUSTED)  # exceeds a stated limit
failed_precondition = partial(Refused, Code.FAILED_PRECONDITION)  # not in the state that the switch is in
out_of_range = partial(Refused, Code.OUT_OF_RANGE)
unimplemented = partial(Refused, Code.UNIMPLEMENTED)  # well-formed, but this target cannot do it


def require(condition: object, message: str, error: Callable[[str], Refused] = invalid) -> None:
    """Refuse unless `condition` holds."""
    if not condition:
        raise error(message)


def require_fits(kind: p4r.Update.Type.ValueType, what: str, *, exists: bool) -> None:
    """Refuse to INSERT what exists, and to MODIFY or DELETE what does not."""
    require(kind != p4r.Update.INSERT or not exists, f"{what} exists already", already_exists)
    require(kind == p4r.Update.INSERT or exists, f"there is no {what}", not_found)


def refuse(
    context: grpc.aio.ServicerContext[Any, Any],
    code: grpc.StatusCode,
    message: str,
    metadata: tuple[tuple[str, bytes], ...] = (),
) -> None:
    """Have the RPC end with this status when its method returns.

    `context.abort` would end it at once. But the context keeps the exception, which keeps the frames that it
    came through, which hold the context. Only the garbage collector frees such a cycle.
    """
    context.set_code(code)
    context.set_details(message)
    context.set_trailing_metadata(metadata)


# gRPC's clients take 8 KiB of metadata by default. The message is sent alone and in the details. The details
# grow by a third in base64.
_METADATA_BYTES = 8192 - 512  # less other metadata
_MOST_DETAILS = 256  # more do not fit
_MESSAGE_BYTES, _LONE_MESSAGE_BYTES = 512, 4096  # with details, and without


def batch_status(results: Sequence[Refused | None], what: str) -> rpc_status.Status:
    """Return the status of a batch of `what` with failures.

    The message names the first failures. The details are one p4.v1.Error for every part of the batch, in
    order. If they are longer than most clients take, they have no messages. If they are still too long, they
    are left out.
    """
    status = rpc_status.Status(code=Code.UNKNOWN, message=_summary(results, what, _MESSAGE_BYTES))
    for texts in (True, False) if len(results) <= _MOST_DETAILS else ():
        del status.details[:]
        for result in results:
            code, message = (Code.OK, "") if result is None else (result.code, result.message)
            status.details.add().Pack(p4r.Error(canonical_code=code, message=message if texts else ""))
        if len(status.message) + status.ByteSize() * 4 // 3 <= _METADATA_BYTES:
            return status
    return rpc_status.Status(code=Code.UNKNOWN, message=_summary(results, what, _LONE_MESSAGE_BYTES))


def _summary(results: Sequence[Refused | None], what: str, limit: int) -> str:
    failed = ((number, result) for number, result in enumerate(results) if result is not None)
    text = f"{len(results) - results.count(None)} of {len(results)} {what} failed"
    for number, result in failed:
        # Other characters than ASCII's are three times as long in gRPC's message.
        reason = result.message.encode("ascii", "replace").decode()
        text += f"; number {number}: {result.code.name}: {reason}"
        if len(text) > limit:
            return text[: limit - 3] + "..."
    return text
