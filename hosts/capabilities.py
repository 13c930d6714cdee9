# SPDX-License-Identifier: Apache-2.0
"""The calls that each kind of rail can carry. Switches add int32 only, so `ina` lacks types and products."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    """Return the reason why a rail of this kind cannot carry such a call; None if it can."""
    if kind != "ina" or collective not in REDUCING:
        return None  # other collectives pass any type as 32-bit words, which a switch adds to zeros
    if dtype not in INA_DTYPES:
        return Reason.DTYPE
    return None if op in INA_OPS else Reason.OP


def barred(rail: StripedRail, collective: Collective, dtype: DType, op: ReduceOp) -> Verdict | None:
    """Return why a rail carries no part of such calls of any size; None if it does."""
    if rail.carries is None:
        reason = obstacle(rail.kind, dtype, op, collective)
    else:
        reason = _not_among(rail.carries, dtype, op, collective)
    return Verdict(reason, limits(rail)) if reason is not None else None


def _not_among(
    calls: Collection[tuple[DType, ReduceOp]], dtype: DType, op: ReduceOp, collective: Collective
) -> Reason | None:
    """Return the reason why a call is not among these all_reduces; None if it is."""
    if collective is not Collective.ALL_REDUCE:
        return Reason.COLLECTIVE
    if dtype not in {able for able, _ in calls}:
        return Reason.DTYPE
    return None if (dtype, op) in calls else Reason.OP


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

    Raises UnsupportedDType if no rail can. With `by_share`, one of these rails must have a share above 0.
    """
    found = [rail for rail in rails if not barred(rail, collective, dtype, op)]
    if not found or (by_share and all(rail.share <= 0 for rail in found)):
        why = "; ".join(f"{rail.name}: {NO_SHARE.text if rail in found else limits(rail)}" for rail in rails)
        advice = f"give rail {found[0].name} a share" if found else "add a tcp or rdma rail"
        raise UnsupportedDType(
            f"no rail can carry {call_name(collective, dtype, op)} ({why})",
            "one rail that can carry it",
            advice,
        )
    return found


def limits(rail: StripedRail) -> str:
    """Say what a rail can do, for messages."""
    if rail.carries is not None:
        calls = sorted(f"{OP_NAMES[op]} of {NAMES[dtype]}" for dtype, op in rail.carries)
        return f"{rail.where} carries all_reduces: {', '.join(calls)}"
    if rail.kind != "ina":
        return f"{rail.kind} reduces all types"
    types = ", ".join(sorted(NAMES[dtype] for dtype in INA_DTYPES))
    ops = ", ".join(sorted(OP_NAMES[op] for op in INA_OPS))
    return f"ina reduces {types} with {ops}"


def call_name(collective: Collective, dtype: DType, op: ReduceOp) -> str:
    """Return the name of such calls in messages, such as `all_reduce sum of float32`."""
    return " ".join(filter(None, (COLLECTIVE_NAMES[collective], op_name(collective, op), "of", NAMES[dtype])))


def op_name(collective: Collective, op: ReduceOp) -> str:
    """Return the operation's name; '' for a collective that has none."""
    return OP_NAMES[op] if collective in REDUCING else ""


def size_bytes(collective: Collective, count: int, item_size: int, world_size: int) -> int:
    """Return the bytes of the whole tensor of a call: of all shards if the collective has shards."""
    return count * item_size * (world_size if collective in SHARDED else 1)
