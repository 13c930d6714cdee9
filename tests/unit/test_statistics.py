# SPDX-License-Identifier: Apache-2.0
"""The statistics over runs."""

from __future__ import annotations

import numpy as np
import pytest

from railweave.experiments.statistics import interval, median, p99, ratios


def test_percentiles_are_values_that_were_seen() -> None:
    assert p99([3.0, 1.0, 2.0]) == 3.0
    assert p99(range(1, 101)) == 99
    assert p99(range(1, 201)) == 198
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5


def test_the_interval_holds_the_true_median_about_as_often_as_it_says() -> None:
    draws = np.random.default_rng(7).exponential(size=(200, 40))
    held = sum(low <= np.log(2) <= high for low, high in map(interval, draws.tolist()))
    assert 180 <= held <= 199


def test_the_interval_narrows_with_the_number_of_runs_and_repeats_itself() -> None:
    draws = np.random.default_rng(8).normal(10, 1, 400).tolist()
    few, many = interval(draws[:20]), interval(draws)
    assert many[1] - many[0] < (few[1] - few[0]) / 2
    assert interval(draws) == many
    assert interval([5.0, 5.0, 5.0]) == (5.0, 5.0)
    assert interval([5.0]) == (5.0, 5.0)


def test_ratios_are_of_runs_beside_each_other() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])
