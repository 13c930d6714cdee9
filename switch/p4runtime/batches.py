# SPDX-License-Identifier: Apache-2.0
"""Batches of updates, and the fate of the others when an update fails (specification, section 12.2)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from finsy.proto import p4r

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Code, Refused, exhausted, unimplemented
from railweave.switch.p4runtime.roles import Scope, require_covered
from railweave.switch.p4runtime.turns import slices

# DATAPLANE_ATOMIC stops packets meanwhile: no longer than these updates take.
MAX_ATOMIC_UPDATES = 64
MAX_ATOMIC_BYTES = 16_384  # a group of 1,000 members takes 2 ms
MAX_KEPT_CELLS = 4096  # of arrays in an all-or-none batch; a wildcard counts with all cells
MAX_UPDATE_BYTES = 16_384

_Request = p4r.WriteRequest
_Update = p4r.Update
_INVERSE = {_Update.INSERT: _Update.DELETE, _Update.MODIFY: _Update.MODIFY, _Update.DELETE: _Update.INSERT}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """The device of a WriteRequest, and the rights of its sender. Nothing else is written meanwhile."""

    device: Device
    scope: Scope

    async def write(self, request: p4r.WriteRequest) -> list[Refused | None]:
        """Carry out the updates in order. Return for each why it was refused, or None."""
        match request.atomicity:
            case _Request.CONTINUE_ON_ERROR:
                each = (self._attempt(update) for update in request.updates)
                return [result async for chunk in slices(each) for result in chunk]
            case _Request.ROLLBACK_ON_ERROR:
                results: list[Refused | None] = []
                async for _ in slices(self._all_or_none(request.updates, results)):
                    pass
                return results
            case _Request.DATAPLANE_ATOMIC:
                if len(request.updates) > MAX_ATOMIC_UPDATES:
                    raise _too_large(f"up to {MAX_ATOMIC_UPDATES} updates, not {len(request.updates)}")
                if sum(update.ByteSize() for update in request.updates) > MAX_ATOMIC_BYTES:
                    raise _too_large(f"up to {MAX_ATOMIC_BYTES} bytes of updates")
                results = []
                # No packet passes meanwhile, so that each sees the tables before or after the batch.
                with self.device.pipeline.frozen():
                    for _ in self._all_or_none(request.updates, results):
                        pass
                return results
        raise unimplemented(
            f"atomicity {request.atomicity} is none of CONTINUE_ON_ERROR, ROLLBACK_ON_ERROR, DATAPLANE_ATOMIC"
        )

    def _all_or_none(self, updates: Sequence[p4r.Update], results: list[Refused | None]) -> Iterator[None]:
        """Carry out all updates, or undo them if one fails. A step of work is an update."""
        cells = 0
        for update in updates:
            with contextlib.suppress(Refused):  # the update will be refused
                cells += self.device.cells(update.entity)
            yield
        if cells > MAX_KEPT_CELLS:
            raise _too_large(f"up to {MAX_KEPT_CELLS} cells of counters, meters and registers, not {cells}")
        undo: list[Callable[[], None]] = []
        for number, update in enumerate(updates):
            before = list(_undoing(self.device, update))
            failure = self._attempt(update)
            if failure is not None:
                for step in reversed(undo):
                    step()
                    yield
                cause = f"because update {number} failed: {failure.code.name}: {failure.message}"
                results[:] = [Refused(Code.ABORTED, f"nothing was done, {cause}", "")] * len(updates)
                results[number] = failure
                return
            undo += before
            results.append(None)
            yield

    def _attempt(self, update: p4r.Update) -> Refused | None:
        try:
            require_covered(self.scope, update.entity)
            if update.ByteSize() > MAX_UPDATE_BYTES:
                raise exhausted(f"an update has up to {MAX_UPDATE_BYTES} bytes")
            self.device.write(update)
        except Refused as refusal:
            return refusal.again()
        except Exception as error:
            _log.exception("update failed: %s", update)
            return Refused(Code.INTERNAL, f"{type(error).__name__}: {error}")
        return None


def _too_large(limit: str) -> Refused:
    """Refuse a batch as the specification says: this target cannot execute it in this way."""
    return unimplemented(f"a batch with this atomicity has {limit}", "send less, or use CONTINUE_ON_ERROR")


def _undoing(device: Device, update: p4r.Update) -> Iterator[Callable[[], None]]:
    """Yield functions that undo an update after its success."""
    inverse = _INVERSE.get(update.type)
    with contextlib.suppress(Refused):  # the update will be refused, too
        if device.cells(update.entity):
            yield device.keep_cells(update.entity)
        elif inverse is not None:
            inserted = update.type == _Update.INSERT
            for entity in [update.entity] if inserted else list(device.current(update.entity)):
                yield partial(device.restore, _Update(type=inverse, entity=entity))
