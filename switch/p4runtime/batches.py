# SPDX-License-Identifier: Apache-2.0
"""Batches of updates: what becomes of the rest when one fails (specification, section 12.2)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from finsy.proto import p4r

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Code, Refused, unimplemented
from railweave.switch.p4runtime.roles import Scope, require_covered

_Request = p4r.WriteRequest
_Update = p4r.Update
_INVERSE = {_Update.INSERT: _Update.DELETE, _Update.MODIFY: _Update.MODIFY, _Update.DELETE: _Update.INSERT}

_log = logging.getLogger(__name__)


def write(device: Device, request: p4r.WriteRequest, scope: Scope) -> list[Refused | None]:
    """Carry out a batch in order: for each update why it was refused, None if it was done."""
    match request.atomicity:
        case _Request.CONTINUE_ON_ERROR:
            return [_attempt(device, update, scope) for update in request.updates]
        case _Request.ROLLBACK_ON_ERROR:
            return _all_or_none(device, request.updates, scope)
        case _Request.DATAPLANE_ATOMIC:
            # No packet passes meanwhile, so that each sees the tables before or after the batch.
            with device.pipeline.frozen():
                return _all_or_none(device, request.updates, scope)
    raise unimplemented(
        f"atomicity {request.atomicity} is none of CONTINUE_ON_ERROR, ROLLBACK_ON_ERROR, DATAPLANE_ATOMIC"
    )


def _all_or_none(device: Device, updates: Sequence[p4r.Update], scope: Scope) -> list[Refused | None]:
    undo: list[p4r.Update] = []
    for number, update in enumerate(updates):
        before = _before(device, update)
        failure = _attempt(device, update, scope)
        if failure is not None:
            for step in reversed(undo):
                device.restore(step)
            aborted = Refused(Code.ABORTED, f"nothing was done, because update {number} failed")
            return [failure if place == number else aborted for place in range(len(updates))]
        undo += before
    return [None] * len(updates)


def _before(device: Device, update: p4r.Update) -> list[p4r.Update]:
    """What undoes an update, to be carried out if it has succeeded."""
    if update.type not in _INVERSE:
        return []
    if update.type == _Update.INSERT:
        return [_Update(type=_Update.DELETE, entity=update.entity)]
    try:
        current = list(device.current(update.entity))
    except Refused:
        return []  # and so will the update be
    return [_Update(type=_INVERSE[update.type], entity=entity) for entity in current]


def _attempt(device: Device, update: p4r.Update, scope: Scope) -> Refused | None:
    try:
        require_covered(scope, update.entity)
        device.write(update)
    except Refused as refusal:
        return refusal
    except Exception as error:
        _log.exception("update failed: %s", update)
        return Refused(Code.INTERNAL, f"{type(error).__name__}: {error}")
    return None
