# SPDX-License-Identifier: Apache-2.0
"""The kinds of faults of in-network trees and their controller, each drawn at random places."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from railweave.experiments.errors import OptionError
from railweave.topologies.lab import faults
from railweave.topologies.lab.faults import Fault
from railweave.topologies.model import Plane, Topology

OUTAGE_S = 0.5  # of faults without another path


@dataclass(frozen=True)
class Kind:
    """One kind of fault that a job must recover from."""

    name: str
    draw: Callable[[Topology, random.Random], Fault]
    has_detour: bool = False  # another tree takes over before the repair
    spines: int = 0  # so many switches are needed above the leaves
    times: int = 1  # injected and repaired so often in a row

    def missing(self, topology: Topology) -> str:
        """Return what a topology lacks for this fault; '' if nothing."""
        above = ina_plane(topology).levels()[1:]
        return "" if len(above[0] if above else ()) >= self.spines else "two spines"


def ina_plane(topology: Topology) -> Plane:
    """Return the first in-network plane; OptionError if there is none."""
    for plane in topology.planes:
        if plane.kind == "ina":
            return plane
    raise OptionError(f"topology {topology.name!r} has no in-network plane")


def _switch_killed(topology: Topology, rng: random.Random, level: int) -> Fault:
    plane = ina_plane(topology)
    return faults.switch_killed(plane, rng.choice(plane.levels()[level]))


def _uplink_cut(topology: Topology, rng: random.Random) -> Fault:
    trunk = rng.choice(ina_plane(topology).trunks)
    return faults.link_cut(topology, trunk.lower, trunk.upper)


def _host_link_cut(topology: Topology, rng: random.Random) -> Fault:
    nic = rng.choice(ina_plane(topology).nics)
    return faults.link_cut(topology, nic.host, nic.switch)


def kinds_of(restarts: int) -> list[Kind]:
    """Return the faults in the table's order; the controller is restarted so often in one trial."""
    return [
        Kind("switch restart", lambda topology, rng: _switch_killed(topology, rng, 0)),
        Kind("uplink cut", _uplink_cut, has_detour=True, spines=2),
        Kind("host link cut", _host_link_cut),
        Kind(
            "spine killed", lambda topology, rng: _switch_killed(topology, rng, 1), has_detour=True, spines=2
        ),
        # The switches need no controller.
        Kind("controller restarts", lambda *_: faults.controller_killed(), has_detour=True, times=restarts),
    ]
