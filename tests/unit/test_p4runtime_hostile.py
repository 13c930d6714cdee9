# SPDX-License-Identifier: Apache-2.0
"""Damaged P4Runtime messages get an error code, never an exception. Undamaged messages still work."""

from __future__ import annotations

import asyncio
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
from p4runtime_clients import DEVICE, ENTITIES, ROUTER, SCHEMAS, A, B, Config, Server, device, to_port, update
from p4runtime_damage import Batch, changes, damage
from p4runtime_entities import EVERYTHING, MODIFIED, WRITTEN

from railweave.switch.p4runtime.device import Device
from railweave.switch.p4runtime.errors import Refused
from railweave.switch.pipeline import Pipeline

ACL = fy.P4TableMatch(source=(1, 0xFF), type=(0, 0x800), port=5)
OF_THE_ROUTER: list[fy.P4Entity] = [
    to_port(1),
    fy.P4TableEntry("acl", match=ACL, action=fy.P4TableAction("paint", color=7), priority=9),
    fy.P4TableEntry(
        "routes",
        match=fy.P4TableMatch(destination="10.0.0.0/8"),
        action=fy.P4TableAction("next_hop", port=2, destination=B),
    ),
    fy.P4TableEntry("bridge", action=fy.P4TableAction("to_port", port=5), is_default_action=True),
    fy.P4DirectCounterEntry(table_entry=fy.P4TableEntry("bridge", match=fy.P4TableMatch(destination=A))),
    fy.P4CounterEntry("arrivals", index=3),
    fy.P4RegisterEntry("last_source", index=3, data=7),
    fy.P4MulticastGroupEntry(4, replicas=[(1, 1), (2, 2)]),
    fy.P4CloneSessionEntry(5, replicas=[3]),
]
UPDATES = {
    program: [
        update(kind, entity, program).SerializeToString()
        for entity in entities
        for kind in ("INSERT", "MODIFY", "DELETE")
        if not isinstance(entity, (fy.P4RegisterEntry, fy.P4CounterEntry)) or kind == "MODIFY"
    ]
    for program, entities in {ROUTER: OF_THE_ROUTER, ENTITIES: [*WRITTEN, *MODIFIED]}.items()
}


@pytest.mark.parametrize("program", [ROUTER, ENTITIES])
@given(data=st.data())
def test_damaged_updates_and_reads(program: str, data: st.DataObject) -> None:
    messages = st.tuples(st.sampled_from(UPDATES[program]), changes)
    suffer(program, data.draw(st.lists(messages, min_size=1, max_size=12)))


def suffer(program: str, batch: Batch) -> None:
    """Write and read every message that can be parsed. Then read back all written entities."""
    one = DEVICES[program]
    for message, damages in batch:
        try:
            parsed = p4r.Update.FromString(damage(message, damages))
        except DecodeError:
            continue
        for act in (lambda p=parsed: one.write(p), lambda p=parsed: list(one.read(p.entity))):
            try:
                act()
            except Refused:
                continue
    for pattern in EVERYTHING:
        for entity in one.read(pattern.encode(SCHEMAS[program])):
            assert entity.SerializeToString()


DEVICES = {program: device(program) for program in UPDATES}


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
