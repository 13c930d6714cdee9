# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of the netreduce rail: its sums, its failures and restarts, in virtual time."""

from __future__ import annotations

from collections import Counter

import pytest
from protocol.sum_schedules import replay_command, run_seed

SEEDS = range(400)


@pytest.mark.parametrize("part", range(4))
def test_schedules(part: int) -> None:
    faults: Counter[str] = Counter()
    summed = 0
    for seed in SEEDS[part::4]:
        outcome = run_seed(seed)
        assert not outcome.failure, f"seed {seed}: {outcome.failure}\nreplay: {replay_command(seed)}"
        faults += outcome.faults
        summed += outcome.summed
    assert set(faults) == {"halt", "end", "death", "mismatch", "loss", "outage"}
    assert summed > len(SEEDS) // 4, "the switch adds"


def test_a_seed_repeats_itself() -> None:
    assert run_seed(3) == run_seed(3)
