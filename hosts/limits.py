# SPDX-License-Identifier: Apache-2.0
"""What the wires allow: the greatest goodput of a collective on a rail, in bits of the tensor per second."""

from __future__ import annotations

from railweave._native.collectives import Collective
from railweave._native.ina import SEAL_LANES, SPREAD_CODE_BYTES
from railweave.hosts.errors import InvalidOption

ETHERNET, IPV4, UDP, TCP_WITH_TIMESTAMPS = 14, 20, 8, 32
INA_HEADER = 16
ROCE_HEADERS = 12 + 4  # BTH and ICRC
MTU = 1500
ROCE_PATH_MTU = 1024  # of the rdma rail, on any link
LANE_BYTES = 4


def payload_fraction(kind: str, lanes: int = 256, *, multicast: bool = False, mtu: int = MTU) -> float:
    """Return the part of the bytes of full packets, Ethernet header included, that is the tensor's."""
    match kind:
        case "ina":
            headers = INA_HEADER + UDP + IPV4
            if multicast:
                return (mtu - headers - SPREAD_CODE_BYTES) / (mtu + ETHERNET)
            return (lanes - SEAL_LANES) * LANE_BYTES / (lanes * LANE_BYTES + headers + ETHERNET)
        case "tcp":
            return (mtu - IPV4 - TCP_WITH_TIMESTAMPS) / (mtu + ETHERNET)
        case "rdma" | "netreduce":
            return ROCE_PATH_MTU / (ROCE_PATH_MTU + ROCE_HEADERS + UDP + IPV4 + ETHERNET)
    raise InvalidOption(f"rail kind {kind!r}", "ina, tcp, rdma or netreduce", "correct the kind")


def limit_bps(
    kind: str,
    rate_bps: float,
    hosts: int,
    lanes: int = 256,
    collective: Collective = Collective.ALL_REDUCE,
    mtu: int = MTU,
) -> float:
    """Return the limit of a collective among `hosts`, at least 2, on links of `rate_bps` and `mtu`.

    The tensor of a reduce_scatter or an all_gather is all its shards. An aggregating switch takes the tensor
    from every host once and sends it to every host once; of a reduce_scatter it takes the others' shards, and
    headers of the own one; what is multicast comes down once, of an all_gather the others' shards. A ring
    moves 2(n-1)/n of it over every link for an allreduce, half as much for a reduce_scatter or an all_gather;
    a chain moves all of it for a broadcast.
    """
    multicast = collective in (Collective.ALL_GATHER, Collective.BROADCAST)
    fraction = payload_fraction(kind, lanes, multicast=multicast, mtu=mtu)
    limit = rate_bps * fraction
    if kind == "ina" and collective is Collective.REDUCE_SCATTER:
        headers = INA_HEADER + UDP + IPV4 + ETHERNET
        bare = headers / (lanes * LANE_BYTES + headers)
        return limit * hosts / (hosts - 1 + bare)
    whole = kind in ("ina", "netreduce") and collective is Collective.ALL_REDUCE
    return limit if whole else limit / ring_volume(collective, hosts)


def ring_volume(collective: Collective, hosts: int) -> float:
    """Return how much of the tensor the hosts' own algorithms move over every link, one way.

    It is also the factor of nccl-tests from algorithm to bus bandwidth.
    """
    match collective:
        case Collective.ALL_REDUCE:
            return 2 * (hosts - 1) / hosts
        case Collective.BROADCAST:
            return 1.0
    return (hosts - 1) / hosts
