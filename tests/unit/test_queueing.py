# SPDX-License-Identifier: Apache-2.0
"""Times and queue lengths that a program sees. Times count from the switch's start, in microseconds."""

from __future__ import annotations

import pytest
from queue_program import priority_program, queue_program
from vectors.case import case

from railweave.switch.pipeline import Pipeline, Replica, Target, exact

START_US = 1000
PACKET = bytes([10, *bytes(7)])
QUEUE_PACKETS = 64  # as in BMv2


def pipeline(**looks: str) -> Pipeline:
    return Pipeline.load(queue_program(7, **looks))


def seen(loaded: Pipeline, backlog: tuple[int, int] = (0, 0)) -> tuple[int, int, int]:
    """Return the address, number and group of the outgoing header."""
    return header(loaded.native.inject(1, PACKET, 5000, backlog))


def header(left: list[tuple[int, bytes]]) -> tuple[int, int, int]:
    [(_, out)] = left
    return int.from_bytes(out[1:5], "big"), int.from_bytes(out[5:7], "big"), out[7]


def test_the_output_queue_is_seen() -> None:
    loaded = pipeline(address="deq_timedelta", number="enq_qdepth", group="deq_qdepth")
    assert seen(loaded) == (0, 0, 0)
    assert seen(loaded, (12, 3456)) == (3456, 12, 12)


@pytest.mark.parametrize(
    ("name", "time_us"),
    [("ingress_global_timestamp", 4000), ("enq_timestamp", 4000), ("egress_global_timestamp", 4300)],
)
def test_timestamps_count_from_the_start_of_the_switch(name: str, time_us: int) -> None:
    loaded = pipeline(address=name)
    loaded.native.set_start(START_US)
    assert seen(loaded, (1, 300))[0] == time_us


def test_only_programs_that_look_at_time_need_a_clock_for_every_packet() -> None:
    assert not pipeline(address="deq_qdepth").native.uses_clock()
    assert pipeline(address="enq_timestamp").native.uses_clock()


def test_a_packet_that_waits_sees_the_queue_when_it_enters_and_when_it_leaves() -> None:
    loaded = pipeline(address="deq_timedelta", number="enq_qdepth", group="deq_qdepth")
    native = loaded.native
    for number in range(3):
        assert native.inject(1, PACKET, 5000 + number, busy=True) == []
    assert header(native.release(7, 6000)) == (1000, 0, 2)
    assert header(native.release(7, 6000)) == (999, 1, 1)
    assert native.release(6, 6000) == []
    assert header(native.release(7, 7000)) == (1998, 2, 0)
    assert native.release(7, 7000) == []
    assert seen(loaded) == (0, 0, 0)


def test_a_full_queue_drops_packets() -> None:
    native = pipeline(number="enq_qdepth").native
    for _ in range(QUEUE_PACKETS + 1):
        native.inject(1, PACKET, busy=True)
    assert [header(native.release(7, 0))[1] for _ in range(QUEUE_PACKETS)] == list(range(QUEUE_PACKETS))
    assert native.release(7, 0) == []
    assert native.statistics()["emitted"] == QUEUE_PACKETS


def test_packets_of_higher_priority_leave_first() -> None:
    native = Pipeline.load(priority_program(7)).native
    native.set_priority_queues(8)
    for priority in (0, 5, 0, 7):
        native.inject(1, bytes([0, priority, *bytes(10)]), busy=True)
    left = [native.release(7, 0) for _ in range(5)]
    assert [[packet[1] for _, packet in packets] for packets in left] == [[7], [5], [0], [0], []]


def clones(kind: int) -> list[list[int]]:
    """Return the kinds of packets that leave, per release, after one of `kind` and another one of kind 10."""
    loaded = pipeline()
    loaded.replication.set_session(200, [Replica(7, 1)])
    for first in (kind, 10):
        loaded.native.inject(1, bytes([first, *bytes(7)]), busy=True)
    left = iter(lambda: [packet[0] for _, packet in loaded.native.release(7, 0, busy=True)], [])
    return list(left)


def test_a_clone_of_a_packet_that_waited_waits_behind_all_others() -> None:
    assert clones(5) == [[5], [10], [5]]


def test_clones_of_clones_that_wait_are_bounded() -> None:
    assert len(clones(9)) == 4096  # one pass for ingress and 4,095 for egress, and the other packet


def test_a_priority_needs_a_queue() -> None:
    loaded = case("cpu").pipeline()
    loaded.tables["I.hosts"].insert([exact(0)], Target("I.forward", (7,)))

    def leave(queues: int) -> list[bool]:
        loaded.native.set_priority_queues(queues)
        return [bool(loaded.inject(1, bytes([0, priority]) + bytes(10))) for priority in range(9)]

    assert leave(1) == [True, *[False] * 7, True]  # the program sets no priority above 7
    assert leave(3) == [True] * 3 + [False] * 5 + [True]
    assert leave(8) == [True] * 9
