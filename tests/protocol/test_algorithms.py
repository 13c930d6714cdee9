# SPDX-License-Identifier: Apache-2.0
"""Every in-network algorithm under random schedules, with its compiled program. Mutants of each must fail."""

from __future__ import annotations

from collections import Counter

import pytest

from railweave import sdk
from railweave.sdk.check import explore

SEEDS = range(100)
COUNTED = {"atp": "results sum collision drain alone duplicate result"}  # others: results member


@pytest.mark.parametrize("name", sdk.names())
def test_no_schedule_fails(name: str) -> None:
    outcomes = list(explore(sdk.find(name), SEEDS))
    assert [(each.seed, each.failure) for each in outcomes if each.failure] == []
    counts = sum((each.counts for each in outcomes), Counter())
    assert set(COUNTED.get(name, "results member").split()) <= set(counts)


@pytest.mark.parametrize("name", sdk.names())
def test_a_seed_repeats_itself(name: str) -> None:
    first, second = (list(explore(sdk.find(name), [3])) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", sdk.names())
def test_a_datagram_before_the_first_call_is_ignored(name: str) -> None:
    algorithm = sdk.find(name)
    endpoint = algorithm.endpoint(algorithm.job(0, 2, {}), 0)
    for size in range(8 * algorithm.manifest.lanes[0] + 16):
        endpoint.receive([memoryview(bytes(size))], 0.0)
    assert endpoint.done
