# SPDX-License-Identifier: Apache-2.0
"""Count the links that the shards of an allgather cross, in a ring and by multicast. Nothing is run.

A network is the number of hosts under a switch, by level from the hosts up: (18, 36) has racks of 18 hosts,
pods of two racks, and a core above. Hosts fill it from the left. One switch for all hosts has no level.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from railweave.experiments.figures.modules import Numbers, OnPhase, Options


def measure(options: Options, out: Path, on_phase: OnPhase) -> list[Numbers]:
    """Return the counts by network and number of hosts, and their distance from 2(P-1)/P on one switch."""
    counts = {
        name: {str(hosts): [ring(hosts, levels), multicast(hosts, levels)] for hosts in options["hosts"]}
        for name, levels in options["networks"].items()
    }
    off = [
        abs(unicast * hosts / shared / (2 * hosts - 2) - 1)
        for hosts, (unicast, shared) in ((int(p), pair) for p, pair in counts["one switch"].items())
    ]
    return [{"counts": counts, "off": max(off)}]


def ring(hosts: int, levels: Sequence[int] = ()) -> int:
    """Return a ring's crossings: each host sends all shards but one to the next, the last to the first.

    >>> ring(4), ring(188, (18, 36))
    (24, 76670)
    """
    neighbours = ((host, (host + 1) % hosts) for host in range(hosts))
    return (hosts - 1) * sum(2 + 2 * _climb(one, other, levels) for one, other in neighbours)


def multicast(hosts: int, levels: Sequence[int] = ()) -> int:
    """Return the crossings of multicast: every shard crosses once each link of the tree that joins the hosts.

    >>> multicast(4), multicast(188, (18, 36))
    (16, 38540)
    """
    groups = [-(-hosts // size) for size in levels]
    return hosts * (hosts + sum(count for count in groups if count > 1))


def _climb(one: int, other: int, levels: Sequence[int]) -> int:
    """Return the number of levels between the switches of two hosts and the lowest switch above both."""
    return sum(one // size != other // size for size in levels)
