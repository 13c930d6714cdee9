# SPDX-License-Identifier: Apache-2.0
"""A rank that sums int32 numbers repeatedly and checks every sum: `python -m summing ROUNDS ELEMENTS`.

It prints `round N SECONDS` after every call.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import railweave


def numbers(rank: int, round_: int, count: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the contribution of a rank. Every rank can compute it."""
    rng = np.random.default_rng((rank, round_))
    return rng.integers(-(2**31), 2**31, count, np.int32)


def main(rounds: int, count: int) -> None:
    with railweave.init() as comm:
        for round_ in range(rounds):
            expected = sum(
                numbers(rank, round_, count).astype(np.int64) for rank in range(comm.world_size)
            ).astype(np.int32)
            mine = numbers(comm.rank, round_, count)
            begin = time.monotonic()
            result = comm.all_reduce(mine)
            took = time.monotonic() - begin
            np.testing.assert_array_equal(result, expected)
            print(f"round {round_} {took:.3f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
