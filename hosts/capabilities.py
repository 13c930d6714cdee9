# SPDX-License-Identifier: Apache-2.0
"""Which kind of rail can carry what. Switches add int32: they lack many types to reduce, and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from railweave._native.collectives import Collective, DType, ReduceOp
from railweave._native.ina import LEAST_SPREAD_CHUNKS, spreads
from railweave.hosts.arrays import NAMES
from railweave.hosts.decisions import Reason, Verdict
from railweave.hosts.errors import UnsupportedDType

if TYPE_CHECKING:
    from railweave.hosts.striping.priors import StripedRail

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

NO_SHARE = Verdict(Reason.SHARE_ZERO, "its share is 0")
MULTICAST = Verdict(None, "multicast")
FEW_CHUNKS = Verdict(None, f"not multicast: fewer than {LEAST_SPREAD_CHUNKS} chunks")


def obstacle(
    kind: str, dtype: DType, op: ReduceOp, collective: Collective = Collective.ALL_REDUCE
) -> Reason | None:
    """Return what keeps a rail of this kind from such a call; None if nothing does."""
    if kind != "ina" or collective not in REDUCING:
        return None  # what is not reduced goes as words of 32 bits, which a switch adds to zeros
    if dtype not in INA_DTYPES:
        return Reason.DTYPE
    return None if op in INA_OPS else Reason.OP


def barred(kind: str, collective: Collective, dtype: DType, op: ReduceOp) -> Verdict | None:
    """Return why a rail of this kind takes no part in such calls of any size; None if it does."""
    reason = obstacle(kind, dtype, op, collective)
    return Verdict(reason, limits(kind)) if reason is not None else None


def use(rail: StripedRail, collective: Collective, dtype: DType, count: int, hosts: int) -> Verdict:
    """Return how a rail carries `count` elements (of a shard, where there are shards)."""
    if rail.members:
        reduces = collective is Collective.ALL_REDUCE
        return Verdict(None, f"a ring of {rail.members} racks and ranks" if reduces else "by the hosts")
    if rail.adds and collective is Collective.ALL_REDUCE:
        return Verdict(None, f"sums and means by the switch, the rest by the hosts; {rail.where}")
    if rail.kind != "ina" or collective in REDUCING:
        return Verdict(None, rail.where)
    return MULTICAST if spreads(collective, dtype, count, hosts, rail.lanes, rail.trees) else FEW_CHUNKS


def added(dtype: DType, op: ReduceOp) -> bool:
    """Return whether the switch of a netreduce rail can add such an all_reduce."""
    return dtype in INA_DTYPES and op in (ReduceOp.SUM, ReduceOp.AVG)


def able(
    rails: Sequence[StripedRail], collective: Collective, dtype: DType, op: ReduceOp, *, by_share: bool
) -> list[StripedRail]:
    """Return the rails that can carry such calls.

    UnsupportedDType if there are none, or, where tensors are cut `by_share`, none that has a share.
    """
    found = [rail for rail in rails if not barred(rail.kind, collective, dtype, op)]
    if not found or (by_share and all(rail.share <= 0 for rail in found)):
        why = "; ".join(
            f"{rail.name}: {NO_SHARE.text if rail in found else limits(rail.kind)}" for rail in rails
        )
        advice = f"give rail {found[0].name} a share" if found else "add a tcp or rdma rail"
        raise UnsupportedDType(
            f"no rail can carry {call_name(collective, dtype, op)} ({why})",
            "one rail that can carry it",
            advice,
        )
    return found


def limits(kind: str) -> str:
    """Say what a rail of this kind can do, for messages."""
    if kind != "ina":
        return f"{kind} reduces all types"
    types = ", ".join(sorted(NAMES[dtype] for dtype in INA_DTYPES))
    ops = ", ".join(sorted(OP_NAMES[op] for op in INA_OPS))
    return f"ina reduces {types} with {ops}"


def call_name(collective: Collective, dtype: DType, op: ReduceOp) -> str:
    """Return what such calls are called in messages: `all_reduce sum of float32`."""
    return " ".join(filter(None, (COLLECTIVE_NAMES[collective], op_name(collective, op), "of", NAMES[dtype])))


def op_name(collective: Collective, op: ReduceOp) -> str:
    """Return the operation's name; '' for a collective that has none."""
    return OP_NAMES[op] if collective in REDUCING else ""


def size_bytes(collective: Collective, count: int, item_size: int, world_size: int) -> int:
    """Return the size of the whole tensor of a call, all shards of it if it has shards."""
    return count * item_size * (world_size if collective in SHARDED else 1)
