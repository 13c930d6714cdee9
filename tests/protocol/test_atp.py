# SPDX-License-Identifier: Apache-2.0
"""ATP's worker and server alone. test_algorithms.py has them with switches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from railweave import sdk
from railweave.algorithms.atp.endpoint import MAX_WINDOW, Endpoint, Overflow
from railweave.algorithms.atp.packet import GRADIENT, RESULT, Packet
from railweave.algorithms.atp.server import Server

LANES = 64
BUDGET = 1000
ATP = sdk.find("atp")


def job(ranks: int) -> sdk.Job:
    return ATP.job(0, ranks, {}, LANES)


def exchange(worker: Endpoint, server: Server, now_s: float) -> None:
    while packets := worker.transmit(now_s, BUDGET):
        for packet in packets:
            if (answer := server.receive(packet)) is not None:
                worker.receive([memoryview(answer[0])], now_s)


def reduced_alone(given: np.ndarray[Any, Any], worker: Endpoint, server: Server) -> np.ndarray[Any, Any]:
    worker.begin(given, "sum")
    for step in range(1000):
        exchange(worker, server, step / 1000)
        if worker.done:
            break
    return worker.result


def test_floats_are_rounded_to_the_fixed_point() -> None:
    given = np.array([0.1234564, -0.1234566, 3.0, -2000.5], np.float32)
    result = reduced_alone(given, Endpoint(job(1), 0), Server(job(1)))
    np.testing.assert_array_equal(result, np.array([0.123456, -0.123457, 3.0, -2000.5], np.float32))


def test_sequence_numbers_run_over_the_top() -> None:
    worker, server = Endpoint(job(1), 0), Server(job(1))
    worker._next = worker._end = worker._oldest = 2**32 - 5
    server._newest = worker._next - 1
    for call in range(3):
        given = np.arange(20 * LANES, dtype=np.int32) + call
        np.testing.assert_array_equal(reduced_alone(given, worker, server), given)


@pytest.mark.parametrize("value", [2147.0, -2147.0, np.inf, np.nan])
def test_floats_whose_sum_may_not_fit_are_an_error(value: float) -> None:
    with pytest.raises(Overflow):
        Endpoint(job(2), 0).begin(np.array([1, value], np.float32), "sum")


def test_the_window_shrinks_when_results_queue_and_grows_when_they_come_soon() -> None:
    worker, server = Endpoint(job(1), 0), Server(job(1))
    worker.begin(np.zeros(4000 * LANES, np.int32), "sum")
    now_s = 0.0
    for delay_s, least, most in ((0.001, 100, MAX_WINDOW), (0.5, 2, 16)):
        for _ in range(12):
            sent = []
            while packets := worker.transmit(now_s, BUDGET):
                sent += packets
            now_s += delay_s
            for packet in sent:
                answer = server.receive(packet)
                assert answer is not None
                worker.receive([memoryview(answer[0])], now_s)
        assert least <= worker.window <= most
    assert worker.resends == 0


def packet_of(kind: int = GRADIENT, job: int = 0, sequence: int = 0, ranks: int = 1) -> bytes:
    return Packet(kind, 0, job, sequence, ranks, bytes(4 * LANES)).encode()


def hostile(kind: int, other: int) -> list[bytes]:
    good = packet_of(kind)
    return [
        *(b"", good[:-1], good + b"\0"),
        b"\x20" + good[1:],  # a different version
        *(packet_of(other), packet_of(7), packet_of(kind, job=1)),
        *(packet_of(kind, sequence=n) for n in (MAX_WINDOW, 2**31, 2**32 - MAX_WINDOW - 1)),
    ]


def test_a_server_and_a_worker_take_nothing_else() -> None:
    server, worker = Server(job(3)), Endpoint(job(3), 0)
    untouched = vars(Server(job(3)))
    for packet in [*hostile(GRADIENT, RESULT), packet_of(ranks=0), packet_of(ranks=8)]:
        assert server.receive(packet) is None
        assert vars(server) == untouched
    worker.begin(np.zeros(LANES, np.int32), "sum")
    assert worker.transmit(0.0, BUDGET)
    for packet in hostile(RESULT, GRADIENT):
        worker.receive([memoryview(packet)], 0.0)
        assert not worker.done
    worker.receive([memoryview(packet_of(RESULT))], 0.0)
    assert worker.done
