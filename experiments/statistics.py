# SPDX-License-Identifier: Apache-2.0
"""The statistics of all experiments: median, percentile, interval and ratio."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000
SEED = 20_240_527  # fixed, so that the same samples give the same interval


def median(values: Sequence[float]) -> float:
    """Return the median. For an even number of values, it is the mean of the middle two."""
    return float(np.median(values))


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    return float(np.mean(values))


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile by nearest rank. For fewer than 100 values, it is the greatest value."""
    return float(sorted(values)[math.ceil(0.99 * len(values)) - 1])


BY_NAME = {statistic.__name__: statistic for statistic in (median, mean, p99)}


def block_means(values: Sequence[float], block: int) -> Sequence[float]:
    """Return the mean of each whole block of `block` values; the values themselves for blocks of 1."""
    if block == 1:
        return values
    whole = np.asarray(values)[: len(values) // block * block]
    return [float(mean) for mean in whole.reshape(-1, block).mean(axis=1)]


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return a confidence interval of the median, by the percentile bootstrap (Efron, 1979)."""
    if len(set(values)) < 2:
        return float(values[0]), float(values[0])
    from scipy.stats import bootstrap  # noqa: PLC0415 - a second to import

    found = bootstrap(
        (values,),
        np.median,
        n_resamples=RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        random_state=SEED,
    ).confidence_interval
    return float(found.low), float(found.high)


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratio of each value to the value at the same place in `others`."""
    return [value / other for value, other in zip(values, others, strict=True)]
