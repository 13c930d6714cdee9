# SPDX-License-Identifier: Apache-2.0
"""Refusals of the P4Runtime server, and how they travel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import grpc
from finsy.proto import p4r, rpc_status
from google.protobuf import any_pb2


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


class Refused(Exception):
    """A request, or one update of it, that the server does not carry out."""

    def __init__(self, code: Code, message: str) -> None:
        """Answer with a canonical code and a sentence that says what was expected."""
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> Refused:
    """The request contradicts the specification or the P4Info."""
    return Refused(Code.INVALID_ARGUMENT, message)


def not_found(message: str) -> Refused:
    """The request names something that is not there."""
    return Refused(Code.NOT_FOUND, message)


def unimplemented(message: str) -> Refused:
    """The request is well-formed, but this target cannot do it."""
    return Refused(Code.UNIMPLEMENTED, message)


def require(condition: object, error: Callable[[str], Refused], message: str) -> None:
    """Refuse unless `condition` holds."""
    if not condition:
        raise error(message)


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
    message = f"{failed} of {len(results)} updates failed"
    return rpc_status.Status(code=Code.UNKNOWN, message=message, details=[packed[r] for r in results])
