# SPDX-License-Identifier: Apache-2.0
"""Scenarios that several figures share. Each is run once.

Two cores can carry these link rates; docs/howto/bottleneck.md says how to measure that.
"""

from __future__ import annotations

from railweave.experiments.contenders import Contender
from railweave.experiments.scenario import Scenario, Workload
from railweave.topologies.planes import plane_names

KIB = 1 << 10
RATE_BPS = 100_000_000  # of links among up to 6 hosts
RATE_8_HOSTS_BPS = 50_000_000
PAIRS = (("ina", "tcp"), ("ina", "rdma"), ("tcp", "rdma"), ("tcp", "tcp"))


def powers(first: int, last: int, step: int = 2) -> tuple[int, ...]:
    """Return `first`, `step` times that, … up to `last`."""
    sizes = [first]
    while sizes[-1] * step <= last:
        sizes.append(sizes[-1] * step)
    return tuple(sizes)


def sweep(quick: bool, first: int = KIB, last: int = 1024 * KIB) -> Workload:
    """Return calls of all sizes: powers of two, or powers of four if `quick`.

    The time per size is fixed: 100 small calls would take only 30 ms, and one disturbance could hit them all.
    """
    if quick:
        return Workload(powers(first, last, 4), iterations=1000, seconds=0.4)
    return Workload(powers(first, last), iterations=1000, seconds=0.5)


def rails(
    kinds: tuple[str, ...],
    quick: bool,
    hosts: int = 4,
    rates: tuple[int, ...] = (RATE_BPS,),
    alone: bool = True,
    last: int = 1024 * KIB,
) -> Scenario:
    """Return all rails together and, if `alone`, each different one alone."""
    names = plane_names(kinds)
    together = Contender("+".join(kinds), "railweave")
    apart = [Contender(name, "railweave", (name,)) for name in names]
    if len(set(kinds)) == len(set(rates)) == 1:
        apart = apart[:1]
    at = "/".join(f"{rate // 10**6}" for rate in rates)
    return Scenario(
        name=f"{together.name}, {hosts} hosts, {at} Mbit/s",
        contenders=(together, *(apart if alone else ())),
        workload=sweep(quick, last=last),
        hosts=hosts,
        rails=kinds,
        rates=rates,
        repetitions=2 if quick else 4 if alone else 3,
        control=alone and not quick,
    )
