# SPDX-License-Identifier: Apache-2.0
"""The objects of a request are freed when it ends, without the garbage collector, which runs rarely here."""

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
from finsy.proto import U128
from google.protobuf.message import Message
from hostile.messages import HIGHEST, Caller, Chaos
from p4runtime_clients import DEVICE, ENTITIES, Config, Server, files

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
    schema = fy.P4Schema(*files(ENTITIES))
    chaos = Chaos(random.Random(1), schema.p4info, files(ENTITIES)[1].read_bytes(), DEVICE)
    answers: Counter[str] = Counter()
    with grpc.insecure_channel(address) as channel:
        caller = Caller(channel)
        control = GrpcControl(address, DEVICE, HIGHEST)
        push = Config(device_id=DEVICE, election_id=U128.encode(HIGHEST), action=Config.VERIFY_AND_COMMIT)
        push.config.CopyFrom(schema.get_pipeline_config())
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
