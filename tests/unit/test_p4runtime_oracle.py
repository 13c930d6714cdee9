# SPDX-License-Identifier: Apache-2.0
"""Random updates are answered, and change the state, as a model of the P4Runtime specification says.

`python -m p4runtime_oracle.session` writes more updates.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from finsy.proto import p4r
from p4runtime_oracle.session import Session
from protocol.seeds import caught, explore

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Code, Refused
from railweave.switch.pipeline import tables

CODES = (
    *("OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"),
    *("FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED", "ABORTED"),
)
Write = Callable[[Device, p4r.Update], None]
original: Write = Device.write


def test_random_updates_are_answered_as_the_specification_says() -> None:
    counts = explore(Session, range(10))
    assert counts["updates"] >= 10_000
    assert set(CODES) <= set(counts)


def forget_deletes(device: Device, update: p4r.Update) -> None:
    if update.type != p4r.Update.DELETE:
        original(device, update)


def keep_what_is_refused(device: Device, update: p4r.Update) -> None:
    original(device, update)
    if update.entity.HasField("register_entry"):
        raise Refused(Code.OUT_OF_RANGE, "")


def insert_over_entries(device: Device, update: p4r.Update) -> None:
    try:
        original(device, update)
    except Refused as refusal:
        if refusal.code is not Code.ALREADY_EXISTS:
            raise


@pytest.mark.parametrize("mutant", [forget_deletes, keep_what_is_refused, insert_over_entries])
def test_a_server_that_is_wrong_is_caught(monkeypatch: pytest.MonkeyPatch, mutant: Write) -> None:
    monkeypatch.setattr(Device, "write", mutant)
    assert caught(Session, range(1))


def test_a_data_plane_that_is_wrong_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "words", lambda action, values: [0] * len(values))
    assert caught(Session, range(1))
