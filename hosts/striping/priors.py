# SPDX-License-Identifier: Apache-2.0
"""What rails are taken to cost before anything is measured: from kind, rate and number of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railweave._native.collectives import Collective
from railweave.hosts.limits import limit_bps
from railweave.hosts.striping.costs import Line

UNKNOWN_RATE_BPS = 10**9  # what links are taken for if the rate of one is not known
STEP_S = 50e-6  # one message from host to host


@dataclass(frozen=True)
class StripedRail:
    """A rail as the striper sees it."""

    name: str
    index: int  # in the agent
    kind: str
    rate_bps: int = 0  # of its links; 0: unknown
    share: float = 0.0  # of large tensors, where shares are fixed
    lanes: int = 256  # of an in-network rail's packets
    trees: int = 1  # among which it cuts its part of a call
    adds: bool = False  # a netreduce rail whose switch adds up what the ranks write
    members: int = 0  # of the ring of racks and ranks that carries it where not all switches aggregate
    where: str = ""  # of RDMA: on which device, or why on none


def prior_lines(
    rails: Sequence[StripedRail], hosts: int, collective: str, ina_lanes: int = 1
) -> dict[int, Line]:
    """Return the cost of each rail, by index; an ina rail sends `ina_lanes` lanes for 4 bytes of the tensor.

    A ring takes 2(n-1) steps one after the other for an allreduce, n-1 for its halves; an aggregating switch
    takes one up and one down, whatever n is.
    """
    which = Collective[collective.upper()]
    known = all(rail.rate_bps > 0 for rail in rails)
    lines = {}
    for rail in rails:
        rate_bps = rail.rate_bps if known else UNKNOWN_RATE_BPS
        kind = "tcp" if rail.members else "rdma" if rail.kind == "netreduce" and not rail.adds else rail.kind
        around = rail.members if rail.members and which is Collective.ALL_REDUCE else hosts
        whole = kind == "ina" or (kind == "netreduce" and which is Collective.ALL_REDUCE)
        steps = 2 if whole else (2 if collective == "all_reduce" else 1) * (around - 1)
        limit = limit_bps(kind, rate_bps, around, collective=which)
        lines[rail.index] = Line(steps * STEP_S, limit / (8 * ina_lanes if rail.kind == "ina" else 8))
    return lines
