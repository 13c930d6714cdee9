# SPDX-License-Identifier: Apache-2.0
"""Which kind of rail can carry what. Switches add int32: they lack many types to reduce, and products."""

from __future__ import annotations

from railweave._native.collectives import Collective, DType, ReduceOp
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

REDUCING = frozenset({Collective.ALL_REDUCE, Collective.REDUCE_SCATTER})
SHARDED = frozenset({Collective.REDUCE_SCATTER, Collective.ALL_GATHER})
COLLECTIVE_NAMES = {collective: collective.name.lower() for collective in Collective}

INA_DTYPES = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.INT32})
INA_OPS = frozenset({ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG})


def obstacle(
    kind: str, dtype: DType, op: ReduceOp, collective: Collective = Collective.ALL_REDUCE
) -> Reason | None:
    """Return what keeps a rail of this kind from such a call; None if nothing does."""
    if kind != "ina" or collective not in REDUCING:
        return None  # what is not reduced goes as words of 32 bits, which a switch adds to zeros
    if dtype not in INA_DTYPES:
        return Reason.DTYPE
    return None if op in INA_OPS else Reason.OP


def added(dtype: DType, op: ReduceOp) -> bool:
    """Return whether the switch of a netreduce rail can add such an all_reduce."""
    return dtype in INA_DTYPES and op in (ReduceOp.SUM, ReduceOp.AVG)


def limits(kind: str) -> str:
    """Say what a rail of this kind can do, for messages."""
    if kind != "ina":
        return f"{kind} reduces all types"
    types = ", ".join(sorted(NAMES[dtype] for dtype in INA_DTYPES))
    ops = ", ".join(sorted(OP_NAMES[op] for op in INA_OPS))
    return f"ina reduces {types} with {ops}"


def op_name(collective: Collective, op: ReduceOp) -> str:
    """Return the operation's name; '' for a collective that has none."""
    return OP_NAMES[op] if collective in REDUCING else ""


def size_bytes(collective: Collective, count: int, item_size: int, world_size: int) -> int:
    """Return the size of the whole tensor of a call, all shards of it if it has shards."""
    return count * item_size * (world_size if collective in SHARDED else 1)
