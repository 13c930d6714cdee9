# SPDX-License-Identifier: Apache-2.0
"""The reader of a TCP rail's stream: bytes in, events out, however the bytes are cut."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railweave._native.rails import StreamReader

DATA, ABORT, GOODBYE, HEARTBEAT = 1, 2, 3, 4
COUNT = 25
NAMED = "all_reduce #7 of 25 float32, sum"
PAYLOAD = bytes(range(100))
STAGING = 16 * 1024  # what the reader keeps of a stream by itself


def label(op_index: int = 7) -> bytes:
    return struct.pack("!IBBBBHHQQ", op_index, 0, 0, 0, 0, 0, 0, COUNT, COUNT)


def frame(kind: int, payload: bytes = b"", about: bytes = bytes(28), length: int | None = None) -> bytes:
    return struct.pack("!BxxxI", kind, len(payload) if length is None else length) + about + payload


MESSAGE = frame(DATA, PAYLOAD, label())
FAILURE = frame(ABORT, struct.pack("!BiB", 1, 2, 3) + b"tcp" + b"the disk is full")
STREAM = MESSAGE + frame(HEARTBEAT, about=label()) + MESSAGE + FAILURE + frame(GOODBYE)
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
    """Feed a stream in pieces; every message is taken as it begins."""
    reader, events = StreamReader(), []
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
    reader = StreamReader()
    begins = [("begins", NAMED, 100)]
    assert reader.feed(MESSAGE) == begins
    assert reader.feed(frame(HEARTBEAT)) == begins, "it is said again, and nothing else"
    with pytest.raises(ValueError, match="waits for its place"):
        reader.feed(bytes(STAGING))
    assert reader.place(True)[0] == ("ends", PAYLOAD)


def test_memory_is_the_owners_again_in_the_middle_of_a_message() -> None:
    reader = StreamReader()
    assert reader.feed(MESSAGE[:60]) == [("begins", NAMED, 100)]
    assert reader.place(True) == []
    reader.discard()
    assert reader.feed(MESSAGE[60:] + frame(GOODBYE)) == [("ends", b""), ("goodbye",)]


@pytest.mark.parametrize(
    "nonsense",
    [
        bytes(36),  # no type
        frame(9),
        b"\x01\x01" + MESSAGE[2:],  # bits that are zero
        frame(DATA, b"", label()),  # a message of nothing
        frame(HEARTBEAT, b"x"),
        frame(GOODBYE, b"x"),
        frame(GOODBYE, about=label()),
        frame(ABORT, b"short"),
        frame(ABORT, b"", length=2049),
        frame(DATA, PAYLOAD, b"\xff" * 28),
        frame(GOODBYE) + frame(HEARTBEAT),  # it said that it was the last
    ],
)
def test_what_is_no_frame_is_found_and_stays(nonsense: bytes) -> None:
    reader = StreamReader()
    assert reader.feed(nonsense)[-1] == ("malformed",)
    assert reader.feed(MESSAGE) == [("malformed",)]


def test_a_reason_that_cannot_be_read_is_a_failure_all_the_same() -> None:
    assert read(frame(ABORT, struct.pack("!BiB", 77, 2, 3) + b"tcp"), []) == [("failed", "")]
