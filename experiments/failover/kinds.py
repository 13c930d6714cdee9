# SPDX-License-Identifier: Apache-2.0
"""The faults of `railweave bench failover`: of any rail, of in-network trees, of ranks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from railweave.experiments.errors import OptionError
from railweave.topologies.lab import faults
from railweave.topologies.lab.faults import Fault
from railweave.topologies.model import Plane, Topology

RATE_CUT = 0.01  # of the plane's rate
LEAST_CUT_BPS = 100_000  # the slowest that a link gets
UNSHAPED_CUT_BPS = 10_000_000  # what a link without a rate gets


@dataclass(frozen=True)
class Kind:
    """A kind of fault: how to draw one, and its effect."""

    name: str
    draw: Callable[[Plane, random.Random], Fault]
    fail_stop: bool = True  # the rail carries nothing as long as it lasts
    detour: bool = False  # calls go on before the repair, even on one rail
    spines: int = 0  # needed above the leaves
    repeated: bool = False  # injected and repaired several times in a row

    def missing(self, plane: Plane) -> str:
        """Return what a plane lacks for this fault; empty if nothing."""
        if self not in OF_TREES:
            return ""
        if plane.kind != "ina":
            return "an in-network rail"
        above = plane.levels()[1:]
        return "two spines" if len(above[0] if above else ()) < self.spines else ""


def _host(plane: Plane, rng: random.Random) -> str:
    return rng.choice(plane.nics).host


def _loss_one_way(plane: Plane, rng: random.Random) -> Fault:
    to_switch = rng.random() < 0.5
    return faults.lossy(plane, _host(plane, rng), to_switch=to_switch, to_host=not to_switch)


def _rate_cut(plane: Plane, rng: random.Random) -> Fault:
    cut = max(round(plane.rate_bps * RATE_CUT), LEAST_CUT_BPS) if plane.rate_bps else UNSHAPED_CUT_BPS
    return faults.rate_changed(plane, cut, _host(plane, rng))


def _uplink_cut(plane: Plane, rng: random.Random) -> Fault:
    trunk = rng.choice(plane.trunks)
    return faults.link_cut(Topology(plane.name, (), (plane,)), trunk.lower, trunk.upper)


def _killed(level: int) -> Callable[[Plane, random.Random], Fault]:
    return lambda plane, rng: faults.switch_killed(plane, rng.choice(plane.levels()[level]))


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

# Hosts need their leaf; another spine takes over. Switches need no controller.
OF_TREES = (
    Kind("leaf killed", _killed(0)),
    Kind("uplink cut", _uplink_cut, fail_stop=False, detour=True, spines=2),
    Kind("spine killed", _killed(1), fail_stop=False, detour=True, spines=2),
    Kind(
        "controller restarts",
        lambda *_: faults.controller_killed(),
        fail_stop=False,
        detour=True,
        repeated=True,
    ),
)

RANK_COMPUTES, RANK_KILLED = "rank computes", "rank killed"  # no rail fails
OF_RANKS = (RANK_COMPUTES, RANK_KILLED)


def chosen(names: Sequence[str], planes: Sequence[Plane]) -> list[tuple[Kind, Plane]]:
    """Return the kinds of those names with the planes that they hit; those of ranks are not among them.

    Without names all kinds, those of trees where there are trunks. OptionError names what there is or lacks.
    """
    known = {kind.name: kind for kind in (*KINDS, *OF_TREES)}
    unknown = [name for name in names if name not in known and name not in OF_RANKS]
    if unknown:
        raise OptionError(f"unknown fault {unknown[0]!r}; there are {', '.join([*known, *OF_RANKS])}")
    trees = OF_TREES if any(plane.trunks for plane in planes) else ()
    wanted = [known[name] for name in names if name in known] if names else [*KINDS, *trees]
    for kind in wanted if names else ():
        lacks = {kind.missing(plane) for plane in planes}
        if "" not in lacks:
            raise OptionError(f"fault {kind.name!r} needs {' and '.join(sorted(lacks))}")
    return [(kind, plane) for kind in wanted for plane in planes if not kind.missing(plane)]
