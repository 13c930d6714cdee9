# SPDX-License-Identifier: Apache-2.0
"""Refusals of the P4Runtime server, and how they travel."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from itertools import islice, product
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
_METADATA_BYTES = 8192 - 384  # less other metadata
_MESSAGE_BYTES, _LEAST_MESSAGE_BYTES = 512, 128  # with details
_REASONS_BYTES = 2048  # without details, before the numbers of all failures
_MOST_NUMBERS = 8192  # of failures: the message is made within 10 ms
# The usual URL of the type, and the shortest. Bytes of an error without URL, of a code, of a text's tags.
_ERROR_URLS = "type.googleapis.com/p4.v1.Error", "/p4.v1.Error"
_OK_BYTES, _CODE_BYTES, _TEXT_BYTES = 4, 4, 8

_Failures = dict[int, Refused]  # the first ones, by number in the batch


def batch_status(results: Sequence[Refused | None], what: str) -> rpc_status.Status:
    """Return the status of a batch of `what` with failures, no longer than most clients take.

    The details are one p4.v1.Error for every part of the batch, in order, with messages as long as there is
    room. If there is no room for all errors, those behind the last failure are left out. If the rest is still
    too long, there are no details. Then the message has the number and the code of each failure.
    """
    failed = ((number, result) for number, result in enumerate(results) if result is not None)
    failures = dict(islice(failed, _MOST_NUMBERS))
    total = len(results) - results.count(None)
    last = next(number for number in reversed(range(len(results))) if results[number] is not None)
    reasons = f"{total} of {len(results)} {what} failed" + _reasons(failures)
    for count, url in product((len(results), last + 1), _ERROR_URLS):
        room = _METADATA_BYTES * 3 // 4 - (_OK_BYTES + len(url)) * count - _CODE_BYTES * total
        limit = min(room * 4 // 7 - _TEXT_BYTES, _MESSAGE_BYTES)  # the message is sent twice
        if limit >= _LEAST_MESSAGE_BYTES:
            status = rpc_status.Status(code=Code.UNKNOWN, message=_cut(reasons, limit))
            room -= len(status.message) * 3 // 4 + 1 + status.ByteSize()
            _add_details(status, results[:count], url, room)
            return status
    message = _cut(reasons, _REASONS_BYTES) + _numbers(failures) + "..." * (total > _MOST_NUMBERS)
    return rpc_status.Status(code=Code.UNKNOWN, message=_cut(message, _METADATA_BYTES))


def _add_details(status: rpc_status.Status, results: Sequence[Refused | None], url: str, room: int) -> None:
    for result in results:
        error = p4r.Error()
        if result is not None:
            error.canonical_code = result.code
            room -= _TEXT_BYTES + len(result.message.encode())
            error.message = result.message if room >= 0 else ""
        status.details.add(type_url=url, value=error.SerializeToString())


def _reasons(failures: _Failures) -> str:
    """Return numbers, codes and messages of the first failures."""
    text = ""
    for number, result in failures.items():
        # gRPC sends three characters for each of the others.
        text += f"; number {number}: {result.code.name}: {re.sub('[^ -$&-~]', '?', result.message)}"
        if len(text) > _REASONS_BYTES:
            break
    return text


def _numbers(failures: _Failures) -> str:
    """Return the numbers of the failures by code. Neighbours are one range."""
    ranges: dict[str, list[list[int]]] = {}
    for number, result in failures.items():
        known = ranges.setdefault(result.code.name, [])
        if known and known[-1][-1] == number - 1:
            known[-1][1:] = [number]
        else:
            known.append([number])
    texts = (
        f"{code} {', '.join('-'.join(map(str, one)) for one in known)}" for code, known in ranges.items()
    )
    return "; all failures: " + "; ".join(texts)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
