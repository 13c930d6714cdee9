# SPDX-License-Identifier: Apache-2.0
"""ATP's worker and server alone. atp_schedules.py has them with switches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from protocol import atp_schedules

from railweave.experiments.contenders.atp.packet import GRADIENT, RESULT, Packet
from railweave.experiments.contenders.atp.server import Server
from railweave.experiments.contenders.atp.worker import MAX_WINDOW, Overflow, Worker

LANES = atp_schedules.LANES


def exchange(worker: Worker, servers: list[Server], now_s: float) -> None:
    while (packet := worker.transmit(now_s)) is not None:
        for server in servers:
            if (answer := server.receive(packet)) is not None:
                worker.receive(answer[0], now_s)


def reduce_alone(
    given: np.ndarray[Any, Any], out: np.ndarray[Any, Any], worker: Worker, server: Server
) -> None:
    worker.begin(given)
    for step in range(1000):
        exchange(worker, [server], step / 1000)
        if worker.done:
            break
    worker.finish(out)


def test_floats_are_rounded_to_the_fixed_point() -> None:
    given = np.array([0.1234564, -0.1234566, 3.0, -2000.5], np.float32)
    out = np.zeros_like(given)
    reduce_alone(given, out, Worker(0, 1, 0, LANES), Server(0, 1, LANES))
    np.testing.assert_array_equal(out, np.array([0.123456, -0.123457, 3.0, -2000.5], np.float32))


def test_sequence_numbers_run_over_the_top() -> None:
    start = 2**32 - 5
    worker = Worker(0, 1, 0, LANES, _next=start, _end=start, _oldest=start)
    server = Server(0, 1, LANES, _newest=start - 1)
    for call in range(3):
        given = np.arange(20 * LANES, dtype=np.int32) + call
        out = np.zeros_like(given)
        reduce_alone(given, out, worker, server)
        np.testing.assert_array_equal(out, given)


@pytest.mark.parametrize("value", [2147.0, -2147.0, np.inf, np.nan])
def test_floats_whose_sum_may_not_fit_are_an_error(value: float) -> None:
    with pytest.raises(Overflow):
        Worker(0, 2, 0, LANES).begin(np.array([1, value], np.float32))


def test_the_window_shrinks_when_results_queue_and_grows_when_they_come_soon() -> None:
    worker, server = Worker(0, 1, 0, LANES), Server(0, 1, LANES)
    worker.begin(np.zeros(4000 * LANES, np.int32))
    now_s = 0.0
    for delay_s, least, most in ((0.001, 100, MAX_WINDOW), (0.5, 2, 16)):
        for _ in range(12):
            sent = []
            while (packet := worker.transmit(now_s)) is not None:
                sent.append(packet)
            now_s += delay_s
            for packet in sent:
                answer = server.receive(packet)
                assert answer is not None
                worker.receive(answer[0], now_s)
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
    server, worker = Server(0, 3, LANES), Worker(0, 3, 0, LANES)
    for packet in [*hostile(GRADIENT, RESULT), packet_of(ranks=0), packet_of(ranks=8)]:
        assert server.receive(packet) is None
        assert server == Server(0, 3, LANES)
    worker.begin(np.zeros(LANES, np.int32))
    assert worker.transmit(0.0) is not None
    for packet in hostile(RESULT, GRADIENT):
        worker.receive(packet, 0.0)
        assert not worker.done
    worker.receive(packet_of(RESULT), 0.0)
    assert worker.done
