# SPDX-License-Identifier: Apache-2.0
"""The kinds of faults, and how each is injected and repaired in a lab."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod

from railweave.experiments.errors import OptionError
from railweave.topologies.lab.lab import Lab
from railweave.topologies.lab.namespaces import CONTROLLER_NODE
from railweave.topologies.model import Plane, Topology

OUTAGE_S = 0.5  # of faults without another path


class Fault(ABC):
    """One kind of fault that a job must recover from."""

    name: str
    has_detour = False  # another tree takes over before the repair

    @abstractmethod
    async def inject(self, lab: Lab, rng: random.Random) -> str:
        """Inject the fault at a random place; return the place."""

    @abstractmethod
    async def repair(self, lab: Lab) -> None:
        """Undo the fault."""

    def missing(self, topology: Topology) -> str:
        """Return what a topology lacks for this fault; '' if nothing."""
        return "" if levels(topology) else "an in-network plane"


class SwitchRestart(Fault):
    """A switch's process is killed and started again: all its state is lost."""

    name = "switch restart"

    async def inject(self, lab: Lab, rng: random.Random) -> str:
        """Kill a switch to which hosts are connected: there is no other path."""
        self._switch = rng.choice(levels(lab.topology)[0])
        await lab.kill(self._switch)
        return self._switch

    async def repair(self, lab: Lab) -> None:
        """Start it."""
        await lab.revive(self._switch)


class UpperSwitchDeath(Fault):
    """A switch above the leaves is killed; others of its level keep running."""

    name = "spine killed"
    has_detour = True

    async def inject(self, lab: Lab, rng: random.Random) -> str:
        """Kill one."""
        self._switch = rng.choice(levels(lab.topology)[1])
        await lab.kill(self._switch)
        return self._switch

    async def repair(self, lab: Lab) -> None:
        """Start it."""
        await lab.revive(self._switch)

    def missing(self, topology: Topology) -> str:
        """Two spines are needed: one stays."""
        above = levels(topology)[1:]
        return "" if above and len(above[0]) > 1 else "two spines"


class UplinkCut(UpperSwitchDeath):
    """A link between a leaf and a spine is cut; there is another spine."""

    name = "uplink cut"

    async def inject(self, lab: Lab, rng: random.Random) -> str:
        """Cut one."""
        trunk = rng.choice(ina_plane(lab.topology).trunks)
        self._ends = trunk.lower, trunk.upper
        lab.cut(*self._ends)
        return " - ".join(self._ends)

    async def repair(self, lab: Lab) -> None:
        """Reconnect it."""
        lab.reconnect(*self._ends)


class HostLinkCut(Fault):
    """The link between a host and its switch is cut: the host's only one on this plane."""

    name = "host link cut"

    async def inject(self, lab: Lab, rng: random.Random) -> str:
        """Cut one."""
        nic = rng.choice(ina_plane(lab.topology).nics)
        self._ends = nic.host, nic.switch
        lab.cut(*self._ends)
        return " - ".join(self._ends)

    async def repair(self, lab: Lab) -> None:
        """Reconnect it."""
        lab.reconnect(*self._ends)


class ControllerRestarts(Fault):
    """The controller is killed and started again, several times."""

    name = "controller restarts"
    has_detour = True  # the switches need none

    def __init__(self, times: int) -> None:
        """Restart it so many times in a row."""
        self._times = times

    async def inject(self, lab: Lab, rng: random.Random) -> str:
        """Kill it, each time but the first soon after its restart."""
        for time in range(self._times):
            if time:
                await lab.revive(CONTROLLER_NODE)
                await asyncio.sleep(rng.uniform(0, 0.3))
            await lab.kill(CONTROLLER_NODE)
        return f"{self._times} times"

    async def repair(self, lab: Lab) -> None:
        """Start it."""
        await lab.revive(CONTROLLER_NODE)


def ina_plane(topology: Topology) -> Plane:
    """Return the first in-network plane; OptionError if there is none."""
    for plane in topology.planes:
        if plane.kind == "ina":
            return plane
    raise OptionError(f"topology {topology.name!r} has no in-network plane")


def levels(topology: Topology) -> list[list[str]]:
    """Return the names of the in-network plane's switches, level by level from the hosts up."""
    plane = ina_plane(topology)
    above = {trunk.lower: [t.upper for t in plane.trunks if t.lower == trunk.lower] for trunk in plane.trunks}
    level = sorted({nic.switch for nic in plane.nics})
    found = [level]
    while level := sorted({upper for name in level for upper in above.get(name, ())}):
        found.append(level)
    return found


def faults_of(restarts: int) -> list[Fault]:
    """Return the faults that a job must recover from, in the table's order."""
    return [SwitchRestart(), UplinkCut(), HostLinkCut(), UpperSwitchDeath(), ControllerRestarts(restarts)]
