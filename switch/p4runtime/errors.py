# SPDX-License-Identifier: Apache-2.0
"""Refusals of the P4Runtime server, and how they travel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import grpc
from finsy.proto import p4r, rpc_status
from google.protobuf import any_pb2

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
        """The same code as grpcio spells it."""
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
    """A request, or one update of it, that the server does not carry out."""

    def __init__(self, code: Code, message: str, do: str | None = None) -> None:
        """Answer with a canonical code, a sentence that names what was given and expected, and what to do.

        Without `do`, the advice is that of the code; with an empty one, the sentence has its own.
        """
        self.code = code
        self.message = explain(message, do=DO.get(code, "") if do is None else do)
        super().__init__(self.message)


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

    What `context.abort` raises does so at once, but is kept by the context, and keeps in turn the frames that
    it has come through with all that they hold, such as the context: only the garbage collector frees that.
    """
    context.set_code(code)
    context.set_details(message)
    context.set_trailing_metadata(metadata)


_METADATA_BYTES = 8192 * 3 // 4  # what gRPC's clients take by default, less the growth by base64
_MAX_WITH_MESSAGES = 512  # updates: the codes of more fill these bytes


def batch_status(results: Sequence[Refused | None]) -> rpc_status.Status:
    """Status of a batch with failures: one p4.v1.Error for every update, in order, OK ones included.

    The messages are left out where they would make the status longer than most clients take.
    """
    if len(results) <= _MAX_WITH_MESSAGES:
        status = _batch_status([(r.code, r.message) if r else (Code.OK, "") for r in results])
        if status.ByteSize() <= _METADATA_BYTES:
            return status
    return _batch_status([(r.code if r else Code.OK, "") for r in results])


def _batch_status(results: Sequence[tuple[Code, str]]) -> rpc_status.Status:
    packed = {}
    for code, text in set(results):
        packed[code, text] = any_pb2.Any()
        packed[code, text].Pack(p4r.Error(canonical_code=code, message=text))
    failed = sum(code is not Code.OK for code, _ in results)
    message = f"{failed} of {len(results)} updates failed; read the error of each in the details"
    return rpc_status.Status(code=Code.UNKNOWN, message=message, details=[packed[r] for r in results])
