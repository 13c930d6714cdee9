# SPDX-License-Identifier: Apache-2.0
"""A switch process under hostile packets, messages and clients.

The switch must survive, answer an honest controller at the end, and not grow. It must refuse requests beyond
its limits.
"""

from __future__ import annotations

import contextlib
import queue
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from dataplane.control import DEADLINE_S, GrpcControl
from dataplane.harness import WireSwitch, running
from dataplane.programs import aggregation, sentinel
from finsy.proto import p4r, p4r_grpc
from hostile.messages import HIGHEST, Caller, Chaos

from railweave.switch.targets import EMBEDDED

PEAK_KIB = 512 << 10  # 120 MiB for a switch with a program, the rest for requests within its limits
GROWTH_KIB = 20_000  # for allocators and caches after the first round
PASSES, ROUNDS = 6, 3
CALLS = 100  # of each half of a round: with a primary controller, then without
MANY_STREAMS = 300
DEVICE = 1
MTU, ETHERNET = 9000, 14
TIMEOUT_S = 60.0
PROGRAM = aggregation(64)


def memory_kib(switch: WireSwitch, name: str = "VmRSS") -> int:
    """Return the resident memory, or its peak (`VmHWM`)."""
    status = Path(f"/proc/{switch.child.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:"))


@pytest.fixture
def victim() -> Iterator[WireSwitch]:
    """Return a switch without a controller. With one arena per thread, arenas would hold 20 MiB."""
    with running(EMBEDDED, "MALLOC_ARENA_MAX=1") as switch:
        switch.load(PROGRAM)  # the program trusts all ports
        yield switch
        assert switch.child.poll() is None
        assert memory_kib(switch, "VmHWM") <= PEAK_KIB


@contextlib.contextmanager
def primary(switch: WireSwitch) -> Iterator[None]:
    """Run an honest controller, after the previous one with the same election id has left.

    Random messages can repeat its election id but not exceed it.
    """
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            control = GrpcControl(switch.address, DEVICE, HIGHEST)
            break
        except grpc.RpcError:
            if time.monotonic() > end:
                raise
    with contextlib.closing(control):
        control.load(PROGRAM.schema)
        yield


def malformed(rng: random.Random, honest: bytes) -> bytes:
    """Return a random, truncated, oversized or damaged frame. The program accepts `honest`."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randbytes(rng.randint(ETHERNET, 200))
    if kind == 1:
        return honest[: rng.randint(ETHERNET, len(honest))]
    if kind == 2:
        return honest + rng.randbytes(rng.randint(1, MTU + ETHERNET - len(honest)))
    damaged = bytearray(honest)
    for _ in range(rng.randint(1, 6)):
        damaged[rng.randrange(12 if kind == 3 else 0, len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def frame_of_aggregation(rng: random.Random) -> bytes:
    """Return a contribution that is nearly valid."""
    addresses = bytes.fromhex("02000001ffff") + rng.randbytes(6)
    ip = bytes.fromhex("4500013400004000401100000a0100010a01fffe")
    return addresses + b"\x08\x00" + ip + rng.randbytes(8 + 16 + 256)


def flood(switch: WireSwitch, frames: Sequence[bytes]) -> int:
    """Send the frames into all ports. Return how many frames the links accepted."""
    sent = 0
    for number, frame in enumerate(frames):
        raw = switch.sockets[1 + number % len(switch.sockets)]
        with contextlib.suppress(OSError):  # the link is full
            sent += raw.send(frame) > 0
        for each in switch.sockets.values():
            with contextlib.suppress(BlockingIOError):
                each.recv(1 << 16)
    return sent


def test_hostile_packets_at_line_rate_leave_the_switch_as_it_was(victim: WireSwitch) -> None:
    rng = random.Random(7)
    honest = [sentinel(port, rng.randbytes(rng.randrange(64))) for port in (1, 2, 3, 4)]
    honest += [frame_of_aggregation(rng) for _ in range(20)]
    frames = [malformed(rng, rng.choice(honest)) for _ in range(5000)]
    sent = [flood(victim, frames)]
    before = memory_kib(victim)
    sent += [flood(victim, frames) for _ in range(PASSES)]
    assert min(sent) > 1000
    assert memory_kib(victim) <= before + GROWTH_KIB
    victim.load(PROGRAM)


def test_hostile_messages_are_answered_and_leave_the_switch_as_it_was(victim: WireSwitch) -> None:
    """A measurement is the least memory during a round, as a second saved program takes 15 MiB."""
    victim.control.close()
    answers: Counter[str] = Counter()
    chaos = Chaos(random.Random(7), PROGRAM.schema.p4info, PROGRAM.json.read_bytes(), DEVICE)
    with grpc.insecure_channel(victim.address) as channel:
        caller = Caller(channel)

        def talk() -> Iterator[int]:
            for _ in range(CALLS):
                stream = chaos.rng.random() < 0.2
                code = caller.stream(chaos.stream()) if stream else caller.unary(*chaos.unary())
                answers[code.name] += 1
                yield memory_kib(victim)

        least = []
        for _ in range(ROUNDS):
            with primary(victim):
                during = min(talk())
            least.append(min(during, *talk()))
    assert {"OK", "PERMISSION_DENIED"} <= set(answers)
    assert least[-1] <= least[0] + GROWTH_KIB
    with primary(victim):
        pass


@contextlib.contextmanager
def stub(switch: WireSwitch) -> Iterator[p4r_grpc.P4RuntimeStub]:
    """Return a client with a separate connection, because unread answers must not delay others."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(switch.address, options=options) as channel:
        yield p4r_grpc.P4RuntimeStub(channel)


def first_refusal(calls: Sequence[Any]) -> str:
    """Wait until one call ends without being read. Return its status."""
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for call in calls:
        call.add_done_callback(done.put)
    ended = done.get(timeout=TIMEOUT_S)
    for call in calls:
        call.cancel()
    return f"{ended.code().name}: {ended.details()}"


def test_open_streams_are_limited(victim: WireSwitch) -> None:
    ended = threading.Event()

    def silent() -> Iterator[p4r.StreamMessageRequest]:
        ended.wait()
        yield from ()

    with stub(victim) as one, stub(victim) as two:
        refusal = first_refusal([(one, two)[n % 2].StreamChannel(silent()) for n in range(MANY_STREAMS)])
        ended.set()
    assert re.match("RESOURCE_EXHAUSTED: .*streams are open", refusal)
