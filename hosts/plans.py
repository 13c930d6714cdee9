# SPDX-License-Identifier: Apache-2.0
"""How calls are cut, remembered; and why, counted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from railweave._native.agent import Call
from railweave._native.collectives import ReduceOp, item_size
from railweave.hosts import capabilities
from railweave.hosts.arrays import DTYPES, NAMES
from railweave.hosts.decisions import Ledger, Tally, Verdict
from railweave.hosts.striper import FixedStriper, Part

PLANS = 256  # calls whose cut is remembered

ALL_REDUCE = "all_reduce"


@dataclass(frozen=True)
class Plan:
    """What every call of one type, operation and length has in common."""

    call: Call
    parts: tuple[Part, ...]
    tally: Tally


Planner = Callable[[str, ReduceOp, int], Plan]


def planner(striper: FixedStriper, ledger: Ledger, refused: Mapping[str, Verdict]) -> Planner:
    """Return how calls are cut, by numpy's type character, operation and count.

    Rails that are `refused` are none of the striper's, but the ledger knows of them.
    """

    @functools.lru_cache(PLANS)
    def plan(char: str, op: ReduceOp, count: int) -> Plan:
        dtype = DTYPES[char]
        split = striper.split(dtype, op, count, item_size(dtype))
        tally = ledger.tally(
            ALL_REDUCE,
            NAMES[dtype],
            capabilities.OP_NAMES[op],
            count * item_size(dtype),
            {**split.verdicts, **refused},
        )
        return Plan(Call(dtype, op, count), split.parts, tally)

    return plan
