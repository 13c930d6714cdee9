# SPDX-License-Identifier: Apache-2.0
"""Seeded schedules of the netreduce rail: its sums, its failures and restarts, in virtual time."""

from __future__ import annotations

import pytest
from protocol.seeds import total
from protocol.sum_schedules import run_seed

SEEDS = range(400)


@pytest.mark.parametrize("part", range(4))
def test_schedules(part: int) -> None:
    counts = total(run_seed, SEEDS[part::4])
    assert set(counts) == {"halt", "end", "death", "mismatch", "loss", "outage", "levels", "summed"}
    assert counts["summed"] > len(SEEDS) // 4, "the switch adds"


def test_a_seed_repeats_itself() -> None:
    assert run_seed(3) == run_seed(3)
