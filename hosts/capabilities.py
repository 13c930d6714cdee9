# SPDX-License-Identifier: Apache-2.0
"""Which kind of rail can reduce what. Switches add int32: they lack many types, and products."""

from __future__ import annotations

from railweave._native.collectives import DType, ReduceOp
from railweave.hosts.arrays import NAMES
from railweave.hosts.decisions import Reason

OPS = {
    "sum": ReduceOp.SUM,
    "max": ReduceOp.MAX,
    "min": ReduceOp.MIN,
    "avg": ReduceOp.AVG,
    "prod": ReduceOp.PROD,
}
OP_NAMES = {op: name for name, op in OPS.items()}

INA_DTYPES = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.INT32})
INA_OPS = frozenset({ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG})


def obstacle(kind: str, dtype: DType, op: ReduceOp) -> Reason | None:
    """Return what keeps a rail of this kind from such a call; None if nothing does."""
    if kind != "ina":
        return None
    if dtype not in INA_DTYPES:
        return Reason.DTYPE
    return None if op in INA_OPS else Reason.OP


def limits(kind: str) -> str:
    """Say what a rail of this kind can do, for messages."""
    if kind != "ina":
        return f"{kind} reduces all types"
    types = ", ".join(sorted(NAMES[dtype] for dtype in INA_DTYPES))
    ops = ", ".join(sorted(OP_NAMES[op] for op in INA_OPS))
    return f"ina reduces {types} with {ops}"
