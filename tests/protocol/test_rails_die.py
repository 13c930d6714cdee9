# SPDX-License-Identifier: Apache-2.0
"""Rails die under calls and come back: every rank gets the right numbers, and the survivors carry on."""

from __future__ import annotations

import numpy as np
import pytest
from protocol.recovering import Job, Rank

COUNTS = [10, 1000, 100_000]


def sums(rank: Rank, calls: range, after: dict[int, str] | None = None) -> None:
    """Add up on all ranks, checking each sum; on the way rank 1 tells of obstacles on rail 1."""
    for number in calls:
        x = np.full(COUNTS[number % 3], rank.rank + number, np.float32)
        assert (rank.all_reduce(x) == sum(r + number for r in range(rank.size))).all()
        if after and rank.rank == 1 and number in after:
            rank.agent.set_obstacle(1, after[number])


def test_nothing_happens_while_all_rails_live() -> None:
    with Job(3) as job:
        job.run(lambda rank: sums(rank, range(60)))
        for rank in job.ranks:
            assert rank.agent.changes(0) == []
            assert [state.state for state in rank.agent.rail_states()] == ["up", "up"]
            assert rank.agent.plan_point() == (60, 0)


@pytest.mark.parametrize("size", [2, 3])
def test_a_rail_with_an_obstacle_is_left_and_used_again(size: int) -> None:
    with Job(size) as job:
        job.run(lambda rank: sums(rank, range(60), {20: "it is tested"}))
        job.run(lambda rank: rank.until(lambda: rank.alive(1 << 30) == [0]))
        for rank in job.ranks:
            (change,) = rank.agent.changes(0)
            down = rank.agent.rail_states()[1]
            assert (down.state, down.failures) == ("down", 1)
            assert "it is tested" in down.reason
            assert change.alive == [True, False]
        job.run(lambda rank: sums(rank, range(60, 120), {70: ""}))
        job.run(lambda rank: rank.until(lambda: rank.alive(1 << 30) == [0, 1]))
        job.run(lambda rank: sums(rank, range(120, 180)))
        for rank in job.ranks:
            up = rank.agent.rail_states()[1]
            assert (up.state, up.incarnation, up.failures) == ("up", 1, 1)
        changes = [[(c.from_op, c.alive) for c in rank.agent.changes(0)] for rank in job.ranks]
        assert changes == [changes[0]] * size
