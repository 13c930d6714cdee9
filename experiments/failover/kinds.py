# SPDX-License-Identifier: Apache-2.0
"""The faults of `railweave bench failover`, each of which can hit any rail."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from railweave.experiments.errors import OptionError
from railweave.topologies.lab import faults
from railweave.topologies.lab.faults import Fault
from railweave.topologies.model import Plane

RATE_CUT = 0.01  # of the plane's rate
LEAST_CUT_BPS = 100_000  # the slowest that a link gets
UNSHAPED_CUT_BPS = 10_000_000  # what a link without a rate gets


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how to draw one, and its effect."""

    name: str
    draw: Callable[[Plane, random.Random], Fault]
    fail_stop: bool = True  # the rail carries nothing as long as it lasts


def _host(plane: Plane, rng: random.Random) -> str:
    return rng.choice(plane.nics).host


def _loss_one_way(plane: Plane, rng: random.Random) -> Fault:
    to_switch = rng.random() < 0.5
    return faults.lossy(plane, _host(plane, rng), to_switch=to_switch, to_host=not to_switch)


def _rate_cut(plane: Plane, rng: random.Random) -> Fault:
    cut = max(round(plane.rate_bps * RATE_CUT), LEAST_CUT_BPS) if plane.rate_bps else UNSHAPED_CUT_BPS
    return faults.rate_changed(plane, cut, _host(plane, rng))


KINDS = (
    Kind("host link down", lambda plane, rng: faults.host_down(plane, _host(plane, rng))),
    Kind("switch port down", lambda plane, rng: faults.port_down(plane, _host(plane, rng))),
    Kind("loss one way", _loss_one_way),
    Kind("loss both ways", lambda plane, rng: faults.lossy(plane, _host(plane, rng))),
    Kind("switch killed", lambda plane, rng: faults.switch_killed(plane, rng.choice(plane.switches))),
    Kind("switch frozen", lambda plane, rng: faults.switch_frozen(plane, rng.choice(plane.switches))),
    Kind("rate cut", _rate_cut, fail_stop=False),
    Kind("flapping", lambda plane, rng: faults.flapping(plane, _host(plane, rng)), fail_stop=False),
)

RANK_COMPUTES, RANK_KILLED = "rank computes", "rank killed"  # no rail fails
OF_RANKS = (RANK_COMPUTES, RANK_KILLED)


def chosen(names: Sequence[str]) -> list[Kind]:
    """Return the kinds of those names, all if none is given; those of ranks are not among them.

    OptionError names what there is.
    """
    known = {kind.name: kind for kind in KINDS}
    unknown = [name for name in names if name not in known and name not in OF_RANKS]
    if unknown:
        raise OptionError(f"unknown fault {unknown[0]!r}; there are {', '.join([*known, *OF_RANKS])}")
    return [known[name] for name in names if name in known] if names else list(KINDS)
