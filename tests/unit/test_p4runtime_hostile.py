# SPDX-License-Identifier: Apache-2.0
"""Damaged P4Runtime messages: refused by code, never an exception, and what is not damaged still works."""

from __future__ import annotations

import finsy
from finsy import (
    P4CloneSessionEntry,
    P4CounterEntry,
    P4DirectCounterEntry,
    P4MulticastGroupEntry,
    P4RegisterEntry,
    P4Schema,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from finsy.proto import p4r
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from p4runtime_clients import JSON, P4INFO, SCHEMA, A, B, to_port, update
from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Refused
from railweave.switch.pipeline import Pipeline

ACL = P4TableMatch(source=(1, 0xFF), type=(0, 0x800), port=5)
ENTITIES: list[finsy.P4Entity] = [
    to_port(1),
    P4TableEntry("acl", match=ACL, action=P4TableAction("paint", color=7), priority=9),
    P4TableEntry(
        "routes",
        match=P4TableMatch(destination="10.0.0.0/8"),
        action=P4TableAction("next_hop", port=2, destination=B),
    ),
    P4TableEntry("bridge", action=P4TableAction("to_port", port=5), is_default_action=True),
    P4DirectCounterEntry(table_entry=P4TableEntry("bridge", match=P4TableMatch(destination=A))),
    P4CounterEntry("arrivals", index=3),
    P4RegisterEntry("last_source", index=3, data=7),
    P4MulticastGroupEntry(4, replicas=[(1, 1), (2, 2)]),
    P4CloneSessionEntry(5, replicas=[3]),
]
UPDATES = [
    update(kind, entity).SerializeToString() for entity in ENTITIES for kind in ("INSERT", "MODIFY", "DELETE")
]


def damage(message: bytes, changes: list[tuple[int, int, int]]) -> bytes:
    """Overwrite, insert or remove bytes here and there."""
    data = bytearray(message)
    for how, place, value in changes:
        at = place % (len(data) + 1)
        if how == 0:
            data[at : at + 1] = bytes([value])
        elif how == 1:
            data.insert(at, value)
        else:
            del data[at : at + 1]
    return bytes(data)


changes = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200), st.integers(0, 255)), max_size=4)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(UPDATES), changes), min_size=1, max_size=12))
def test_damaged_updates_and_reads(batch: list[tuple[bytes, list[tuple[int, int, int]]]]) -> None:
    device = DEVICES.setdefault("router", make_device())
    for message, damages in batch:
        try:
            parsed = p4r.Update.FromString(damage(message, damages))
        except DecodeError:
            continue
        for act in (lambda p=parsed: device.write(p), lambda p=parsed: list(device.read(p.entity))):
            try:
                act()
            except Refused:
                continue
    for pattern in (P4TableEntry(), P4MulticastGroupEntry(), P4CloneSessionEntry()):
        for entity in device.read(pattern.encode(SCHEMA)):
            assert entity.SerializeToString()


DEVICES: dict[str, Device] = {}


def make_device() -> Device:
    config = P4Schema(P4INFO, JSON).get_pipeline_config()
    return Device.of(config, Pipeline.load(config.p4_device_config))
