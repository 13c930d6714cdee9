# SPDX-License-Identifier: Apache-2.0
"""Queue pairs over a bad link. All data arrives exactly once and in order."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.roce_link import MS, Buffer, Pair, all_sent, buffer
from protocol.virtual_time import MICROSECOND, Link

from railweave._native import roce
from railweave._native.roce import Opcode
from railweave._rigs.roce import CompletionKind, Operation, Status

SIZES = [0, 1, 3, 255, 256, 257, 1024, 1025, 5000, 70_000]


def message(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("path_mtu", [256, 1024, 4096])
def test_each_operation_moves_the_bytes(size: int, path_mtu: int) -> None:
    pair = Pair(path_mtu=path_mtu)
    data = message(size)
    written, got = pair.write(data, 1), pair.deliver(data, 2)
    pair.rest()
    assert pair.a.statuses() == [(1, Status.SUCCESS), (2, Status.SUCCESS)]
    assert [c.byte_count for c in pair.a.completions] == [size] * 2
    assert written.tobytes() == got.tobytes() == data
    assert [(c.id, c.kind, c.byte_count) for c in pair.b.completions] == [(2, CompletionKind.RECEIVE, size)]


def test_immediate_data_arrive_with_the_write_and_leave_the_receive_buffer_alone() -> None:
    pair = Pair()
    unused = pair.deliver(b"", 1, room=8)
    spare = pair.deliver(b"", 2, room=8)
    into = pair.write(message(3000), 7, immediate=0xCAFE)
    pair.b.qp.post_receive(9, spare)
    pair.rest()
    last = pair.b.completions[-1]
    assert (last.id, last.kind) == (9, CompletionKind.RECEIVE_WRITE)
    assert (last.byte_count, last.immediate) == (3000, 0xCAFE)
    assert into.tobytes() == message(3000)
    assert not unused.any()
    assert not spare.any()


def test_acknowledgements_are_coalesced() -> None:
    pair = Pair(window=64)
    pair.write(message(64 * 1024))
    pair.rest()
    acknowledgements = [p for p in pair.sent if p["opcode"] is Opcode.ACKNOWLEDGE]
    assert 1 <= len(acknowledgements) <= 4
    assert pair.a.qp.stats.retransmissions == 0


def answers_to_sends(pair: Pair, count: int, now: int) -> int:
    """Send `count` short messages at once. Return the number of their acknowledgements."""
    for number in range(count):
        pair.deliver(message(1030), number, quiet=True)
    for packet in all_sent(pair.a, now):
        pair.b.qp.receive(packet, now)
    return len(all_sent(pair.b, now))


def test_acknowledgements_of_quiet_sends_wait_for_four_or_a_millisecond() -> None:
    pair = Pair()
    assert [answers_to_sends(pair, 1, now) for now in (0, 1000, 2000, 3000)] == [0, 0, 0, 1]
    assert answers_to_sends(pair, 1, MS) == 0
    assert pair.b.qp.deadline == 2 * MS
    pair.b.qp.expire(2 * MS)
    assert len(all_sent(pair.b, 2 * MS)) == 1
    assert pair.b.qp.deadline is None


@pytest.mark.parametrize("post", [Pair.write, Pair.deliver])
def test_what_is_awaited_is_acknowledged_at_once_with_what_was_before(post: Callable[..., Buffer]) -> None:
    pair = Pair()
    assert answers_to_sends(pair, 1, 0) == 0
    post(pair, message(10), 7)
    pair.rest(MS - 1)  # earlier than for the SEND alone
    assert pair.a.statuses() == [(0, Status.SUCCESS), (7, Status.SUCCESS)]
    assert sum(packet["opcode"] is Opcode.ACKNOWLEDGE for packet in pair.sent) == 1


def test_an_acknowledgement_leaves_behind_the_packet_that_begins_a_message() -> None:
    pair = Pair()
    pair.deliver(message(10))
    for packet in all_sent(pair.a):
        pair.b.qp.receive(packet, 0)
    pair.b.qp.post(1, Operation.SEND, buffer(message(3000)))
    sent = [roce.parse(packet) for packet in all_sent(pair.b)]
    assert [packet["opcode"] for packet in sent if packet] == [
        Opcode.SEND_FIRST,
        Opcode.ACKNOWLEDGE,
        Opcode.SEND_MIDDLE,
        Opcode.SEND_LAST,
    ]


def test_the_window_bounds_what_is_outstanding() -> None:
    pair = Pair(window=10)
    pair.write(message(100 * 1024))
    assert len(all_sent(pair.a)) == 10


def test_what_an_acknowledgement_lets_leave_asks_for_one_at_most() -> None:
    """After an acknowledgement, new packets ask for at most one acknowledgement.

    This also holds if the window ends between two requests, for example after a short message.
    """
    pair = Pair(window=70)
    pair.write(message(3 * 1024))
    pair.write(message(1000 * 1024), 2)
    packets, left = all_sent(pair.a), []
    while packets and len(left) < 40:
        while not (answers := all_sent(pair.b, 1000)):
            pair.b.qp.receive(packets.pop(0), 1000)
        pair.a.qp.receive(*answers, 2000)
        sent = all_sent(pair.a, 2000)
        packets += sent
        left.append((len(sent), sum(bool(p and p["ack_request"]) for p in map(roce.parse, sent))))
    assert left == [(3, 0), *[(16, 1)] * 39]


def test_a_lost_packet_is_asked_for_by_nak_not_by_timeout() -> None:
    pair = Pair()
    into = pair.write(message(20 * 1024))
    packets = all_sent(pair.a)
    for packet in packets[:3] + packets[4:]:
        pair.b.qp.receive(packet, 1000)
    pair.now = 2000
    pair.rest()
    assert into.tobytes() == message(20 * 1024)
    assert pair.a.qp.stats.timeouts == 0
    assert pair.b.qp.stats.naks_sent == 1
    assert pair.a.qp.stats.retransmissions == 17


def test_a_packet_lost_again_is_asked_for_again() -> None:
    pair = Pair()
    into = pair.write(message(20 * 1024))
    for _ in range(3):  # packet 3 is lost three times
        packets = all_sent(pair.a)
        lost = 3 if len(packets) == 20 else 0
        for packet in packets[:lost] + packets[lost + 1 :]:
            pair.b.qp.receive(packet, 1000)
        nak = pair.b.qp.transmit(1000)
        assert nak is not None
        pair.a.qp.receive(nak, 1000)
    pair.now = 2000
    pair.rest()
    assert into.tobytes() == message(20 * 1024)
    assert pair.a.qp.stats.timeouts == 0


def test_a_lost_tail_is_found_by_the_timer() -> None:
    pair = Pair(first_timeout=20 * MS)
    into = pair.write(b"tail")
    assert pair.a.qp.transmit(0) is not None  # this packet is lost
    pair.rest()
    assert into.tobytes() == b"tail"
    assert pair.a.qp.stats.timeouts == 1
    assert 20 * MS <= pair.now < 21 * MS


def test_a_lost_acknowledgement_costs_a_duplicate_that_changes_nothing() -> None:
    pair = Pair()
    into = pair.write(b"once")
    packet = pair.a.qp.transmit(0)
    assert packet is not None
    pair.b.qp.receive(packet, 10)
    assert pair.b.qp.transmit(10) is not None  # the acknowledgement, lost
    into[:] = 7  # b has gone on and uses its memory
    pair.rest()
    assert into.tobytes() == b"\x07" * 4
    assert pair.a.statuses() == [(1, Status.SUCCESS)]
    assert pair.b.qp.stats.duplicates == 1


def test_an_acknowledgement_that_comes_after_going_back_is_used() -> None:
    """All data has arrived, but the answer is late. The timer has expired, and a part was resent."""
    pair = Pair(window=64, first_timeout=20 * MS)
    into = pair.write(message(20 * 1024))
    for packet in all_sent(pair.a):
        pair.b.qp.receive(packet, 10)
    late = pair.b.qp.transmit(10)
    assert late is not None
    pair.a.qp.expire(20 * MS)
    assert len(all_sent(pair.a, 20 * MS)) == 8, "the window has shrunk to its least"
    pair.a.qp.receive(late, 21 * MS)
    more = pair.write(message(3000, 2), 2)
    pair.now = 21 * MS
    pair.rest()
    assert (into.tobytes(), more.tobytes()) == (message(20 * 1024), message(3000, 2))
    assert pair.a.statuses() == [(1, Status.SUCCESS), (2, Status.SUCCESS)]
    assert pair.a.qp.stats.retransmissions == 8


WEATHERS = st.builds(
    Link,
    loss=st.sampled_from([0.0, 0.01, 0.05, 0.2]),
    duplicate=st.sampled_from([0.0, 0.05, 0.3]),
    reorder=st.sampled_from([0.0, 0.05, 0.3]),
    late=st.just(300 * MICROSECOND),
)
OPERATION = st.tuples(st.sampled_from(["write", "immediate", "send"]), st.sampled_from(SIZES), st.booleans())


@settings(max_examples=150, deadline=None)
@given(link=WEATHERS, plan=st.lists(OPERATION, min_size=1, max_size=12), seed=st.integers(0, 2**32))
def test_everything_arrives_once_and_in_order(
    link: Link, plan: list[tuple[str, int, bool]], seed: int
) -> None:
    pair = Pair(link, seed=seed, retries=60, window=32)
    ends = (pair.a, pair.b)
    expected: list[tuple[object, bytes]] = []
    for index, (kind, size, backwards) in enumerate(plan):
        pair.a, pair.b = (ends[1], ends[0]) if backwards else ends
        data = message(size, seed + index)
        if kind == "send":
            into = pair.deliver(data, index)
        else:
            into = pair.write(data, index, immediate=index if kind == "immediate" else None)
            if kind == "immediate":
                pair.b.qp.post_receive(index, into)
        expected.append((into, data))
    pair.a, pair.b = ends
    pair.rest()
    for into, data in expected:
        assert into.tobytes() == data  # type: ignore[attr-defined]
    for end, backwards in ((pair.a, False), (pair.b, True)):
        requests = [i for i, step in enumerate(plan) if step[2] is backwards]
        receives = [
            i for i, step in enumerate(plan) if step[2] is not backwards and step[0] in ("send", "immediate")
        ]
        done = [
            c for c in end.completions if c.kind in (CompletionKind.RECEIVE, CompletionKind.RECEIVE_WRITE)
        ]
        assert [c.id for c in done] == receives
        assert [c.id for c in end.completions if c not in done] == requests
        assert all(c.status is Status.SUCCESS for c in end.completions)


def test_one_percent_of_loss_costs_little_time() -> None:
    """Write a mebibyte over a link of 50 µs each way. NAKs repair nearly all losses, not timers."""
    pair = Pair(Link(loss=0.01), seed=3, retries=30)
    data = message(1 << 20)
    into = pair.write(data)
    pair.rest()
    assert into.tobytes() == data
    assert pair.a.qp.stats.naks_received > pair.a.qp.stats.timeouts
    assert pair.now < 100 * MS


def test_the_window_shrinks_with_loss_and_grows_again() -> None:
    pair = Pair(Link(loss=0.05), seed=1, retries=30, window=64)
    pair.write(message(1 << 18))
    pair.rest()
    assert pair.a.qp.window < 64
    pair.link = Link()
    pair.write(message(1 << 22))
    pair.rest()
    assert pair.a.qp.window == 64


def answered_late(at: int, lost: int | None = None) -> Pair:
    """Let a timer expire before the answers to a full window come at a time, without those to one packet."""
    pair = Pair(window=32, window_time=6 * MS, first_timeout=4 * MS)
    pair.write(message(1 << 20))
    packets = all_sent(pair.a)
    assert len(packets) == 32
    pair.a.qp.expire(4 * MS)
    assert pair.a.qp.window == 8
    for number, packet in enumerate(packets):
        if number != lost:
            pair.b.qp.receive(packet, at)
    for answer in all_sent(pair.b, at):
        pair.a.qp.receive(answer, at)
    return pair


def test_a_peer_that_runs_late_is_waited_for_and_widens_the_window() -> None:
    """Answers to packets from before the timeout show that nothing was lost."""
    pair = answered_late(24 * MS)
    assert pair.a.qp.window == 64  # it may grow to 32 * (24 + 6) / 6
    assert len(all_sent(pair.a, 24 * MS)) == 64
    assert pair.a.qp.deadline == 48 * MS
    pair.now = 47 * MS
    pair.rest()
    assert pair.a.statuses() == [(1, Status.SUCCESS)]


def test_the_queue_of_a_connection_that_shares_the_link_widens_no_window() -> None:
    """The other connection's queue is as long as this one's. Both together do not make the peer late."""
    assert answered_late(12 * MS).a.qp.window == 32


def test_a_late_answer_that_names_a_loss_does_not_give_the_window_back() -> None:
    """The window is halved as after any loss. The sender does not treat the peer as late."""
    pair = answered_late(24 * MS, lost=10)
    assert pair.a.qp.stats.naks_received == 1
    assert pair.a.qp.window == 16
    assert pair.a.qp.deadline == 28 * MS
    pair.now = 25 * MS
    pair.rest()
    assert pair.a.statuses() == [(1, Status.SUCCESS)]
