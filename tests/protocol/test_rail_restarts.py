# SPDX-License-Identifier: Apache-2.0
"""Rails over loopback that are halted in the middle of slices and connected again."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from protocol.loopback_switch import ADDRESS, GROUP, LANES, SLOTS, LoopbackSwitch
from protocol.rail_world import DEADLINE_S, SECRET, World, tcp_world
from protocol.tcp_greetings import HELLO, PROOF, hello, is_answer, number_of, proof, tcp_key

from railweave._native.agent import FailureKind
from railweave._rigs.rails import Rails

KEY = tcp_key(SECRET)
SPOILT = -77  # a caller writes this value into memory that it has got back


# ---------------------------------------------------------------- at any time


CPUS = tuple(sorted(os.sched_getaffinity(0))[:2])
needs_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="one worker per CPU, and there is only one CPU")


def ina_world(seed: int = 0, ranks: int = 3, trees: int = 1, cpus: Sequence[int] = ()) -> World:
    world = World(ranks, Rails(ranks), seed, counts=(1, 100, 10_000))
    members = [("127.0.0.1", world.rails.open_ina(rank, "127.0.0.1")) for rank in range(ranks)]
    for rank in range(ranks):
        groups = [(GROUP + tree, ADDRESS) for tree in range(trees)]
        world.rails.attach(rank, groups, slots=SLOTS, lanes=LANES, cpus=list(cpus))
        world.rails.connect_tcp(rank, SECRET, members)
    world.run(world.all_ready)
    return world


def worker_world(seed: int = 0) -> World:
    """Make rails with two trees. A separate thread on a separate CPU serves each tree."""
    return ina_world(seed, trees=2, cpus=CPUS)


worlds = pytest.mark.parametrize(
    "open_world",
    [lambda seed: tcp_world(2 + seed % 3, seed), ina_world, pytest.param(worker_world, marks=needs_cpus)],
    ids=["tcp", "ina", "workers"],
)


@worlds
@pytest.mark.parametrize("seed", range(6))
def test_rails_may_be_halted_at_any_time(
    switch: LoopbackSwitch, open_world: Callable[[int], World], seed: int
) -> None:
    """Halt several incarnations at random times. The slices of the last one must be exact."""
    switch.restart(GROUP, GROUP + 1)
    world = open_world(seed)
    slices = world.new_slices()
    world.start_all(slices)
    for incarnation in range(1, 5):
        world.some_turns()
        world.in_any_order(world.halt)
        bases = world.greatest_chunks()
        slices = world.new_slices()
        world.restart(incarnation, slices, bases)
    world.finish(slices)
    more = world.new_slices()
    world.start_all(more)
    world.finish(more)


@worlds
def test_a_rail_may_be_halted_from_inside_its_report(
    switch: LoopbackSwitch, open_world: Callable[[int], World]
) -> None:
    switch.restart(GROUP, GROUP + 1)
    world = open_world(1)
    slices = world.new_slices(most=1) + world.new_slices(most=2)
    for rank in range(3):
        world.rails.halt_at_next(rank)
        world.start(rank, slices)
    world.run(lambda: not any(map(world.rails.ready, range(3))))
    for rank in range(3):
        told = len(world.rails.done(rank)) + len(world.rails.failures(rank))
        assert told == 1
        world.halt(rank)
    again = world.new_slices()
    world.restart(1, again, world.greatest_chunks())
    world.finish(again)


# ---------------------------------------------------------------- halts and restarts


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_channels_that_were_never_connected_join_once_per_epoch() -> None:
    """Repair channels connect in this way. Epochs may be skipped, and a second halt has no effect."""
    world = tcp_world(3, connected=False)
    world.in_any_order(world.halt)
    assert not world.all_ready()
    before = open_files()
    for epoch in (1, 2, 5, 40):
        slices = world.new_slices()
        world.restart(epoch, slices)
        world.finish(slices)
        assert world.all_ready()
        for _ in range(2):
            world.in_any_order(world.halt)
        world.rails.turn(0.0)
        assert open_files() <= before
    for rank in range(3):
        assert world.rails.stats(rank).malformed == 0


@pytest.mark.parametrize("ranks", [5, 16])
def test_ranks_are_connected_with_some_only(ranks: int) -> None:
    """The number of connections grows with the logarithm of the ranks, also after a restart."""
    before = open_files()
    world = tcp_world(ranks)
    sockets = open_files() - before
    most = min(ranks - 1, 2 * (ranks - 1).bit_length() + 2)
    assert sockets <= ranks * (most + 2) + 3  # each rank's listener and datagram socket, and the loop's
    sent = 0
    for incarnation in (1, 2):
        slices = world.new_slices()
        world.start_all(slices)
        world.finish(slices)
        world.in_any_order(world.halt)
        world.restart(incarnation)
        world.run(world.all_ready)
        assert open_files() - before <= sockets
        assert world.rails.stats(0).sent.payload > sent  # counts go on over restarts
        sent = world.rails.stats(0).sent.payload


def test_what_cannot_be_restarted_says_so() -> None:
    fresh = Rails(2)
    fresh.open_tcp(0, "127.0.0.1")
    with pytest.raises(RuntimeError, match="once it is known who takes part"):
        fresh.restart(0, 1)
    world = tcp_world(2)
    with pytest.raises(RuntimeError, match="after a halt"):
        world.rails.restart(0, 1)
    world.rails.halt(0)
    with pytest.raises(RuntimeError, match="were in incarnation 0 before they are to restart as 0"):
        world.rails.restart(0, 0)
    world.rails.restart(0, 3)
    world.rails.halt(0)
    with pytest.raises(RuntimeError, match="were in incarnation 3"):
        world.rails.restart(0, 3)


def test_an_in_network_rail_wants_a_base_per_tree_that_is_not_below_its_own(switch: LoopbackSwitch) -> None:
    del switch
    world = ina_world()
    slices = world.new_slices()
    world.start_all(slices)
    world.finish(slices)
    world.rails.halt(0)
    [following] = world.rails.next_chunks(0)
    with pytest.raises(ValueError, match="0 bases for 1 trees"):
        world.rails.restart(0, 1)
    with pytest.raises(ValueError, match=f"{following - 1} is below this rank's own, {following}"):
        world.rails.restart(0, 1, [following - 1])
    assert not world.rails.ready(0)
    world.rails.restart(0, 1, [following])


# ---------------------------------------------------------------- the test is the peer


class Channel:
    """Rank 0 or 1 of two. The test is the other rank."""

    def __init__(self, rank: int, peer_port: int = 1) -> None:
        self.rails, self.rank = Rails(2), rank
        self.said: dict[socket.socket, bytes] = {}  # the hello that the test has sent on each connection
        self.port = self.rails.open_tcp(rank, "127.0.0.1")
        members = [("127.0.0.1", peer_port)] * 2
        members[rank] = ("127.0.0.1", self.port)
        self.rails.introduce(rank, SECRET, members)

    def dial(self, incarnation: int) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)
        self.said[connection] = hello(KEY, 1, 0, incarnation=incarnation)
        connection.sendall(self.said[connection])
        return connection

    def run(self, reached: Callable[[], bool]) -> None:
        latest = time.monotonic() + DEADLINE_S
        while not reached():
            assert time.monotonic() < latest
            self.rails.turn(0.01)

    def hears(self, connection: socket.socket, size: int = HELLO) -> bytes:
        """Return the next bytes that the channel sends, fewer if it closes the connection."""
        connection.setblocking(False)
        said, closed = b"", False

        def heard() -> bool:
            nonlocal said, closed
            with contextlib.suppress(BlockingIOError):
                try:
                    more = connection.recv(size - len(said))
                except ConnectionResetError:
                    more = b""
                said, closed = said + more, not more
            return closed or len(said) == size

        self.run(heard)
        return said

    def closes(self, connection: socket.socket) -> None:
        """Raise AssertionError unless the channel closes this connection without sending anything."""
        assert self.hears(connection, 1) == b""

    def dials(self, connection: socket.socket, incarnation: int) -> bytes:
        """Return the hello of the channel, which is rank 1. Check that it has this incarnation."""
        said = self.hears(connection)
        assert said == hello(KEY, 1, 0, incarnation=incarnation, number=number_of(said))
        return said

    def answers(self, connection: socket.socket) -> None:
        """Finish a handshake that the test has begun."""
        answer = self.hears(connection)
        assert is_answer(answer, KEY, self.said[connection])
        connection.setblocking(True)
        connection.sendall(proof(KEY, self.said[connection], answer))
        self.run(lambda: self.rails.ready(0))


def test_a_peer_that_is_ahead_is_parked_until_this_rank_comes_there() -> None:
    channel = Channel(0)
    with channel.dial(2) as ahead:
        channel.rails.restart(0, 1)
        with channel.dial(1) as present:
            channel.answers(present)
            ahead.setblocking(False)
            with pytest.raises(BlockingIOError):
                ahead.recv(1)
            channel.rails.halt(0)
            channel.closes(present)
        channel.rails.restart(0, 2)
        channel.answers(ahead)
    assert channel.rails.stats(0).malformed == 0


def test_a_copy_of_what_a_parked_peer_said_does_not_take_its_place() -> None:
    channel = Channel(0)
    with channel.dial(2) as parked:
        channel.rails.turn(DEADLINE_S)
        channel.rails.turn(DEADLINE_S)
        with socket.create_connection(("127.0.0.1", channel.port), DEADLINE_S) as copy:
            copy.sendall(channel.said[parked])
            channel.closes(copy)
        channel.rails.restart(0, 2)
        channel.answers(parked)
    assert channel.rails.stats(0).malformed == 1


def test_an_answer_to_an_earlier_dial_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        channel = Channel(1, peer_port=listener.getsockname()[1])
        channel.rails.restart(1, 1)
        earlier = b""
        for _ in range(2):
            channel.run(lambda: bool(select.select([listener], [], [], 0)[0]))
            with listener.accept()[0] as connection:
                said = channel.dials(connection, 1)
                if earlier:
                    connection.sendall(earlier)
                    channel.closes(connection)
                earlier = hello(KEY, 0, 1, incarnation=1, answered=number_of(said))
        assert not channel.rails.ready(1)


def test_a_peer_that_is_behind_or_comes_while_this_rank_is_halted_is_turned_away() -> None:
    channel = Channel(0)
    channel.rails.restart(0, 5)
    with channel.dial(4) as behind:
        channel.closes(behind)
    channel.rails.halt(0)
    with channel.dial(5) as abandoned:
        channel.closes(abandoned)
    assert channel.rails.failures(0) == []
    assert channel.rails.stats(0).malformed == 0


def test_memory_is_free_at_once_though_the_kernel_has_not_taken_all() -> None:
    """The peer reads nothing, so that part of the message is still in this rank's memory at the halt."""
    channel = Channel(0)
    channel.rails.restart(0, 1)
    with channel.dial(1) as peer:
        channel.answers(peer)
        values, out = np.ones(1 << 22, np.int32), np.zeros(1 << 22, np.int32)
        channel.rails.start(0, 0, 0, values, out)
        for _ in range(20):
            channel.rails.turn(0.0)
        channel.rails.halt(0)
        values[:] = out[:] = SPOILT
        channel.rails.turn(0.0)
        peer.settimeout(DEADLINE_S)
        with contextlib.suppress(ConnectionResetError):
            while received := peer.recv(1 << 20):
                assert struct.pack("!i", SPOILT) not in received


def test_a_halted_rank_dials_nobody() -> None:
    """The first connection after the peer listens belongs to the next incarnation."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        channel = Channel(1, peer_port=listener.getsockname()[1])
        channel.rails.restart(1, 1)
        channel.rails.turn(DEADLINE_S)  # the dial is refused, and the channel waits to dial again
        channel.rails.halt(1)
        listener.listen()
        channel.rails.restart(1, 2)
        channel.rails.turn(DEADLINE_S)
        with listener.accept()[0] as connection:
            channel.dials(connection, 2)


def test_a_parked_peer_that_comes_again_counts_with_its_last_connection() -> None:
    channel = Channel(0)
    with channel.dial(2) as first:
        channel.rails.turn(DEADLINE_S)  # accepts the connection
        channel.rails.turn(DEADLINE_S)  # receives the hello
        with channel.dial(3) as second:
            channel.closes(first)
            channel.rails.restart(0, 3)
            channel.answers(second)


def test_silent_connections_keep_no_peer_out_of_a_restart() -> None:
    channel = Channel(0)
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(socket.create_connection(("127.0.0.1", channel.port), DEADLINE_S))
        channel.rails.restart(0, 1)
        channel.answers(stack.enter_context(channel.dial(1)))
        channel.run(lambda: channel.rails.ready(0))


def test_a_rank_dials_until_its_peer_answers() -> None:
    """At first nobody listens. Then the peer closes the connections. In the end the peer answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        channel = Channel(1, peer_port=listener.getsockname()[1])
        channel.rails.restart(1, 4)
        for _ in range(10):
            channel.rails.turn(0.01)
        listener.listen()
        listener.setblocking(False)
        for attempt in range(4):
            accepted: list[socket.socket] = []

            def knocked(accepted: list[socket.socket] = accepted) -> bool:
                with contextlib.suppress(BlockingIOError):
                    accepted.append(listener.accept()[0])
                return bool(accepted)

            channel.run(knocked)
            with accepted[0] as connection:
                said = channel.dials(connection, 4)
                if attempt < 3:
                    continue
                answer = hello(KEY, 0, 1, incarnation=4, answered=number_of(said))
                connection.sendall(answer)
                channel.run(lambda: channel.rails.ready(1))
                assert channel.hears(connection, PROOF) == proof(KEY, said, answer)
        assert channel.rails.failures(1) == []
        channel.run(lambda: bool(channel.rails.failures(1)))
    [failure] = channel.rails.failures(1)
    assert (failure.kind, failure.rank, failure.by_peer) == (FailureKind.SILENT, 0, True)


def test_a_switch_that_is_deaf_for_a_while(switch: LoopbackSwitch) -> None:
    """Chunks that never arrived are void, too. The next chunks have the same numbers on all ranks."""
    world = ina_world()
    switch.deaf.set()
    slices = world.new_slices()
    for rank in range(3):
        world.start(rank, slices)
        world.some_turns()
    world.in_any_order(world.halt)
    switch.deaf.clear()
    again = world.new_slices()
    world.restart(1, again, world.greatest_chunks())
    world.finish(again)
    assert world.spoilt
