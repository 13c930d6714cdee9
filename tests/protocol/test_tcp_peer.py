# SPDX-License-Identifier: Apache-2.0
"""A TCP rail against strangers, hostile peers and a peer that is killed."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.tcp_greetings import (
    ABORT,
    CODE,
    DATA,
    GOODBYE,
    HEAD,
    HEARTBEAT,
    HELLO,
    MAGIC,
    VERSION,
    Stream,
    frame,
    hello,
    is_answer,
    label,
    number_of,
    proof,
    shake_hands,
    tcp_key,
)

from railweave._native.agent import Agent, Call, FailureKind
from railweave._native.collectives import Collective, DType, ReduceOp

DEADLINE_S = 30.0
SECRET = b"what rank 0 and the test have in"
KEY = tcp_key(SECRET)
COUNT = 100  # elements of the call that the peer disturbs
MESSAGE = HEAD + CODE + 4 * COUNT  # bytes


class Host:
    """Rank 0 of two. The test is rank 1."""

    own: Stream
    peer: Stream

    def __init__(self) -> None:
        self.agent = Agent(0, 2)
        self.agent.set_secret(SECRET)
        self.rail, self.port = self.agent.add_tcp("tcp", "127.0.0.1", "lo")

    def dial(self, greeting: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)
        connection.sendall(greeting)
        return connection

    @contextlib.contextmanager
    def waiting(self) -> Iterator[Future[list[int]]]:
        """Wait for the peer in another thread. At the end, the peer must have been found."""
        with ThreadPoolExecutor(1) as pool:
            places = [("127.0.0.1", self.port), ("127.0.0.1", 1)]
            missing = pool.submit(self.agent.connect_tcp, self.rail, places, DEADLINE_S)
            yield missing
            assert missing.result(DEADLINE_S) == []

    def connect(self) -> socket.socket:
        with self.waiting():
            peer = self.dial(greeting := hello(KEY, 1, 0))
            self.own, self.peer = shake_hands(peer, KEY, greeting)
        return peer

    def start(self) -> int:
        self.arrays = np.ones(COUNT, np.float32), np.zeros(COUNT, np.float32)
        call = Call(DType.FLOAT32, ReduceOp.SUM, COUNT)
        point = self.agent.plan_point()
        op: int = point[0]
        self.agent.submit(point, call, *self.arrays, [(self.rail, 0, COUNT)])
        return op


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    yield made
    made.agent.close(0)


def test_a_peer_that_behaves(host: Host) -> None:
    with host.connect() as peer:
        op = host.start()
        sent = peer.recv(MESSAGE, socket.MSG_WAITALL)
        assert sent == host.own.coded(frame(DATA, np.ones(COUNT, np.float32).tobytes(), label(0, COUNT)))
        for byte in host.peer.coded(frame(DATA, np.full(COUNT, 2, np.float32).tobytes(), label(0, COUNT))):
            peer.send(bytes([byte]))  # TCP may split the stream anywhere
        assert host.agent.wait(op, DEADLINE_S)
        assert host.agent.failure() is None
        np.testing.assert_array_equal(host.arrays[1], 3)


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\nHost: rail\r\nAccept: */*\r\n\r\n....",
        hello(tcp_key(SECRET[::-1]), 1, 0),
        hello(tcp_key(SECRET, rail=1), 1, 0),
        hello(KEY, 1, 0, magic=MAGIC + 1),
        hello(KEY, 1, 0, version=VERSION + 1),
        hello(KEY, 1, 0, size=3),
        hello(KEY, 1, 0, answered=1),
        hello(KEY, 1, 1),
        hello(KEY, 0, 0),
        hello(KEY, 2, 0),
        hello(KEY, 0xFFFFFFFF, 0),
    ],
)
def test_strangers_are_closed_and_counted_and_the_peer_still_gets_in(host: Host, greeting: bytes) -> None:
    with host.dial(greeting) as stranger, host.connect():
        assert closed(stranger)
        assert host.agent.stats()[0].malformed == 1


def closed(connection: socket.socket) -> bool:
    """Return whether the other end closes the connection without sending anything."""
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


def test_connections_from_addresses_of_no_member_are_closed_at_once(host: Host) -> None:
    greeting = hello(KEY, 1, 0)  # although it is a right hello of the peer
    with host.waiting(), contextlib.ExitStack() as stack:
        for number in range(40):
            at = ("127.0.0.1", host.port)
            stranger = socket.create_connection(at, DEADLINE_S, source_address=("127.0.0.2", 0))
            stack.enter_context(stranger)
            if number % 2:
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(greeting)
            assert closed(stranger)
        shake_hands(stack.enter_context(host.dial(greeting)), KEY, greeting)
    assert host.agent.stats()[0].malformed == 40


def test_silent_connections_keep_no_member_out_though_they_are_of_its_address(host: Host) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(host.dial(b"")) for _ in range(40)]
        stack.enter_context(host.connect())
        silent += [stack.enter_context(host.dial(b"")) for _ in range(5)]
        latest = time.monotonic() + DEADLINE_S
        places = 17  # places for this address: one for its rank, and some spare ones
        while host.agent.stats()[0].malformed < len(silent) - places:
            assert time.monotonic() < latest
        assert closed(silent[0])


def test_a_hello_is_of_no_use_twice_and_not_without_a_proof(host: Host) -> None:
    with host.waiting() as missing, contextlib.ExitStack() as stack:
        seen = stack.enter_context(host.dial(greeting := hello(KEY, 1, 0)))
        answer = seen.recv(HELLO, socket.MSG_WAITALL)
        assert is_answer(answer, KEY, greeting)
        copy = stack.enter_context(host.dial(greeting))
        assert closed(copy)
        seen.sendall(proof(KEY, answer, greeting))
        assert closed(seen)
        assert not missing.done()
        shake_hands(stack.enter_context(host.dial(greeting := hello(KEY, 1, 0))), KEY, greeting)
        assert missing.result(DEADLINE_S) == []
        assert closed(stack.enter_context(host.dial(greeting)))
    assert host.agent.stats()[0].malformed == 3


def test_a_rank_waits_for_its_peer_however_often_other_threads_ask(host: Host) -> None:
    with host.waiting() as missing:
        for _ in range(100):
            host.agent.stats()
            assert not missing.done(), missing.result()
        with host.dial(greeting := hello(KEY, 1, 0)) as peer:
            shake_hands(peer, KEY, greeting)


def test_a_rank_that_is_refused_at_first_joins_once_its_peer_listens() -> None:
    """This happens, for example, when a firewall is opened or an interface comes up."""
    agent = Agent(1, 2)
    agent.set_secret(SECRET)
    rail, port = agent.add_tcp("tcp", "127.0.0.1", "lo")
    with contextlib.closing(agent), socket.socket() as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(("127.0.0.1", 0))
        places = [listener.getsockname(), ("127.0.0.1", port)]
        missing = pool.submit(agent.connect_tcp, rail, places, DEADLINE_S)
        latest = time.monotonic() + DEADLINE_S
        while "Connection refused" not in agent.last_refusal(rail):
            assert time.monotonic() < latest
        assert not missing.done()
        listener.listen()
        connection, _ = listener.accept()
        with connection:
            greeting = connection.recv(HELLO, socket.MSG_WAITALL)
            connection.sendall(hello(KEY, 0, 1, answered=number_of(greeting)))
            assert missing.result(DEADLINE_S) == []


def test_a_second_connection_of_the_same_rank_is_a_stranger(host: Host) -> None:
    with host.connect(), host.dial(hello(KEY, 1, 0)) as second:
        with contextlib.suppress(ConnectionResetError):
            assert second.recv(1) == b""
        assert host.agent.stats()[0].malformed == 1
        assert host.agent.failure() is None


MISMATCH, DOWN, LOST = FailureKind.MISMATCH, FailureKind.RAIL_DOWN, FailureKind.PEER_LOST
BURNS = struct.pack("!BiB", 0, 1, 3) + b"tcpit \x1b[2J burns"
NOT_SENT = [
    (
        frame(DATA, bytes(400), label(0, COUNT, op=1)),
        MISMATCH,
        "rank 1 calls all_reduce #0 of 100 float32, max",
    ),
    (frame(DATA, bytes(400), label(1, COUNT)), MISMATCH, "rank 1 calls all_reduce #1"),
    (frame(DATA, bytes(396), label(0, COUNT)), MISMATCH, "396 bytes where this rank expects 400"),
    (frame(DATA, b"", label(0, COUNT), length=2**32 - 1), MISMATCH, "expects 400"),
    (frame(77, bytes(400)), DOWN, "no frame of this protocol"),  # test_tcp_reader.py has others
    (frame(ABORT, BURNS), LOST, r"it \?\[2J burns"),
    (frame(ABORT, struct.pack("!BiB", 0, 1, 99) + b"short"), DOWN, "without a reason"),
    (frame(GOODBYE, b""), LOST, "has closed its communicator"),
    (b"", LOST, "has closed the connection"),
]


@pytest.mark.parametrize(("sent", "kind", "message"), NOT_SENT)
def test_what_a_peer_may_not_send_ends_the_call_with_its_name(
    host: Host, sent: bytes, kind: FailureKind, message: str
) -> None:
    with host.connect() as peer:
        op = host.start()
        peer.recv(MESSAGE, socket.MSG_WAITALL)
        peer.sendall(host.peer.coded(sent) if sent else b"")
        peer.shutdown(socket.SHUT_WR)
        assert host.agent.wait(op, DEADLINE_S)
        failure = host.agent.failure_of(op)
        assert failure is not None
        assert (failure.kind, failure.rank, failure.rail) == (kind, 1, "tcp")
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(failure.message)


FORGED = [frame(GOODBYE), frame(DATA, bytes(400), label(1, COUNT))]
FORGED += [frame(ABORT, struct.pack("!BiB", kind, 1, 3) + b"tcpforged") for kind in range(4)]  # all end a job


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("guess", ["no code", "of another connection", "of an earlier frame", "with zeros"])
def test_a_frame_that_the_peer_has_not_written_is_a_fault_of_the_rail(
    host: Host, forged: bytes, guess: str
) -> None:
    with host.connect() as peer:
        op = host.start()
        again = Stream(host.peer.key)
        peer.sendall(host.peer.coded(frame(HEARTBEAT)))
        codes = {
            "no code": lambda: forged + bytes(CODE),
            "of another connection": lambda: Stream(host.own.key).coded(forged),
            "of an earlier frame": lambda: again.coded(forged),
            "with zeros": lambda: forged[:HEAD] + bytes(CODE) + forged[HEAD:],
        }
        peer.sendall(codes[guess]())
        assert host.agent.wait(op, DEADLINE_S)
        failure = host.agent.failure_of(op)
        assert failure is not None
        assert (failure.kind, failure.rank, failure.rail) == (FailureKind.RAIL_DOWN, 1, "tcp")
        assert "no frame of this protocol" in failure.message


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.binary(max_size=200), st.builds(frame, st.integers(0, 4), st.binary(max_size=500))),
        max_size=8,
    )
)
def test_no_stream_hangs_or_crashes_a_rank(pieces: list[bytes]) -> None:
    host = Host()
    with contextlib.closing(host.agent), host.connect() as peer:
        op = host.start()
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                peer.sendall(host.peer.coded(piece) if len(piece) > HEAD else piece)
            peer.shutdown(socket.SHUT_WR)
        assert host.agent.wait(op, DEADLINE_S)
        failure = host.agent.failure_of(op)
        assert failure is not None
        assert failure.message


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.ALL_GATHER])
def test_what_is_not_sent_yet_is_not_copied_either(host: Host, collective: Collective) -> None:
    """The loop copies a large result in pieces, because it has other work in between."""
    count = 16 << 20
    x = np.ones(count, np.float32)
    out = np.zeros(count * (2 if collective == Collective.ALL_GATHER else 1), np.float32)
    host.arrays = x, out  # the agent uses them until it is closed
    with host.connect():  # the peer reads nothing
        point = op, _ = host.agent.plan_point()
        call = Call(DType.FLOAT32, ReduceOp.SUM, count, collective, 0)
        host.agent.submit(point, call, x, out, [(host.rail, 0, count)])
        host.agent.stats()
        assert not host.agent.done(op)
        assert np.count_nonzero(out) < count
