# SPDX-License-Identifier: Apache-2.0
"""The load generator over loopback, with a peer that answers like a switch, or wrongly."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

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
