# SPDX-License-Identifier: Apache-2.0
"""Groups that give up what they are at and go on beyond: no old packet changes a new sum, whatever moves."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from protocol.network import (
    GROUP,
    MICROSECOND,
    MILLISECOND,
    Link,
    Shape,
    build,
    child_of,
    place,
    tree_of,
)
from protocol.oracle import Array, expected
from protocol.test_ina import BOUND, assert_bits, random_inputs

from railweave._native import ina

LANES = 8
SPOILT = 0x5A  # what a caller writes into memory that is its own again
KINDS = (("sum", "float32"), ("max", "int32"), ("sum", "int32"))


@dataclass
class Sum:
    """One call of all hosts."""

    number: int
    op: str
    inputs: list[Array]
    outputs: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        self.outputs = [values.copy() for values in self.inputs]  # in place


@dataclass
class World:
    """A job whose hosts halt, restart and move at times of their own; everything is drawn from one seed."""

    seed: int

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.numbers = np.random.default_rng(self.seed)
        self.racks = self.random.choice([[1], [2], [3], [2, 2]])
        self.hosts = sum(self.racks)
        self.slots = self.random.choice([1, 4, 16])
        loss = self.random.choice([0, 0.05])
        late = 5 * MILLISECOND
        link = Link(loss=loss, duplicate=0.05, jitter=100 * MICROSECOND, reorder=0.02, late=late)
        self.network = build(self.racks, slots=self.slots, lanes=LANES, link=link, seed=self.seed)
        self.calls: list[Sum] = []
        self.spoilt: list[tuple[Array, Array]] = []
        self.moves = 0
        self.unmoved = 0  # hosts that the present move has not resumed yet

    def soon(self, action: Callable[[], None]) -> None:
        delay = self.random.choice([0, 20, 200, 3000]) * MICROSECOND
        self.network.at(self.network.now + self.random.randrange(delay + 1), action)

    def on_every_host(self, action: Callable[[int], None]) -> Callable[[], bool]:
        """Run `action` once per host, some time soon; whether all have."""
        left = set(range(self.hosts))

        def act(host: int) -> None:
            action(host)
            self.network.pump(host)
            left.remove(host)

        for host in range(self.hosts):
            self.soon(lambda host=host: act(host))  # type: ignore[misc]
        return lambda: not left

    def new_calls(self) -> list[Sum]:
        made = []
        for _ in range(self.random.randint(1, 3)):
            op, dtype = self.random.choice(KINDS)
            inputs = random_inputs(self.numbers, self.hosts, self.random.randint(1, 300), dtype)
            made.append(Sum(len(self.calls) + len(made), op, inputs))
        self.calls += made
        return made

    def start(self, host: int, calls: list[Sum]) -> None:
        for call in calls:
            values = call.outputs[host]
            self.network.endpoints[host].start(call.number, call.op, values, values)

    def done(self, host: int, call: Sum) -> bool:
        return call.number in self.network.events[host]

    def halt(self, host: int) -> None:
        """What is not done is the caller's again, who uses it for something else."""
        self.network.endpoints[host].halt()
        for call in self.calls:
            if not self.done(host, call):
                call.outputs[host].view(np.uint8)[:] = SPOILT
                self.spoilt.append((call.outputs[host], call.outputs[host].copy()))

    def restarts(self) -> list[Sum]:
        """All halt; then all restart, and mostly begin new calls."""
        halted = self.on_every_host(self.halt)
        self.network.run(halted, BOUND)
        calls = self.new_calls() if self.random.random() < 0.7 else []
        base = max(endpoint.next_chunk() for endpoint in self.network.endpoints)

        def restart(host: int) -> None:
            self.network.endpoints[host].restart(base, self.network.now)
            self.start(host, calls)

        self.network.run(self.on_every_host(restart), BOUND)
        return calls

    def begin_move(self) -> None:
        """All pause, and then resume in fresh switches, while other things happen."""
        self.moves += 1
        self.unmoved = self.hosts
        group, slots = GROUP + self.moves, self.random.choice([self.slots, 1, 4, 32])
        positions: dict[int, int] = {}

        def pause(host: int) -> None:
            positions[host] = self.network.endpoints[host].pause(self.network.now)
            if len(positions) == self.hosts:
                resume_all()

        def resume_all() -> None:
            self.network.replace(tree_of(Shape.of(self.racks), LANES))
            place(self.network.root, group, range(self.hosts), slots, start=group)
            self.on_every_host(resume)

        def resume(host: int) -> None:
            self.unmoved -= 1
            child = child_of(self.network.root, host, range(self.hosts))
            self.network.endpoints[host].resume(
                group=group,
                child=child,
                slots=slots,
                lanes=LANES,
                resume_from=min(positions.values()),
                now=self.network.now,
            )

        self.on_every_host(pause)

    def some_steps(self) -> None:
        for _ in range(self.random.choice([0, 10, 100, 400])):
            self.network.step()

    def finish(self, calls: list[Sum]) -> None:
        """The last calls have the oracle's bits, and nobody has written where nothing is his any more."""
        hosts = range(self.hosts)
        self.network.run(lambda: all(self.done(host, call) for host in hosts for call in calls), BOUND)
        for call in calls:
            assert_bits(call.outputs, expected(call.inputs, call.op, LANES))
        self.network.drain()
        for memory, then in self.spoilt:
            np.testing.assert_array_equal(memory.view(np.uint8), then.view(np.uint8))
        assert all(isinstance(event, int) for events in self.network.events for event in events)
        assert all(endpoint.idle for endpoint in self.network.endpoints)


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_sums_after_restarts_have_the_oracles_bits(seed: int, moving: bool) -> None:
    world = World(seed)
    calls = world.new_calls()
    for host in range(world.hosts):
        world.start(host, calls)
        world.network.pump(host)
    for _ in range(world.random.randint(1, 4)):
        world.some_steps()
        if moving and not world.unmoved:
            world.begin_move()
            world.some_steps()
        calls = world.restarts()
    world.network.run(lambda: not world.unmoved, BOUND)
    world.finish(calls)


def test_packets_from_before_a_halt_are_stale() -> None:
    """Results that come late are those of void chunks, also for slots that are in use again."""
    network = build(1, slots=4, lanes=LANES, sealed=False)
    [endpoint] = network.endpoints
    old, new = np.ones(4 * LANES, np.int32), np.full(8 * LANES, 5, np.int32)
    endpoint.start(0, "sum", old, old)
    packets = [endpoint.transmit(0) for _ in range(4)]
    results = [network.root.switch.process(0, packet)[0][1] for packet in packets]
    endpoint.halt()
    old[:] = 77
    for packet in results:
        endpoint.receive(packet, 1)
    endpoint.restart(endpoint.next_chunk(), 2)
    endpoint.start(1, "sum", new, new)
    for packet in results:
        endpoint.receive(packet, 3)
    network.pump(0)
    for packet in results:
        endpoint.receive(packet, 4)
    for packet in packets:
        network.from_host(0, packet)
    network.run(lambda: 1 in network.events[0], BOUND)
    np.testing.assert_array_equal(old, 77)
    np.testing.assert_array_equal(new, 5)
    network.drain()
    assert endpoint.stats()["results"] == 8
    assert sum(endpoint.stats()["refused"].values()) == 0


def test_a_halted_endpoint_is_silent_and_takes_nothing() -> None:
    endpoint = ina.Endpoint(group=1, child=0, slots=4, lanes=LANES, world_size=2)
    values = np.ones(2 * LANES, np.int32)
    with pytest.raises(RuntimeError, match="after it was halted"):
        endpoint.restart(0, 0)
    endpoint.start(0, "sum", values, values)
    assert endpoint.transmit(0) is not None
    for _ in range(2):
        endpoint.halt()
        assert endpoint.next_chunk() == 1
        endpoint.start(1, "sum", values, values)
        assert endpoint.idle
        assert endpoint.transmit(0) is None
        assert endpoint.deadline() is None
        assert endpoint.pause(0) == 1
    with pytest.raises(ValueError, match="this one's is 1, not 0"):
        endpoint.restart(0, 0)
    endpoint.restart(30, 0)
    assert endpoint.next_chunk() == 30
    endpoint.start(2, "sum", values, values)
    assert endpoint.transmit(0) is None, "it is paused still"
    endpoint.resume(group=2, child=0, slots=1, lanes=LANES, resume_from=1, now=0)
    packet = endpoint.transmit(0)
    assert packet is not None
    # Chunk 30 is the new group's 29th: slot 0 of 1, copy 1, round 14.
    assert (int.from_bytes(packet[6:8]), int.from_bytes(packet[8:12])) == (1, 14)


def test_a_rank_that_has_given_up_less_than_others_does_not_hold_back_a_move() -> None:
    """Positions may be far apart: what is void need not be kept."""
    endpoint = ina.Endpoint(group=1, child=0, slots=4, lanes=LANES, world_size=2)
    endpoint.halt()
    endpoint.restart(1000, 0)
    values = np.ones(3 * LANES, np.int32)
    endpoint.start(0, "sum", values, values)
    while endpoint.transmit(0) is not None:
        pass
    assert endpoint.pause(0) == 1000
    endpoint.resume(group=2, child=0, slots=4, lanes=LANES, resume_from=10, now=0)
    again = []
    while (packet := endpoint.transmit(0)) is not None:
        again.append(packet)
    assert len(again) == 3
