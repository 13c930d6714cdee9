# SPDX-License-Identifier: Apache-2.0
"""The endpoint of chunk programs against a switch that doubles numbers."""

from __future__ import annotations

import numpy as np
import pytest

from railweave import sdk
from railweave.sdk.chunks import LEAST_TIMEOUT_S, MOST_TIMEOUT_S

LANES, WINDOW = 2, 4
SUM = sdk.find("sum")


def made(chunks: int) -> sdk.Endpoint:
    """Return an endpoint with a call of that many chunks."""
    endpoint = SUM.endpoint(SUM.job(0, 1, {"slots": 2 * WINDOW}, LANES), 0)
    endpoint.begin(np.arange(LANES * chunks, dtype=np.int32), "sum")
    return endpoint


def sent(endpoint: sdk.Endpoint, now: float, budget: int = 64) -> list[int]:
    """Return the sequence numbers of the chunks that it sends at a time."""
    return [int.from_bytes(bytes(each[:4])) for each in endpoint.transmit(now, budget)]


def result(sequence: int, value: int = 99) -> memoryview:
    return memoryview(sequence.to_bytes(4) + value.to_bytes(4) * LANES)


def complete(endpoint: sdk.Endpoint) -> list[int]:
    """Answer all chunks, in each window the last one first. Return their sequence numbers."""
    sequences: list[int] = []
    while not endpoint.done:
        chunks = [bytes(each) for each in endpoint.transmit(0.0, 64)]
        assert 0 < len(chunks) <= WINDOW
        for chunk in reversed(chunks):
            doubled = 2 * np.frombuffer(chunk, ">i4", offset=4)
            endpoint.receive([memoryview(chunk[:4] + doubled.astype(">i4").tobytes())], 0.0)
        sequences += [int.from_bytes(chunk[:4]) for chunk in chunks]
    return sequences


def test_the_window_moves_when_its_oldest_chunk_has_a_result() -> None:
    endpoint = made(6)
    assert (sent(endpoint, 0, budget=3), sent(endpoint, 0), sent(endpoint, 0)) == ([1, 2, 3], [4], [])
    endpoint.receive([result(2)], 0)
    assert sent(endpoint, 0) == []
    endpoint.receive([result(1)], 0)
    assert sent(endpoint, 0) == [5, 6]


@pytest.mark.parametrize("budget", [1, 64])
def test_chunks_without_results_are_sent_again(budget: int) -> None:
    endpoint, now = made(8), 0.0
    for number in range(3):
        chunks: list[int] = []
        while found := sent(endpoint, now, budget):
            chunks += found
        assert chunks == [1, 2, 3, 4]
        assert endpoint.resends == number * WINDOW
        assert endpoint.deadline() == pytest.approx(now + LEAST_TIMEOUT_S)
        assert sent(endpoint, now + 0.99 * LEAST_TIMEOUT_S) == []
        now = endpoint.deadline()


@pytest.mark.parametrize(
    ("took_s", "timeout_s"), [(0.001, LEAST_TIMEOUT_S), (0.4, 0.2), (9.0, MOST_TIMEOUT_S)]
)
def test_the_timeout_follows_the_time_until_results(took_s: float, timeout_s: float) -> None:
    endpoint = made(8)
    sent(endpoint, 0)
    endpoint.receive([result(1)], took_s)
    assert sent(endpoint, took_s, budget=64)[-1] == 5
    assert endpoint._due[4] == pytest.approx(took_s + timeout_s)  # type: ignore[attr-defined]


def test_a_chunk_is_sent_again_after_three_results_of_later_chunks() -> None:
    endpoint = made(8)
    assert sent(endpoint, 0) == [1, 2, 3, 4]
    endpoint.receive([result(2), result(3)], 0.01)
    assert sent(endpoint, 0.01) == []
    endpoint.receive([result(3), result(4)], 0.02)
    assert sent(endpoint, 0.02) == [1]
    assert sent(endpoint, 0.03) == []
    endpoint.receive([result(1)], 0.03)
    assert sent(endpoint, 0.03) == [5, 6, 7, 8]
    assert endpoint.resends == 1


def test_only_the_first_result_of_a_chunk_that_was_sent_counts() -> None:
    endpoint = SUM.endpoint(SUM.job(0, 1, {"slots": 2 * WINDOW}, LANES), 0)
    endpoint.receive([result(1)], 0.0)  # before any call
    assert endpoint.done
    endpoint.begin(np.arange(8, dtype=np.int32), "sum")
    complete(endpoint)
    endpoint.begin(np.arange(12, dtype=np.int32), "sum")
    assert sent(endpoint, 0.0) == [5, 6, 7, 8]
    foreign = [result(sequence) for sequence in (0, 1, 4, 9, 10, 11, 2**31, 2**32 - 1)]
    damaged = [memoryview(b""), result(5)[:4], result(5)[:-1], memoryview(bytes(result(5)) + b"\0")]
    endpoint.receive([*foreign, *damaged], 0.01)
    assert sent(endpoint, 0.01) == []
    assert endpoint.deadline() == pytest.approx(LEAST_TIMEOUT_S)
    good = [result(sequence, sequence) for sequence in range(5, 9)]
    endpoint.receive(good, 0.01)
    assert sent(endpoint, 0.01) == [9, 10]
    endpoint.receive([*map(result, range(5, 9)), result(9, 9), result(10, 10)], 0.01)
    np.testing.assert_array_equal(endpoint.result, np.repeat(np.arange(5, 11), LANES))


@pytest.mark.parametrize("size", [0, 1, LANES, LANES + 1, 10 * LANES])
def test_calls_of_any_size_run_over_the_top_of_the_sequence_numbers(size: int) -> None:
    endpoint = made(0)
    endpoint._next = 2**32 - 3  # type: ignore[attr-defined]
    sequences: list[int] = []
    for call in range(4):
        given = np.arange(size, dtype=np.int32) - call
        endpoint.begin(given, "sum")
        sequences += complete(endpoint)
        np.testing.assert_array_equal(endpoint.result, 2 * given, strict=True)
    assert sequences == [(2**32 - 3 + n) % 2**32 for n in range(4 * max(1, -(-size // LANES)))]
