# SPDX-License-Identifier: Apache-2.0
"""Refuse requests that cannot be parsed, with few lines in the log. gRPC would log a traceback for each."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from railweave.errors import explain

LOG = logging.getLogger(__name__)
PAUSE_S = 10.0  # between lines in the log

Context = grpc.aio.ServicerContext[Any, Any]


class RefuseMalformed(grpc.aio.ServerInterceptor):
    """Answers malformed requests with INVALID_ARGUMENT. In a stream, the servicer gets None instead."""

    def __init__(self) -> None:
        """Start without refused requests."""
        self._quiet_until = 0.0  # of monotonic()
        self._unsaid = 0  # refused since the last line

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the method's handler with a parser that catches DecodeError."""
        handler = await continuation(details)
        if handler is None or handler.request_deserializer is None:
            return handler
        parse, answer = handler.request_deserializer, handler.unary_unary

        def parsed(data: bytes) -> Any:
            try:
                return parse(data)
            except DecodeError as error:
                self._log(details.method, error)
                return None

        async def answered(request: Any, context: Context) -> Any:
            if request is None:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    explain(
                        f"{details.method}: the request cannot be parsed",
                        "a message of proto/railweave/v1/controller.proto",
                        "use the same release at both ends",
                    ),
                )
            return await answer(request, context)

        return handler._replace(request_deserializer=parsed, unary_unary=answer and answered)

    def _log(self, method: str, error: DecodeError) -> None:
        now = monotonic()
        if now < self._quiet_until:
            self._unsaid += 1
            return
        more = f"; {self._unsaid} more since the last such line" if self._unsaid else ""
        LOG.warning("refused a malformed request to %s: %s%s", method, error, more)
        self._quiet_until, self._unsaid = now + PAUSE_S, 0
