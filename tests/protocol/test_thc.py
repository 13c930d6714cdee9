# SPDX-License-Identifier: Apache-2.0
"""Compressed sums by THC: the error that its README states, and the values that have no range."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from railweave import sdk
from railweave.algorithms.thc.grid import levels
from railweave.sdk.check.network import Network, Process
from railweave.sdk.virtual_time import SECOND, Link
from railweave.topologies.named import named

THC = sdk.find("thc")
COUNT = 1 << 16  # two packets of ranges


def reduced(given: list[sdk.Array]) -> tuple[sdk.Array, Counter[str]]:
    """Return the sum that all ranks get, and the bytes of numbers to and from one host."""
    plane = named(f"planes:hosts={len(given)}", rails=["ina"], rates=[0]).planes[0]
    job = THC.job(0, len(given), {})
    network = Network(THC, plane, job.lanes, Link(), seed=0)
    network.install([job])
    sent: Counter[str] = Counter()

    def count(link: tuple[str, str | int], frame: bytes) -> bytes:
        first = plane.nics[0]
        sent["up"] += len(frame) * (link == ("up", first.host))
        sent["down"] += len(frame) * (link == (first.switch, first.port))
        return frame

    network.tamper = count  # type: ignore[assignment]
    ranks = [Process(network, job, rank) for rank in range(job.ranks)]
    for rank, numbers in zip(ranks, given, strict=True):
        rank.endpoint.begin(numbers, "sum")
    for rank in ranks:
        rank.turn()
    network.run(lambda: all(rank.endpoint.done for rank in ranks), SECOND)
    results = [rank.endpoint.result for rank in ranks]
    assert all(np.array_equal(result, results[0]) for result in results)
    return results[0], sent


def share_of_error(given: list[sdk.Array]) -> float:
    """Return the mean squared error as a share of the exact sum's mean square."""
    exact = np.sum(given, axis=0, dtype=np.float64)
    return float(((reduced(given)[0] - exact) ** 2).mean() / (exact**2).mean())


@pytest.mark.parametrize(("ranks", "most"), [(4, 0.035), (8, 0.039), (16, 0.058)])
def test_error_of_normal_values(ranks: int, most: float) -> None:
    numbers = np.random.default_rng(ranks).standard_normal((ranks, COUNT), np.float32)
    assert most / 2 < share_of_error(list(numbers)) < most
    assert share_of_error([numbers[0]] * ranks) < 1.2 * most / ranks  # errors of ranks are independent


def test_bytes_per_value() -> None:
    sent = reduced([np.ones(COUNT, np.float32)] * 2)[1]
    frame, packets = 42 + 8, (COUNT // 512) * (1 + 1 / 64)  # Ethernet, IPv4, UDP and own header
    assert sent["up"] - packets * frame == COUNT * (4 + 4 / 64) / 8
    assert sent["down"] - packets * frame == COUNT * (8 + 8 / 64) / 8


def test_zeros_and_the_ends_of_the_range_are_exact() -> None:
    numbers = np.zeros(COUNT, np.float32)
    numbers[::1000], numbers[1::1000] = 3.7, -3.7
    assert np.array_equal(reduced([numbers] * 3)[0], (3 * numbers.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("ranks", range(1, 32))
def test_sums_fit_8_bits_and_indices_4(ranks: int) -> None:
    grid = levels(ranks)
    assert len(grid) <= 16
    assert 0 == grid[0] < ranks * grid[-1] < 256
    assert (np.diff(grid) > 0).all()


@pytest.mark.parametrize("numbers", [[], [1.0, np.nan], [-np.inf]])
def test_values_without_a_range_are_refused(numbers: list[float]) -> None:
    endpoint = THC.endpoint(THC.job(0, 2, {}), 0)
    with pytest.raises(ValueError, match="in place of one or more finite numbers"):
        endpoint.begin(np.array(numbers, np.float32), "sum")
    assert endpoint.done
