# SPDX-License-Identifier: Apache-2.0
"""The rate that the links of a plane allow a collective: bits of the tensor per second, 0 if unshaped."""

from __future__ import annotations

import math

from railweave._native.collectives import Collective
from railweave.experiments.problem import BOTH
from railweave.hosts.limits import limit_bps, payload_fraction
from railweave.p4src.artifacts import lanes_for
from railweave.topologies.model import Plane


def over_hosts(plane: Plane, collective: str, kind: str = "tcp") -> float:
    """Return the limit of a ring of all hosts, or of one tree with all hosts if `kind` is ina."""
    hosts, rate_bps = len(plane.nics), plane.rate_bps
    limits = [on_plane(plane, kind, hosts, each) for each in collective.split("+")]
    if collective == BOTH and kind == "ina":  # uplinks limit the rate; of the gather, they carry one shard
        limits[0] = rate_bps * payload_fraction(kind, multicast=True, mtu=plane.least_mtu) * hosts
    return math.prod(limits) / sum(limits) if len(limits) == 2 and all(limits) else limits[0]


def on_plane(plane: Plane, kind: str, hosts: int, collective: str) -> float:
    """Return the limit of a collective among `hosts` on rails of `kind` on this plane's links."""
    mtu = plane.least_mtu
    return limit_bps(kind, plane.rate_bps, hosts, lanes_for(mtu), Collective[collective.upper()], mtu)


def over_link(plane: Plane, tensors: float) -> float:
    """Return the limit over TCP if the busiest link carries this number of tensors in one direction."""
    return plane.rate_bps * payload_fraction("tcp", mtu=plane.least_mtu) / tensors


def ring_members(plane: Plane) -> int:
    """Return the number of racks and single ranks in the in-network rail's ring; 1: one tree."""
    from railweave.controller.composition import mixed, racks  # noqa: PLC0415 - no rank needs networkx

    hosts = len(plane.nics)
    if not mixed(plane):
        return 1
    found = racks(plane, dict(enumerate(plane.nics)))
    return len(found) + hosts - sum(map(len, found))


def of_railweave(plane: Plane, collective: str) -> float:
    """Return the limit of a rail on this plane: the limit of the ring if not all switches aggregate."""
    members = ring_members(plane)
    if plane.kind == "ina" and members > 1:
        if collective != "all_reduce":
            return over_hosts(plane, collective)
        return on_plane(plane, "tcp", members, collective)
    return over_hosts(plane, collective, plane.kind)
