# SPDX-License-Identifier: Apache-2.0
"""The load generators, with a peer that answers like a switch, or wrongly."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import pytest

from railweave._native import load

LANES, HEADER = 64, 16
RESULT, CHILD, FLAGS = 0x11, 4, 5

Answer = Callable[[bytearray], bytes | None]


@contextmanager
def summing_peer(workers: int, answer: Answer) -> Iterator[list[int]]:
    """Open sockets of workers. A thread sums their contributions, and `answer` may spoil a result."""
    with ExitStack() as stack:
        peer, *sockets = (
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(1 + workers)
        )
        for udp in (peer, *sockets):
            udp.bind(("127.0.0.1", 0))
        for udp in sockets:
            udp.connect(peer.getsockname())
        there = {udp.getsockname(): child for child, udp in enumerate(sockets)}
        thread = threading.Thread(target=_sum, args=(peer, there, answer))
        thread.start()
        try:
            yield [udp.fileno() for udp in sockets]
        finally:
            sockets[0].send(b"end")
            thread.join()


def _sum(peer: socket.socket, there: dict[tuple[str, int], int], answer: Answer) -> None:
    slots: dict[bytes, dict[int, np.ndarray]] = {}
    while (data := peer.recv(1 << 16)) != b"end":
        key = data[6:12]
        chunk = slots.setdefault(key, {})
        chunk[data[CHILD]] = np.frombuffer(data, ">u4", offset=HEADER).astype(np.uint32)
        if len(chunk) < len(there):
            continue
        total = sum(chunk.values(), np.zeros(LANES, np.uint32)).astype(">u4")
        result = bytearray(data[:HEADER] + total.tobytes())
        result[0] = RESULT
        if (spoilt := answer(result)) is not None:
            for address in there:
                peer.sendto(spoilt, address)


def drive(answer: Answer, workers: int = 2, **options: float) -> dict[str, float]:
    with summing_peer(workers, answer) as fds:
        settings = {"segments": 1, "slots": 8, "first_round": 3, "warm_up_s": 0.0, "seconds": 0.1} | options
        return dict(load.drive(fds, lanes=LANES, **settings))


def test_right_sums_are_counted() -> None:
    counts = drive(bytes)
    assert counts["right"] > 50
    assert (counts["wrong"], counts["strangers"]) == (0, 0)  # the peer may be late and asked again


@pytest.mark.parametrize(("place", "bits"), [(-1, 1), (FLAGS, 8)], ids=["one lane", "a flag"])
def test_a_wrong_result_is_found(place: int, bits: int) -> None:
    def spoil(result: bytearray) -> bytes:
        result[place] ^= bits
        return bytes(result)

    counts = drive(spoil)
    assert counts["right"] == 0
    assert counts["wrong"] > 0


def test_lost_results_are_asked_for_again() -> None:
    answers = iter([None])
    counts = drive(lambda result: next(answers, bytes(result)), seconds=0.3)
    assert counts["repeated"] > 0
    assert counts["right"] > 50


def test_what_is_no_result_is_a_stranger() -> None:
    assert drive(lambda result: bytes(result[:-4]))["strangers"] > 0


@pytest.mark.parametrize("options", [{"slots": 12}, {"segments": 9}, {"segments": 0}])
def test_impossible_loads_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"power of two|segments"):
        drive(bytes, **options)


FRAME, RESULT_FRAME = b"f" * 60, b"r" * 60
OFFLOAD = bytes(10)  # in front of each frame of a packet socket
Forward = Callable[[bytes], bytes | None]


def loop_frame(forward: Forward, window: int = 4, seconds: float = 0.1) -> dict[str, float]:
    """Run the generator of frames. A thread forwards them like a switch, or wrongly."""
    with ExitStack() as stack:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
        (out, switch_in), (switch_out, into) = pairs
        for end in (out, switch_in, switch_out, into):
            stack.enter_context(end)

        def run() -> None:
            while (data := switch_in.recv(1 << 16)) != b"end":
                assert data == OFFLOAD + FRAME
                if (frame := forward(data[len(OFFLOAD) :])) is not None:
                    with suppress(BlockingIOError):
                        switch_out.send(OFFLOAD + frame, socket.MSG_DONTWAIT)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            return dict(load.loop_frame(out.fileno(), into.fileno(), FRAME, RESULT_FRAME, window, seconds))
        finally:
            out.send(b"end")
            thread.join()


def test_frames_that_come_back_are_counted() -> None:
    counts = loop_frame(lambda _: RESULT_FRAME)
    assert counts["right"] > 50
    assert counts["wrong"] == 0
    assert counts["seconds"] >= 0.1


def test_a_wrong_frame_is_found_and_other_traffic_is_not_counted() -> None:
    assert loop_frame(lambda _: RESULT_FRAME[:-1] + b"x")["wrong"] > 0
    counts = loop_frame(lambda _: RESULT_FRAME + b"r")
    assert (counts["right"], counts["wrong"]) == (0, 0)


def test_frames_that_do_not_come_back_are_sent_again() -> None:
    swallowed = iter([None] * 4)
    counts = loop_frame(lambda _: next(swallowed, RESULT_FRAME), seconds=0.3)
    assert counts["lost"] >= 4
    assert counts["right"] > 50


def test_a_window_of_no_frames_is_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        loop_frame(bytes, window=0)
