# SPDX-License-Identifier: Apache-2.0
"""Forward a plane's ordinary frames over working switches and links."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from railweave.controller.forwarder import Forwarder
from railweave.controller.routes import Routes, comes_back, routes, trunk_ends
from railweave.controller.trees import Link
from railweave.topologies.model import Plane


class Forwarding:
    """Updates the forwarding of a plane's switches so that a broadcast can never loop.

    Frames have no hop count, so a broadcast in a loop multiplies until the links are full. Switches change
    one at a time, and dead switches do not change. So a switch's old flood ports count until it confirms
    the change. A port that leaves the flood tree is removed at once. A port that joins the tree waits until
    no frame that leaves by this port can come back. In between, a broadcast does not reach all NICs, and
    hosts repeat their ARP requests. A known address always has a route: its entry is modified in place.
    """

    def __init__(
        self, plane: Plane, switches: Mapping[str, Forwarder], write: Callable[[Forwarder], None]
    ) -> None:
        """Set the first routes of `switches`. `write` schedules a write of a switch's new state."""
        self._switches = switches
        self._plane = plane
        self._write = write
        self._ends = trunk_ends(plane)
        self._shunned: tuple[Collection[str], Collection[Link]] = frozenset(), frozenset()
        self._routes = routes(plane)
        for name, switch in switches.items():
            switch.follow(self._routes[name])

    def keep_off(self, dead: Collection[str], avoid: Collection[Link]) -> None:
        """Route around the `dead` switches and the links to `avoid` from now on."""
        shunned = frozenset(dead) & self._routes.keys(), frozenset(avoid)
        if shunned != self._shunned:
            self._shunned = shunned
            self._routes = self._without_traps(routes(self._plane, *shunned), dead)
            for name, switch in self._switches.items():
                if switch.follow(self._routes[name]) and switch.usable:
                    self._write(switch)
        self.widen()

    def _without_traps(self, found: Mapping[str, Routes], dead: Collection[str]) -> dict[str, Routes]:
        """Leave out ports towards dead switches that may still flood, because they cannot be reconfigured.

        NICs behind such a switch receive no broadcast until it answers again.
        """
        traps = {
            end
            for end, (far, entered) in self._ends.items()
            if far in dead and self._switches[far].may_flood - {entered}
        }
        return {
            name: replace(of, tree=frozenset(port for port in of.tree if (name, port) not in traps))
            for name, of in found.items()
        }

    def widen(self) -> None:
        """Add those ports of the flood tree that cannot close a loop any more."""
        floods = {name: set[int]() for name in self._routes}
        for name, port in self._ends:  # switches without P4 flood to all ports
            floods[name].add(port)
        for name, switch in self._switches.items():
            floods[name] = set(switch.may_flood | switch.flooding)
        for name, switch in self._switches.items():
            before = switch.flooding
            for port in sorted(self._routes[name].tree - before) if switch.usable else ():
                if not comes_back(self._ends, floods, (name, port)):
                    floods[name].add(port)
                    switch.flooding |= {port}
            if switch.flooding != before:
                self._write(switch)
