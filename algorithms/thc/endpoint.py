# SPDX-License-Identifier: Apache-2.0
"""A rank. It learns the range of each block from the switch, and then sends 4 bits for each value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railweave import sdk
from railweave.algorithms.thc.grid import steps

RANGES, VALUES = 0, 1  # kinds of packets
INDICES = 8  # per lane
LEAST = 2.0**-149  # of float32 above 0


class Endpoint(sdk.ChunkEndpoint):
    """A rank whose blocks of 8 values per lane have a range each, the greatest magnitude of any rank."""

    wide = True

    def __init__(self, job: sdk.Job, rank: int) -> None:
        """Take the grid of the job."""
        super().__init__(job, rank)
        self._steps = steps(job.ranks)
        self._calls = 0

    def pack(self, given: sdk.Array, op: str) -> sdk.Array:
        """Return the ranges of this rank's blocks. Raises ValueError for values that have no range."""
        if not given.size or not np.isfinite(given).all():
            what = "NaN or infinity" if given.size else "an empty vector"
            raise ValueError(f"{what} in place of one or more finite numbers: remove it before the call")
        self._calls += 1
        self._blocks = self.rows(given.astype(np.float64), INDICES * self.job.lanes)
        self._ranges = np.zeros((0, 1))  # of the blocks, not known yet
        ranges = np.abs(self._blocks).max(axis=1).astype(np.float32)
        return _packets(RANGES, self.rows(ranges.view(np.int32)))

    def follow(self, results: sdk.Array) -> sdk.Array | None:
        """Return the indices of all values when the ranges are known."""
        if len(self._ranges):
            return None
        found = np.ascontiguousarray(results[:, 1 : 1 + self.job.lanes]).view(np.float32)
        self._ranges = found.reshape(-1, 1)[: len(self._blocks)].astype(np.float64)
        indices = self._indices().reshape(len(self._blocks), 2, self.job.lanes, -1)
        lanes = np.moveaxis(indices, 1, 2).reshape(len(self._blocks), -1)  # results come in two halves
        return _packets(VALUES, (lanes[:, ::2] << 4 | lanes[:, 1::2]).view(">i4"))

    def unpack(self, results: sdk.Array) -> sdk.Array:
        """Return the sums of levels, from the middle of the grid, in the unit of each block."""
        sums = results[:, 1:].astype(">i4").view(np.uint8)
        middle = self._steps[-1]
        values: sdk.Array = (sums - float(self.job.ranks * middle)) * (self._ranges / middle)
        return values.astype(np.float32).reshape(-1)[: self.size]

    @staticmethod
    def error_bound(given: Sequence[sdk.Array]) -> float:
        """Return the error if each rank's rounding is wrong by the widest gap of the grid."""
        side = steps(len(given))
        gap = np.diff(side).max() / side[-1]
        return float(len(given) * gap * max(np.abs(each).max() for each in given))

    def _indices(self) -> sdk.Array:
        """Round each value to a level beside it, so that the mean of the error is 0.

        The random numbers are a function of rank and call (Salmon et al., "Parallel Random Numbers: As Easy
        as 1, 2, 3", SC 2011). So a run can be repeated.
        """
        side = self._steps
        scaled = self._blocks * (side[-1] / np.maximum(self._ranges, LEAST))
        size = np.abs(scaled)
        below = np.minimum(np.searchsorted(side, size, "right") - 1, len(side) - 2)
        part = (size - side[below]) / np.diff(side)[below]
        numbers = np.random.Generator(np.random.Philox(key=[self.rank, self._calls])).random(size.shape)
        chosen = np.copysign(below + (numbers < part), scaled)
        indices: sdk.Array = (len(side) - 1 + chosen).astype(np.uint8)
        return indices


def _packets(kind: int, lanes: sdk.Array) -> sdk.Array:
    return np.insert(lanes, 0, kind, axis=1)
