# SPDX-License-Identifier: Apache-2.0
"""A rank that sums int32 numbers repeatedly and checks every sum: `python -m summing ELEMENTS STOP`.

After every sum it prints `round N`, the restarts of its first rail, and the bytes that this rail has carried.
It makes one more sum after the file STOP exists.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import railweave


def numbers(rank: int, round_: int, elements: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the contribution of a rank. Every rank can compute it."""
    rng = np.random.default_rng((rank, round_))
    return rng.integers(-(2**31), 2**31, elements, np.int32)


def main(elements: int, stop: Path) -> None:
    with railweave.init() as comm:
        for round_ in count():
            last = comm.all_reduce(np.array([stop.exists()], np.int32), "max")[0]
            every = [numbers(rank, round_, elements) for rank in range(comm.world_size)]
            result = comm.all_reduce(every[comm.rank])
            np.testing.assert_array_equal(result, np.sum(every, axis=0, dtype=np.int32))
            rail = comm.stats().rails[0]
            print(f"round {round_} {rail.incarnation} {rail.payload_bytes}", flush=True)
            if last:
                return


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
