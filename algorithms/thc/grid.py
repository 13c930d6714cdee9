# SPDX-License-Identifier: Apache-2.0
"""The grid of levels to which values are rounded. Switches and ranks compute it from the number of ranks."""

from __future__ import annotations

import numpy as np

from railweave import sdk

POWER = 1.4  # of the distance from 0; levels near 0 are closer together, because most values are near 0
SIDE = np.arange(8)  # indices on one side of 0, which belongs to both sides
SUM = 255  # greatest sum of levels


def steps(ranks: int) -> sdk.Array:
    """Return the distances of levels from the middle one. The last distance is also the middle level."""
    middle = SUM // 2 // ranks
    curved = np.rint(middle * (SIDE / SIDE[-1]) ** POWER).astype(int)
    return np.unique(np.maximum(curved, np.minimum(SIDE, middle)))


def levels(ranks: int) -> sdk.Array:
    """Return the level of each index: at most 15 levels, symmetric around the middle one."""
    side = steps(ranks)
    found: sdk.Array = np.concatenate([-side[:0:-1], side]) + side[-1]
    return found
