# SPDX-License-Identifier: Apache-2.0
"""A rank sends its own 8 smallest numbers, and gets those of all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railweave import sdk

COUNT = 8
NONE = 2**31 - 1  # in place of missing numbers
SIGN = np.int32(-(2**31))  # the switch compares without signs, so the sign bit is flipped on the wire


class Endpoint(sdk.ChunkEndpoint):
    """One packet per call."""

    def pack(self, given: sdk.Array, op: str) -> sdk.Array:
        """Return this rank's smallest numbers, least first."""
        return smallest(given).reshape(1, COUNT) ^ SIGN

    def unpack(self, results: sdk.Array) -> sdk.Array:
        """Return the smallest numbers of all ranks."""
        found: sdk.Array = results[0] ^ SIGN
        return found

    @staticmethod
    def expected(given: Sequence[sdk.Array], op: str) -> sdk.Array:
        """Return the right result for the vectors of all ranks."""
        return smallest(np.concatenate(given))


def smallest(numbers: sdk.Array) -> sdk.Array:
    """Return the COUNT smallest numbers in order, filled up with NONE."""
    found = np.full(COUNT, NONE, np.int32)
    kept = np.sort(numbers)[:COUNT]
    found[: kept.size] = kept
    return found
