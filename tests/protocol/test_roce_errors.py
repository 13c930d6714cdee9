# SPDX-License-Identifier: Apache-2.0
"""Queue pairs with peers that are silent, slow, greedy or hostile."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.roce_link import MS, Pair, address, all_sent, buffer
from protocol.virtual_time import Link

from railweave._native.roce import Opcode
from railweave._rigs import roce
from railweave._rigs.roce import CompletionKind, Operation, QueuePairOptions, Status

NAK_INVALID_REQUEST, NAK_REMOTE_ACCESS = (3, 1), (3, 2)


def answer_of(pair: Pair) -> tuple[int, int] | None:
    """Return (kind, value) of the next AETH from b."""
    packet = pair.b.qp.transmit(0)
    if packet is None:
        return None
    fields = roce.parse(packet)
    assert fields is not None
    return fields["aeth"][:2]  # type: ignore[no-any-return]


def request(pair: Pair, opcode: Opcode, payload: bytes = b"", *, ahead: int = 0, **fields: object) -> None:
    """Deliver a packet of a hostile peer to b. Its PSN is the one that b expects, plus `ahead`."""
    psn = (2**24 - 5 + ahead) % 2**24
    pair.b.qp.receive(roce.build(opcode, 0x222, psn, payload, ack_request=True, **fields), 0)  # type: ignore[arg-type]


def test_a_silent_peer_is_given_up_after_the_retries() -> None:
    pair = Pair(Link(loss=1.0), retries=3, first_timeout=10 * MS)
    pair.write(b"first", 1)
    pair.write(b"second", 2)
    pair.a.qp.post_receive(3, buffer(8))
    pair.rest()
    assert pair.a.statuses() == [(1, Status.RETRIES_EXCEEDED), (2, Status.FLUSHED), (3, Status.FLUSHED)]
    assert pair.a.qp.failed
    assert pair.now == (10 + 20 + 40 + 80) * MS, "the timeout doubles"
    pair.write(b"late", 4)
    pair.rest()
    assert pair.a.statuses()[-1] == (4, Status.FLUSHED)


def test_a_receiver_that_is_not_ready_is_waited_for() -> None:
    pair = Pair(rnr_timer=14)
    pair.a.qp.post(1, Operation.SEND, buffer(b"patience"))
    packet = pair.a.qp.transmit(0)
    assert packet is not None
    pair.b.qp.receive(packet, 0)
    rnr = pair.b.qp.transmit(0)
    assert rnr is not None
    pair.a.qp.receive(rnr, 0)
    assert pair.a.qp.transmit(0) is None, "it was told to wait"
    assert pair.a.qp.deadline == 1_280_000
    into = buffer(8)
    pair.b.qp.post_receive(5, into)
    pair.rest()
    assert into.tobytes() == b"patience"
    assert pair.a.qp.stats.timeouts == 0


def test_a_receiver_that_is_never_ready_is_given_up() -> None:
    pair = Pair(rnr_retries=4)
    pair.a.qp.post(1, Operation.SEND, buffer(b"?"))
    pair.rest()
    assert pair.a.statuses() == [(1, Status.RNR_RETRIES_EXCEEDED)]
    assert pair.a.qp.stats.naks_received == 5


def test_a_write_with_immediate_waits_for_a_receive_and_is_whole_afterwards() -> None:
    pair = Pair()
    into = pair.write(bytes(range(256)) * 12, 1, immediate=3)
    for packet in all_sent(pair.a):
        pair.b.qp.receive(packet, 0)
    pair.b.qp.post_receive(1, buffer(0))
    pair.rest()
    assert into.tobytes() == bytes(range(256)) * 12
    assert [c.kind for c in pair.b.completions] == [CompletionKind.RECEIVE_WRITE]


def test_a_message_longer_than_the_receive_buffer_is_refused() -> None:
    pair = Pair()
    into = pair.deliver(b"x" * 3000, 1, room=2999)
    pair.rest()
    assert pair.a.statuses() == [(1, Status.REMOTE_INVALID_REQUEST)]
    assert pair.b.statuses() == [(1, Status.FLUSHED)]
    assert not into[2048:].any()


@pytest.mark.parametrize(
    ("shift", "size"), [(-1, 16), (1, 16), (16, 1), (-(2**40), 16), (0, 17), (2**63, 16)]
)
def test_access_outside_a_region_is_refused(shift: int, size: int) -> None:
    pair = Pair()
    guarded = buffer(b"\xaa" * 16 + b"secret..........".ljust(16) + b"\xbb" * 16)
    region = guarded[16:32]
    rkey = pair.b.memory.add(region)
    before = guarded.tobytes()
    target = (address(region) + shift) % 2**64
    pair.a.qp.post(1, Operation.WRITE, buffer(size), remote_address=target, rkey=rkey)
    pair.rest()
    assert pair.a.statuses() == [(1, Status.REMOTE_ACCESS_ERROR)]
    assert pair.b.qp.failed
    assert guarded.tobytes() == before


@pytest.mark.parametrize("case", ["unknown", "removed", "other queue pair", "index too large"])
def test_keys_that_grant_nothing(case: str) -> None:
    pair = Pair()
    into = buffer(16)
    rkey = pair.b.memory.add(into, 0x333 if case == "other queue pair" else 0)
    if case == "removed":
        pair.b.memory.remove(rkey)
        pair.b.memory.add(into)  # the entry is in use again, under another key
    rkey ^= {"unknown": 1, "index too large": 0xFFFF0000}.get(case, 0)
    pair.a.qp.post(1, Operation.WRITE, buffer(b"x" * 16), remote_address=address(into), rkey=rkey)
    pair.rest()
    assert pair.a.statuses() == [(1, Status.REMOTE_ACCESS_ERROR)]
    assert not into.any()


HOSTILE = [
    (Opcode.SEND_MIDDLE, 1024, {}),
    (Opcode.WRITE_LAST, 4, {}),
    (Opcode.SEND_FIRST, 1000, {}),
    (Opcode.SEND_FIRST, 1028, {}),
    (Opcode.SEND_ONLY, 1028, {}),
    (Opcode.WRITE_FIRST, 1024, {"reth": (0, 0, 1024)}),
    (Opcode.WRITE_ONLY, 8, {"reth": (0, 0, 9)}),
    (Opcode.READ_REQUEST, 0, {"reth": (0, 0, 0)}),
    (Opcode.READ_REQUEST, 0, {"reth": (0, 0, 4)}),
]


@pytest.mark.parametrize(("opcode", "size", "fields"), HOSTILE)
def test_impossible_requests_are_refused(opcode: Opcode, size: int, fields: dict[str, object]) -> None:
    pair = Pair()
    pair.b.qp.post_receive(1, buffer(4096))
    request(pair, opcode, b"z" * size, **fields)
    assert answer_of(pair) == NAK_INVALID_REQUEST
    assert pair.b.qp.failed
    request(pair, Opcode.SEND_ONLY, b"more")
    assert answer_of(pair) is None, "a failed queue pair stays silent"


def test_a_last_packet_must_not_be_empty_and_messages_must_not_mix() -> None:
    for opcode, size in ((Opcode.SEND_LAST, 0), (Opcode.WRITE_ONLY, 4), (Opcode.READ_REQUEST, 0)):
        pair = Pair()
        pair.b.qp.post_receive(1, buffer(4096))
        request(pair, Opcode.SEND_FIRST, b"z" * 1024)
        assert answer_of(pair) == (0, 31)
        request(pair, opcode, b"z" * size, ahead=1)
        assert answer_of(pair) == NAK_INVALID_REQUEST


def test_packets_for_others_are_counted_and_dropped() -> None:
    pair = Pair()
    pair.b.qp.receive(roce.build(Opcode.SEND_ONLY, 0x999, 0), 0)
    pair.b.qp.receive(roce.build(Opcode.SEND_ONLY, 0x222, 2**24 - 5, partition=0x1234), 0)
    pair.b.qp.receive(b"\x04\x00", 0)
    assert pair.b.qp.stats.refused == 3
    assert pair.b.qp.stats.packets_received == 0


def test_acknowledgements_of_the_future_are_ignored() -> None:
    pair = Pair()
    into = pair.write(b"data")
    assert pair.a.qp.transmit(0) is not None
    for psn in range(2**24 - 4, 2**24):
        for syndrome in ((0, 31), (3, 0), (3, 2), (1, 5)):
            pair.a.qp.receive(roce.build(Opcode.ACKNOWLEDGE, 0x111, psn, aeth=(*syndrome, 0)), 0)
    assert pair.a.qp.poll() is None
    assert not pair.a.qp.failed
    pair.rest()
    assert into.tobytes() == b"data"


@settings(max_examples=300, deadline=None)
@given(
    packets=st.lists(
        st.tuples(
            st.sampled_from(list(Opcode)),
            st.integers(-3, 3),
            st.sampled_from([0, 1, 4, 1023, 1024]),
            st.integers(-20, 2100),
            st.integers(0, 2**32 - 1) | st.sampled_from([0, 16, 1024, 2000, 2048]),
            st.booleans(),
            st.tuples(st.integers(0, 3), st.integers(0, 31)),
        ),
        max_size=30,
    )
)
def test_no_packet_writes_outside_the_region(packets: list[tuple]) -> None:  # type: ignore[type-arg]
    """Deliver random packets near the expected PSNs, with the right key or a wrong one."""
    pair = Pair()
    arena = np.full(6144, 0x55, np.uint8)
    writable = arena[2048:4096]
    key = pair.b.memory.add(writable)
    into = buffer(1500)
    pair.b.qp.post_receive(1, into)
    pair.b.qp.post(2, Operation.SEND, buffer(b"x" * 3000))
    expected = 2**24 - 5
    for opcode, near, size, offset, length, right_key, syndrome in packets:
        reth = (address(writable) + offset, key if right_key else key ^ 0x10001, length)
        psn = (expected + near) % 2**24
        packet = roce.build(opcode, 0x222, psn, b"\x99" * size, reth=reth, aeth=(*syndrome, 0))
        pair.b.qp.receive(packet, 0)
        for out in all_sent(pair.b):
            fields = roce.parse(out)
            assert fields is None or not fields["opcode"].name.startswith("READ_RESPONSE")
        expected += 1 if near == 0 else 0
    assert (arena[:2048] == 0x55).all()
    assert (arena[4096:] == 0x55).all()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 2**32))
def test_garbage_never_crashes(data: bytes, seed: int) -> None:
    pair = Pair()
    pair.b.qp.post_receive(1, buffer(64))
    pair.b.qp.receive(data, 0)
    header = roce.build(Opcode(random.Random(seed).randrange(18)), 0x222, (2**24 - 5) % 2**24)
    pair.b.qp.receive(header[:12] + data, 0)
    all_sent(pair.b)


IMPOSSIBLE = [
    *({"path_mtu": size} for size in (1000, 8192)),
    {"window": 0},
    {"retries": -1},
    {"rnr_timer": 32},
    {"qpn": 1},
    {"send_psn": 2**24},
]


@pytest.mark.parametrize("options", IMPOSSIBLE, ids=str)
def test_impossible_options_are_named(options: dict[str, int]) -> None:
    [(field, value)] = options.items()
    with pytest.raises(ValueError, match=rf"{field} = {value}: must be"):
        roce.QueuePair(QueuePairOptions(**{"qpn": 0x11, "peer_qpn": 0x12} | options), roce.MemoryRegions())  # type: ignore[arg-type]
