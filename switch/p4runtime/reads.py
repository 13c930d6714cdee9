# SPDX-License-Identifier: Apache-2.0
"""Reads: each shows the state between two Writes, however slowly its client takes the answer.

Tables, groups and sessions are read from a snapshot. Cells are copied before a Write may begin.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator

from finsy.proto import p4r

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Code, Refused, exhausted
from railweave.switch.p4runtime.roles import Scope, p4_id
from railweave.switch.p4runtime.turns import Turns, slices

MAX_READS = 64  # in progress at once
MAX_COPIED_BYTES = 256 << 20  # of all Reads in progress
_ENTITIES, _BYTES = 256, 1 << 20  # per ReadResponse, far below gRPC's 4 MiB

_log = logging.getLogger(__name__)


class Reads:
    """All Reads in progress."""

    def __init__(self, device: Callable[[], Device], turns: Turns) -> None:
        """Let `device` return the device that is read, or refuse."""
        self._device = device
        self._turns = turns
        self._open = self._copied_bytes = 0

    async def answer(
        self, request: p4r.ReadRequest, scope: Scope, results: list[Refused | None]
    ) -> AsyncGenerator[p4r.ReadResponse, None]:
        """Yield everything of the role that fits the patterns. Add a result per pattern to `results`."""
        if self._open >= MAX_READS:
            raise exhausted(f"{MAX_READS} reads are in progress, which is the limit")
        self._open += 1
        copied = 0
        try:
            async with self._turns.exclusive:
                device = self._device().snapshot()
                async for sizes in slices(device.copy_cells(request.entities)):
                    copied += sum(sizes)
                    self._copied_bytes += sum(sizes)
                    if self._copied_bytes > MAX_COPIED_BYTES:
                        raise exhausted(f"reads in progress copy up to {MAX_COPIED_BYTES} bytes of cells")
            async for response in _packed(
                self._turns.shared(_found(device, request.entities, scope, results))
            ):
                yield response
        finally:
            self._open -= 1
            self._copied_bytes -= copied


async def _packed(chunks: AsyncIterator[list[p4r.Entity | None]]) -> AsyncIterator[p4r.ReadResponse]:
    batch, size = p4r.ReadResponse(), 0
    async for chunk in chunks:
        for entity in filter(None, chunk):
            batch.entities.append(entity)
            size += entity.ByteSize()
            if len(batch.entities) == _ENTITIES or size >= _BYTES:
                yield batch
                batch, size = p4r.ReadResponse(), 0
    if batch.entities:
        yield batch


def _found(
    device: Device, patterns: Iterable[p4r.Entity], scope: Scope, results: list[Refused | None]
) -> Iterator[p4r.Entity | None]:
    """Yield the entities that fit and belong to the role, and None for all others: one item per step."""
    for pattern in patterns:
        yield None
        result = None
        try:
            for entity in device.search(pattern):
                yield entity if entity and (scope.everything or scope.covers(p4_id(entity))) else None
        except Refused as refusal:
            result = refusal.again()
        except Exception as error:
            _log.exception("read failed: %s", pattern)
            result = Refused(Code.INTERNAL, f"{type(error).__name__}: {error}")
        results.append(result)
