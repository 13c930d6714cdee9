# SPDX-License-Identifier: Apache-2.0
"""Batches of updates: what becomes of the rest when one fails (specification, section 12.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from finsy.proto import p4r

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Code, Refused, exhausted, unimplemented
from railweave.switch.p4runtime.roles import Scope, require_covered
from railweave.switch.p4runtime.turns import Turns

# An all-or-none batch is done in one go, and DATAPLANE_ATOMIC stops packets meanwhile: no longer than this.
MAX_ATOMIC_UPDATES = 64
MAX_ATOMIC_CELLS = 4096  # of counters, meters and registers, wildcards counted with all their cells
MAX_UPDATE_BYTES = 16_384  # of an update, and of an all-or-none batch: a group of 1,000 members takes 2 ms

_Request = p4r.WriteRequest
_Update = p4r.Update
_INVERSE = {_Update.INSERT: _Update.DELETE, _Update.MODIFY: _Update.MODIFY, _Update.DELETE: _Update.INSERT}

_log = logging.getLogger(__name__)


@dataclass
class Writer:
    """Whom a batch is from and where it goes. Both may change between two slices of a long batch."""

    device: Callable[[], Device]
    scope: Callable[[], Scope]  # Refused: no longer the primary
    turns: Turns = field(default_factory=Turns)

    async def write(self, request: p4r.WriteRequest) -> list[Refused | None]:
        """Carry out a batch in order: for each update why it was refused, None if it was done."""
        device = self.device()
        match request.atomicity:
            case _Request.CONTINUE_ON_ERROR:
                each = (self._attempt(update) for update in request.updates)
                return [result async for chunk in self.turns.chunks(each) for result in chunk]
            case _Request.ROLLBACK_ON_ERROR:
                _require_small(device, request.updates)
                return self._all_or_none(request.updates)
            case _Request.DATAPLANE_ATOMIC:
                _require_small(device, request.updates)
                # No packet passes meanwhile, so that each sees the tables before or after the batch.
                with device.pipeline.frozen():
                    return self._all_or_none(request.updates)
        raise unimplemented(
            f"atomicity {request.atomicity} is none of CONTINUE_ON_ERROR, ROLLBACK_ON_ERROR, DATAPLANE_ATOMIC"
        )

    def _all_or_none(self, updates: Sequence[p4r.Update]) -> list[Refused | None]:
        device = self.device()
        undo: list[Callable[[], None]] = []
        for number, update in enumerate(updates):
            before = list(_undoing(device, update))
            failure = self._attempt(update)
            if failure is not None:
                for step in reversed(undo):
                    step()
                aborted = Refused(Code.ABORTED, f"nothing was done, because update {number} failed")
                return [failure if place == number else aborted for place in range(len(updates))]
            undo += before
        return [None] * len(updates)

    def _attempt(self, update: p4r.Update) -> Refused | None:
        try:
            require_covered(self.scope(), update.entity)
            if update.ByteSize() > MAX_UPDATE_BYTES:
                raise exhausted(f"an update has up to {MAX_UPDATE_BYTES} bytes")
            self.device().write(update)
        except Refused as refusal:
            return Refused(refusal.code, refusal.message, "")  # without the frames that it has come through
        except Exception as error:
            _log.exception("update failed: %s", update)
            return Refused(Code.INTERNAL, f"{type(error).__name__}: {error}")
        return None


def _require_small(device: Device, updates: Sequence[p4r.Update]) -> None:
    if len(updates) > MAX_ATOMIC_UPDATES:
        raise exhausted(f"an all-or-none batch has up to {MAX_ATOMIC_UPDATES} updates, not {len(updates)}")
    if sum(update.ByteSize() for update in updates) > MAX_UPDATE_BYTES:
        raise exhausted(f"an all-or-none batch has up to {MAX_UPDATE_BYTES} bytes of updates")
    cells = sum(device.cells(update.entity) for update in updates)
    if cells > MAX_ATOMIC_CELLS:
        raise exhausted(
            f"an all-or-none batch writes up to {MAX_ATOMIC_CELLS} cells of counters, meters and registers, "
            f"not {cells}"
        )


def _undoing(device: Device, update: p4r.Update) -> Iterator[Callable[[], None]]:
    """What undoes an update, to be carried out if it has succeeded."""
    if update.type not in _INVERSE:
        return
    if update.type == _Update.INSERT:
        yield _writing(device, _Update.DELETE, update.entity)
        return
    try:
        if device.cells(update.entity):
            yield device.keep_cells(update.entity)
            return
        for entity in list(device.current(update.entity)):
            yield _writing(device, _INVERSE[update.type], entity)
    except Refused:
        return  # and so will the update be


def _writing(device: Device, kind: p4r.Update.Type.ValueType, entity: p4r.Entity) -> Callable[[], None]:
    return lambda: device.write(_Update(type=kind, entity=entity))
