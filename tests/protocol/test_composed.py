# SPDX-License-Identifier: Apache-2.0
"""Allreduces by racks and single ranks in virtual time: their steps and times."""

from __future__ import annotations

import numpy as np
import pytest
from protocol.calls import Call
from protocol.composed_schedules import sum_of, wrong

from railweave._rigs import composed


def run(racks: int) -> tuple[float, int]:
    """Sum 16 KiB over four racks of four ranks, of which `racks` aggregate.

    Return the number of steps of a ring, and the time in ns.
    """
    members = [[4 * rack + place for place in range(4)] for rack in range(racks)]
    members += [[rank] for rank in range(4 * racks, 16)]
    numbers = np.random.default_rng(1)
    inputs = [numbers.standard_normal(4096).astype(np.float32) for _ in range(16)]
    call = Call(inputs)
    sums = [[[sum_of(call, rank)] for rank in range(16)]]
    outcomes, counts = composed.simulate(sums, members, seed=1, lanes=256, slots=64, message_bytes=1 << 20)
    assert outcomes == [([0], None)] * 16
    assert not any(wrong(call, rank, 256) for rank in range(16))
    (steps,) = {messages / rings for rings, messages, _ in counts if rings}  # agents, and single ranks
    return steps, max(end for _, _, end in counts)


def test_every_rack_that_aggregates_saves_steps_and_time() -> None:
    """A ring of L = r + 4 (4 - r) members takes 2 (L - 1) steps. They dominate the time of a small tensor."""
    runs = [run(racks) for racks in range(5)]
    assert [steps for steps, _ in runs] == [30, 24, 18, 12, 6]
    times = [time for _, time in runs]
    assert times == sorted(times, reverse=True), times
    assert times[1] < 0.9 * times[0]
    assert times[4] < times[0] / 2


@pytest.mark.parametrize(
    ("members", "columns"),
    [
        ([[0], [1]], 1),
        ([[0, 1, 2, 3], [4]], 4),
        ([[0, 1], [2, 3, 4]], 6),
        ([[0] * 31, [0] * 30], 0),
        ([[]], 0),
    ],
)
def test_racks_share_columns_equally(members: list[list[int]], columns: int) -> None:
    assert composed.columns_of(members) == columns


@pytest.mark.parametrize("members", [[[0, 1]], [[0], [0]], [[0], [2]], [[0], [1], []]])
def test_a_ring_holds_every_rank_once(members: list[list[int]]) -> None:
    call = Call([np.zeros(1, np.int32)] * 2)
    with pytest.raises(ValueError, match="ring"):
        composed.simulate([[[sum_of(call, 0)], [sum_of(call, 1)]]], members, seed=1)
