# SPDX-License-Identifier: Apache-2.0
"""RECONCILE_AND_COMMIT: the forwarding state of one program written into the program that replaces it."""

from __future__ import annotations

from finsy.proto import p4r

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Refused, invalid
from railweave.switch.p4runtime.roles import p4_id


def carry_over(old: Device, new: Device) -> None:
    """Write everything that controllers and packets have left in `old` into `new`, which is fresh.

    Refused (INVALID_ARGUMENT) if something of it has no place there; `old` is as it was in any case.
    """
    for update in old.state():
        try:
            _require_same_object(old, new, update.entity)
            new.restore(update)
        except Refused as refusal:
            raise invalid(
                f"the new program cannot keep the forwarding state ({refusal.message}); "
                "VERIFY_AND_COMMIT clears it"
            ) from None


def _require_same_object(old: Device, new: Device, entity: p4r.Entity) -> None:
    """Refuse to take an object for another one that happens to have its id."""
    number = p4_id(entity)
    if number is None:
        return
    before, after = old.schema.names.get(number), new.schema.names.get(number)
    if before != after:
        raise invalid(f"{before} has state" + (f", and its id is now that of {after}" if after else ""))
