# SPDX-License-Identifier: Apache-2.0
"""Damaged P4Runtime messages get an error code, never an exception. Undamaged messages still work."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections import Counter
from collections.abc import Iterator
from types import CoroutineType, FrameType
from typing import Any

import finsy as fy
import grpc
import pytest
from dataplane.control import GrpcControl
from finsy.proto import U128, p4i, p4r
from google.protobuf.message import DecodeError, Message
from hostile.messages import HIGHEST, Caller, Chaos
from hypothesis import given, settings
from hypothesis import strategies as st
from p4runtime_clients import DEVICE, ENTITIES, SCHEMAS, A, Config, Server, device, update
from p4runtime_damage import Batch, changes, damage
from p4runtime_entities import EVERYTHING, MODIFIED, WRITTEN

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Refused
from railweave.switch.pipeline import Pipeline

OTHERS = [
    fy.P4TableEntry("policy", action=fy.P4TableAction("drop"), is_default_action=True),
    fy.P4DirectCounterEntry(table_entry=fy.P4TableEntry("hosts", match=fy.P4TableMatch(destination=A))),
]
UPDATES = [
    update(kind, entity, ENTITIES).SerializeToString()
    for entity in (*WRITTEN, *MODIFIED, *OTHERS)
    for kind in ("INSERT", "MODIFY", "DELETE")
]
SERVED = device(ENTITIES)


@given(st.lists(st.tuples(st.sampled_from(UPDATES), changes), min_size=1, max_size=12))
def test_damaged_updates_and_reads(batch: Batch) -> None:
    """Write and read every message that can be parsed. Then read back all written entities."""
    for message, damages in batch:
        with contextlib.suppress(DecodeError, Refused):
            parsed = p4r.Update.FromString(damage(message, damages))
            with contextlib.suppress(Refused):
                SERVED.write(parsed)
            list(SERVED.read(parsed.entity))
    for pattern in EVERYTHING:
        for entity in SERVED.read(pattern.encode(SCHEMAS[ENTITIES])):
            assert entity.SerializeToString()


@settings(max_examples=120, deadline=None)
@given(changes)
def test_damaged_p4infos(damages: list[tuple[int, int, int]]) -> None:
    config = SCHEMAS[ENTITIES].get_pipeline_config()
    whole = config.p4info.SerializeToString()
    try:
        spread = [(how, place * 40, value) for how, place, value in damages]
        config.p4info.CopyFrom(p4i.P4Info.FromString(damage(whole, spread)))
        Device.of(config, PIPELINE)
    except (DecodeError, Refused):
        pass


def test_types_that_contain_themselves_are_refused() -> None:
    config = SCHEMAS[ENTITIES].get_pipeline_config()
    member = config.p4info.type_info.structs["learned_t"].members.add(name="again")
    member.type_spec.struct.name = "learned_t"
    with pytest.raises(Refused, match="nested"):
        Device.of(config, PIPELINE)
    new = config.p4info.type_info.new_types["snake_t"].original_type
    new.new_type.name = "snake_t"
    config.p4info.registers[0].type_spec.new_type.name = "snake_t"
    member.type_spec.new_type.name = "snake_t"
    with pytest.raises(Refused, match="nested"):
        Device.of(config, PIPELINE)


PIPELINE = Pipeline.load(SCHEMAS[ENTITIES].p4blob)


# The objects of a request are freed when it ends, without the garbage collector, which runs rarely here.

CALLS = 300  # calls with a primary client, and again without a primary client


@pytest.fixture
def kept() -> Iterator[list[Any]]:
    """Yield the objects that only the garbage collector has found since the test began."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


async def test_hostile_requests_leave_nothing_to_the_garbage_collector(
    server: Server, kept: list[Any]
) -> None:
    answers = await asyncio.to_thread(talk, server.address)
    await server.stop()
    assert {"OK", "PERMISSION_DENIED", "INVALID_ARGUMENT", "NOT_FOUND", "UNKNOWN"} <= set(answers)
    gc.collect()
    assert Counter(name for one in kept if (name := of_the_switch(one))) == {}


def talk(address: str) -> Counter[str]:
    """Push programs, and send random requests as raw bytes, so that only the server parses messages."""
    config = SCHEMAS[ENTITIES].get_pipeline_config()
    chaos = Chaos(random.Random(1), config.p4info, config.p4_device_config, DEVICE)
    answers: Counter[str] = Counter()
    with grpc.insecure_channel(address) as channel:
        caller = Caller(channel)
        control = GrpcControl(address, DEVICE, HIGHEST)
        push = Config(device_id=DEVICE, election_id=U128.encode(HIGHEST), action=Config.VERIFY_AND_COMMIT)
        push.config.CopyFrom(config)
        for _ in range(3):
            caller.unary("SetForwardingPipelineConfig", push.SerializeToString())
        for number in range(2 * CALLS):
            if number == CALLS:
                control.close()
            stream = chaos.rng.random() < 0.2
            code = caller.stream(chaos.stream()) if stream else caller.unary(*chaos.unary())
            answers[code.name] += 1
    return answers


def of_the_switch(one: Any) -> str:
    """Return the name of an object of the switch, or "". gRPC itself makes small cycles for each call."""
    if isinstance(one, FrameType | CoroutineType):
        code = one.f_code if isinstance(one, FrameType) else one.cr_code
        return code.co_qualname if "/switch/" in code.co_filename else ""
    kind = type(one)
    switch = isinstance(one, Message) or kind.__module__.startswith("railweave.switch")
    return kind.__qualname__ if switch else ""
