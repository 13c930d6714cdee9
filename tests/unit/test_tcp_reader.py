# SPDX-License-Identifier: Apache-2.0
"""The reader of a TCP rail's stream: any division of the bytes gives the same events."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.tcp_greetings import ABORT, CODE, DATA, GOODBYE, HEAD, HEARTBEAT, Stream, frame, label

from railweave._rigs.rails import StreamReader

COUNT = 25
NAMED = "all_reduce #7 of 25 float32, sum"
PAYLOAD = bytes(range(100))
STAGING = 16 * 1024  # bytes in the reader's own buffer


KEY = bytes(range(16))


def coded(*frames: bytes) -> bytes:
    return Stream(KEY).coded(*frames)


MESSAGE = frame(DATA, PAYLOAD, label(7, COUNT))
FAILURE = frame(ABORT, struct.pack("!BiB", 1, 2, 3) + b"tcp" + b"the disk is full")
STREAM = coded(MESSAGE, frame(HEARTBEAT, about=label(7, COUNT)), MESSAGE, FAILURE, frame(GOODBYE))
EVENTS = [
    ("begins", NAMED, 100),
    ("ends", PAYLOAD),
    ("heartbeat", NAMED),
    ("begins", NAMED, 100),
    ("ends", PAYLOAD),
    ("failed", "the disk is full"),
    ("goodbye",),
]


def read(stream: bytes, cuts: list[int], wanted: bool = True) -> list[tuple[object, ...]]:
    """Feed a stream in pieces. Give every message its place when it begins."""
    reader, events = StreamReader(KEY), []
    for begin, end in itertools.pairwise([0, *sorted(cuts), len(stream)]):
        new = reader.feed(stream[begin:end])
        while new:
            events += new
            new = reader.place(wanted) if new[-1][0] == "begins" else []
    return events


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_a_stream_says_the_same_however_it_is_cut(cuts: list[int]) -> None:
    assert read(STREAM, cuts) == EVENTS


def test_a_stream_that_comes_byte_by_byte() -> None:
    assert read(STREAM, list(range(len(STREAM)))) == EVENTS


def test_messages_that_nobody_wants_are_passed_over() -> None:
    assert read(STREAM, [], wanted=False) == [
        ("ends", b"") if event[0] == "ends" else event for event in EVENTS
    ]


def test_a_message_without_a_place_holds_up_what_follows_until_there_is_no_room() -> None:
    reader = StreamReader(KEY)
    begins = [("begins", NAMED, 100)]
    stream = Stream(KEY)
    assert reader.feed(stream.coded(MESSAGE)) == begins
    assert reader.feed(stream.coded(frame(HEARTBEAT))) == begins, "it is said again, and nothing else"
    with pytest.raises(ValueError, match="waits for its place"):
        reader.feed(bytes(STAGING))
    assert reader.place(True)[0] == ("ends", PAYLOAD)


def test_memory_is_the_owners_again_in_the_middle_of_a_message() -> None:
    reader = StreamReader(KEY)
    stream = coded(MESSAGE, frame(GOODBYE))
    assert reader.feed(stream[:76]) == [("begins", NAMED, 100)]
    assert reader.place(True) == []
    reader.discard()
    assert reader.feed(stream[76:]) == [("ends", b""), ("goodbye",)]


# TCP's checksum misses two flipped bits of opposite sense in the same column.
@pytest.mark.parametrize("places", [[0], [99], [3, 5]])
def test_a_damaged_message_does_not_end(places: list[int]) -> None:
    stream = bytearray(STREAM)
    for place in places:
        stream[HEAD + CODE + place] ^= 1
    for cuts in ([], list(range(len(stream)))):
        assert read(bytes(stream), cuts)[:2] == [EVENTS[0], ("malformed",)]


@pytest.mark.parametrize(
    "nonsense",
    [
        coded(bytes(HEAD)),  # no type
        coded(frame(9)),
        coded(b"\x01\x01" + MESSAGE[2:]),  # bits that must be zero
        coded(frame(DATA, b"", label(7, COUNT))),  # an empty message
        coded(frame(HEARTBEAT, b"x")),
        coded(frame(GOODBYE, b"x")),
        coded(frame(GOODBYE, about=label(7, COUNT))),
        coded(frame(ABORT, b"short")),
        coded(frame(ABORT, b"", length=2049)),
        coded(frame(DATA, PAYLOAD, b"\xff" * 28)),
        coded(frame(GOODBYE), frame(HEARTBEAT)),  # a frame behind the last one
        coded(frame(HEARTBEAT)) * 2,  # a repetition
        coded(frame(HEARTBEAT), frame(GOODBYE))[HEAD + CODE :],  # a frame is missing
        coded(FAILURE)[:-1] + b"?",
        frame(GOODBYE) + bytes(CODE),
    ],
)
def test_what_is_no_frame_or_not_the_peers_is_found_and_stays(nonsense: bytes) -> None:
    reader = StreamReader(KEY)
    assert reader.feed(nonsense)[-1] == ("malformed",)
    assert reader.feed(coded(MESSAGE)) == [("malformed",)]


def test_a_reason_that_cannot_be_read_is_a_failure_all_the_same() -> None:
    assert read(coded(frame(ABORT, struct.pack("!BiB", 77, 2, 3) + b"tcp")), []) == [("failed", "")]
