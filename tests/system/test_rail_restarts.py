# SPDX-License-Identifier: Apache-2.0
"""Rails on real interfaces that are halted during slices and joined again, also while links are down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from protocol.rail_world import SECRET, World
from system.namespaces import inside, ip
from system.rdma_hosts import NIC, Hosts, bridged

from railweave._native.agent import FailureKind
from railweave._rigs.rails import Rails

RANKS = 3
COUNTS = (1, 1000, 200_000)
TURN_S = 0.002


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with bridged(RANKS) as made:
        yield made


class Apart:
    """A replacement for Rails with a separate loop per rank. A rank opens connections in its namespace."""

    def __init__(self, hosts: Hosts) -> None:
        """Take `hosts`, any object with `namespaces` by rank."""
        self.hosts = hosts
        self.each = [Rails(len(hosts.namespaces)) for _ in hosts.namespaces]

    def turn(self, longest_s: float) -> None:
        for rank, rails in enumerate(self.each):
            with inside(self.hosts.namespaces[rank]):
                rails.turn(min(longest_s, TURN_S))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(rank: int, *arguments: object) -> Any:
            with inside(self.hosts.namespaces[rank]):
                return getattr(self.each[rank], name)(rank, *arguments)

        return call


def rdma_world(hosts: Hosts, seed: int = 0) -> World:
    world = World(RANKS, cast(Rails, Apart(hosts)), seed, COUNTS)
    members = [
        (hosts.address(rank), *world.rails.open_rdma(rank, NIC, hosts.address(rank))) for rank in range(RANKS)
    ]
    for rank in range(RANKS):
        world.rails.connect_rdma(rank, SECRET, members)
    return world


def tcp_world(hosts: Hosts, seed: int = 0) -> World:
    world = World(RANKS, cast(Rails, Apart(hosts)), seed, COUNTS)
    members = [
        (hosts.address(rank), world.rails.open_tcp(rank, hosts.address(rank))) for rank in range(RANKS)
    ]
    for rank in range(RANKS):
        world.rails.connect_tcp(rank, SECRET, members)
    world.run(world.all_ready)
    return world


def set_link(hosts: Hosts, rank: int, state: str) -> None:
    with inside(hosts.namespaces[rank]):
        ip("link", "set", NIC, state)


@pytest.mark.parametrize("seed", range(3))
def test_rdma_rails_may_be_halted_at_any_time(hosts: Hosts, seed: int) -> None:
    world = rdma_world(hosts, seed)
    slices = world.new_slices()
    world.start_all(slices)
    for incarnation in (1, 2, 3, 7):
        world.some_turns()
        world.in_any_order(world.halt)
        slices = world.new_slices()
        world.restart(incarnation, slices)
    world.finish(slices)
    more = world.new_slices()
    world.start_all(more)
    world.finish(more)
    assert world.spoilt


def test_rdma_rails_may_be_halted_from_inside_their_reports(hosts: Hosts) -> None:
    world = rdma_world(hosts)
    slices = world.new_slices(most=1) + world.new_slices(most=2)
    for rank in range(RANKS):
        world.rails.halt_at_next(rank)
        world.start(rank, slices)
    # The first rank to halt may leave other ranks waiting for an acknowledgement.
    world.run(lambda: not all(map(world.rails.ready, range(RANKS))))
    world.in_any_order(world.halt)
    assert all(len(world.rails.done(rank)) <= 1 for rank in range(RANKS))
    again = world.new_slices()
    world.restart(1, again)
    world.finish(again)


def test_late_packets_of_an_incarnation_meet_no_queue_pair(hosts: Hosts) -> None:
    """A rank in the old incarnation goes on sending. Its packets do not affect the others' new slices."""
    world = rdma_world(hosts)
    slices = world.new_slices()
    world.start_all(slices)
    world.run(lambda: bool(world.rails.stats(0).bytes_received))
    for rank in (0, 1):
        world.halt(rank)
        world.rails.restart(rank, 1)
    again = world.new_slices()
    for rank in (0, 1):
        world.start(rank, again)
    for _ in range(50):
        world.rails.turn(0.01)
    assert not world.rails.ready(0), "rank 2 has not joined"
    world.halt(2)
    world.rails.restart(2, 1)
    world.start(2, again)
    world.finish(again)
    for rank in (0, 1):
        assert world.rails.stats(rank).malformed == 0


def test_rdma_restarts_that_cannot_be_say_so(hosts: Hosts) -> None:
    world = rdma_world(hosts)
    with pytest.raises(RuntimeError, match="after they were halted"):
        world.rails.restart(0, 1)
    world.rails.halt(0)
    with pytest.raises(RuntimeError, match="were in incarnation 0 before they are to restart as 0"):
        world.rails.restart(0, 0)


@pytest.mark.parametrize("open_world", [tcp_world, rdma_world])
def test_a_link_that_dies_and_comes_back(hosts: Hosts, open_world: Callable[[Hosts], World]) -> None:
    """Ranks restart while the link is down. They join when the link is up, and no failure is permanent."""
    world = open_world(hosts)
    slices = world.new_slices()
    world.start_all(slices)
    world.some_turns()
    set_link(hosts, 0, "down")
    try:
        for _ in range(20):
            world.rails.turn(0.01)
        world.in_any_order(world.halt)
        again = world.new_slices()
        world.restart(1, again)
        assert not world.all_ready()
    finally:
        set_link(hosts, 0, "up")
    told = [failure for rank in range(RANKS) for failure in world.rails.failures(rank)]
    assert all(failure.kind == FailureKind.SILENT for failure in told)
    world.finish(again)
