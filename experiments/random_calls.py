# SPDX-License-Identifier: Apache-2.0
"""Calls drawn from a seed, with their correct results. All ranks draw the same calls without messages."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from railweave.experiments.problem import EPSILON, REDUCING, SHARDED, Array, Problem, problem
from railweave.hosts.communicator import Communicator

LARGEST = 4 << 20  # elements
COLLECTIVES = ("all_reduce", "all_reduce", "all_reduce", "reduce_scatter", "all_gather", "broadcast")
OPS = ("sum", "prod", "max", "min", "avg")
DTYPES = (*EPSILON, "int8", "uint8", "int32", "int64")
ASYNC_SHARE = 0.5
MOST_CALLS = 1 << 32  # of one seed
MOST_JOINS = 1000  # joins of a rank whose calls have different seeds


@dataclass(frozen=True)
class RandomCall:
    """One call."""

    number: int
    collective: str
    count: int  # elements; of one shard for reduce_scatter and all_gather
    dtype: str
    op: str  # of all_reduce and reduce_scatter
    root: int  # of a broadcast
    async_op: bool
    in_place: bool

    def problem(self, seed: int, rank: int, ranks: int) -> Problem:
        """Return the input and the result of a rank. Every call of a seed has other numbers."""
        about = (self.count, self.dtype, self.op, rank, ranks, seed * MOST_CALLS + self.number)
        return problem(*about, self.collective, self.root, wraps=True)

    def start(self, comm: Communicator, mine: Array) -> Any:
        """Make the call with the input `mine`. Return its result, or its Work."""
        later = self.async_op
        own = slice(comm.rank * self.count, (comm.rank + 1) * self.count)
        match self.collective:
            case "all_reduce":
                return comm.all_reduce(mine, self.op, mine if self.in_place else None, later)
            case "reduce_scatter":
                return comm.reduce_scatter(mine, self.op, mine[own] if self.in_place else None, later)
            case "all_gather":
                whole = np.empty(comm.world_size * mine.size, mine.dtype)
                whole[own] = mine
                return comm.all_gather(whole[own] if self.in_place else mine, whole, later)
            case _:
                given = mine if comm.rank == self.root else np.zeros_like(mine)
                return comm.broadcast(given, self.root, later)


def draw(seed: int, number: int, ranks: int, largest: int = LARGEST) -> RandomCall:
    """Return call `number`. The logarithms of sizes are uniform: 1 to 2 is as likely as 1 to 2 million."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - to be repeated, not secret
    collective = rng.choice(COLLECTIVES)
    most = largest // ranks if collective in SHARDED else largest
    return RandomCall(
        number=number,
        collective=collective,
        count=max(1, min(most, int(math.exp(rng.uniform(0, math.log(most + 1)))))),
        dtype=rng.choice(DTYPES),
        op=rng.choice(OPS) if collective in REDUCING else "sum",
        root=rng.randrange(ranks),
        async_op=rng.random() < ASYNC_SHARE,
        in_place=rng.random() < ASYNC_SHARE,
    )
