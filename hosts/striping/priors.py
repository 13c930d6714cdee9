# SPDX-License-Identifier: Apache-2.0
"""Prior costs of rails, before any measurement: by kind, rate, number of hosts and algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railweave._native.collectives import Collective, DType, Method, ReduceOp, choose_method
from railweave.hosts.limits import limit_bps, ring_volume
from railweave.topologies.model import ALGORITHM

UNKNOWN_RATE_BPS = 10**9  # rate of all links if the rate of one link is unknown
STEP_S = 50e-6  # time of one message from host to host


@dataclass(frozen=True)
class Line:
    """T(s) = a_s + s / rate: seconds for `s` bytes."""

    a_s: float
    rate: float  # bytes per second

    def time_s(self, size: float) -> float:
        """Return the time of `size` bytes."""
        return self.a_s + size / self.rate

    def slower(self, factor: float) -> Line:
        """Return the line of a rail that takes `factor` times as long."""
        return Line(self.a_s * factor, self.rate / factor)


@dataclass(frozen=True)
class StripedRail:
    """Properties of a rail that striping needs."""

    name: str
    index: int  # in the agent
    kind: str
    rate_bps: int = 0  # of its links; 0: unknown
    share: float = 0.0  # fixed share of large tensors; 0: no share
    lanes: int = 256  # elements per packet of an in-network rail
    trees: int = 1  # trees among which an in-network rail divides its part
    adds: bool = False  # whether the switch of a netreduce rail sums the data that ranks write
    members: int = 0  # of its ring of racks and ranks; 0 if all switches aggregate
    where: str = ""  # of RDMA: its device, or why it has none; of an algorithm rail: the algorithm's name
    # Of an algorithm rail: the types and operations of its all_reduces. The rail carries nothing else.
    carries: frozenset[tuple[DType, ReduceOp]] | None = None


def prior_lines(
    rails: Sequence[StripedRail], hosts: int, collective: str, ina_lanes: int = 1, size: int | None = None
) -> dict[int, Line]:
    """Return the cost of each rail, by index, in calls of about `size` bytes; without `size`, large calls.

    An ina rail sends `ina_lanes` lanes per 4 bytes of the tensor, in one step up and one step down for any
    number of hosts. Hosts use their algorithm for the size. Large tensors use a ring of n. Small tensors use
    log2(n) exchanges of the whole tensor, or of all blocks.
    """
    which = Collective[collective.upper()]
    known = all(rail.rate_bps > 0 for rail in rails)
    lines = {}
    for rail in rails:
        rate_bps = rail.rate_bps if known else UNKNOWN_RATE_BPS
        kind = "tcp" if rail.members else "rdma" if rail.kind == "netreduce" and not rail.adds else rail.kind
        around = rail.members if rail.members and which is Collective.ALL_REDUCE else hosts
        rate = limit_bps(kind, rate_bps, around, collective=which) / 8
        if kind in ("ina", ALGORITHM) or (kind == "netreduce" and which is Collective.ALL_REDUCE):
            steps, volume = 2, float(ina_lanes if rail.kind == "ina" else 1)
        else:
            ring = size is None or rail.members > 0
            method = Method.RING if ring else choose_method(which, size or 0, around, rate_bps)
            steps, volume = host_steps(which, method, around)
        lines[rail.index] = Line(steps * STEP_S, rate / volume)
    return lines


def host_steps(collective: Collective, method: Method, hosts: int) -> tuple[int, float]:
    """Return the number of successive messages, and the bytes over a link relative to a ring's."""
    rounds = (hosts - 1).bit_length()
    both = 2 if collective is Collective.ALL_REDUCE else 1
    if method in {Method.RECURSIVE_DOUBLING, Method.BINOMIAL}:
        folds = method is Method.RECURSIVE_DOUBLING and hosts & (hosts - 1) > 0
        return rounds + folds, (rounds + folds) / ring_volume(collective, hosts)
    return both * (rounds if method is Method.BRUCK else hosts - 1), 1.0
