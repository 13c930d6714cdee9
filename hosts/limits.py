# SPDX-License-Identifier: Apache-2.0
"""Upper bound of the goodput of a collective on a rail, in bits of the tensor per second."""

from __future__ import annotations

from railweave._native.collectives import Collective
from railweave._native.ina import SEAL_LANES, SPREAD_CODE_BYTES
from railweave.hosts.errors import InvalidOption
from railweave.topologies.model import P4_KINDS, RAIL_KINDS

ETHERNET, IPV4, UDP, TCP_WITH_TIMESTAMPS = 14, 20, 8, 32
INA_HEADER = 16
ROCE_HEADERS = 12 + 4  # BTH and ICRC
MTU = 1500
ROCE_PATH_MTU = 1024  # of the rdma rail, on any link
LANE_BYTES = 4


def payload_fraction(kind: str, lanes: int = 256, *, multicast: bool = False, mtu: int = MTU) -> float:
    """Return the fraction of tensor bytes in full packets, counted with their Ethernet headers."""
    match kind:
        case "ina":
            headers = INA_HEADER + UDP + IPV4
            if multicast:
                return (mtu - headers - SPREAD_CODE_BYTES) / (mtu + ETHERNET)
            return (lanes - SEAL_LANES) * LANE_BYTES / (lanes * LANE_BYTES + headers + ETHERNET)
        case "algorithm":  # of about the same size
            headers = INA_HEADER + UDP + IPV4 + ETHERNET
            return lanes * LANE_BYTES / (lanes * LANE_BYTES + headers)
        case "tcp":
            return (mtu - IPV4 - TCP_WITH_TIMESTAMPS) / (mtu + ETHERNET)
        case "rdma" | "netreduce":
            return ROCE_PATH_MTU / (ROCE_PATH_MTU + ROCE_HEADERS + UDP + IPV4 + ETHERNET)
    raise InvalidOption(f"rail kind {kind!r}", f"one of {', '.join(RAIL_KINDS)}", "correct the kind")


def limit_bps(
    kind: str,
    rate_bps: float,
    hosts: int,
    lanes: int = 256,
    collective: Collective = Collective.ALL_REDUCE,
    mtu: int = MTU,
) -> float:
    """Return the limit of a collective among `hosts` (at least 2) on links of `rate_bps` and `mtu`.

    The tensor of a reduce_scatter or an all_gather is all its shards. In an allreduce, an aggregating switch
    receives the tensor once from every host and sends it once to every host. In a reduce_scatter, a host
    sends the other ranks' shards, and only headers for its own shard. A multicast tensor comes down once; an
    all_gather brings the other ranks' shards. Other algorithms move `ring_volume` tensors over every link.
    """
    multicast = collective in (Collective.ALL_GATHER, Collective.BROADCAST)
    fraction = payload_fraction(kind, lanes, multicast=multicast, mtu=mtu)
    limit = rate_bps * fraction
    if kind == "ina" and collective is Collective.REDUCE_SCATTER:
        headers = INA_HEADER + UDP + IPV4 + ETHERNET
        bare = headers / (lanes * LANE_BYTES + headers)
        return limit * hosts / (hosts - 1 + bare)
    whole = kind in P4_KINDS and collective is Collective.ALL_REDUCE
    return limit if whole else limit / ring_volume(collective, hosts)


def ring_volume(collective: Collective, hosts: int) -> float:
    """Return the multiple of the tensor that the hosts' own algorithms move over every link, one way.

    It is also the factor of nccl-tests from algorithm to bus bandwidth.
    """
    match collective:
        case Collective.ALL_REDUCE:
            return 2 * (hosts - 1) / hosts
        case Collective.BROADCAST:
            return 1.0
    return (hosts - 1) / hosts
