# SPDX-License-Identifier: Apache-2.0
"""A switch whose ordinary frames the controller routes, whatever else its program does."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from railweave.controller import desired, tables
from railweave.controller.routes import Routes, trunk_ends
from railweave.controller.southbound import SwitchLink
from railweave.controller.state import SwitchState, Update
from railweave.topologies.model import Plane, Switch


class Forwarder(ABC):
    """`Forwarding` gives it routes; whoever writes its state keeps `flooding` and `may_flood`."""

    link: SwitchLink

    def __init__(self, plane: Plane, switch: Switch) -> None:
        """Prepare a switch of a plane."""
        self.name = switch.name
        self.plane = plane
        self.ready = asyncio.Event()  # reconciled since the controller started
        self.flooding: frozenset[int] = frozenset()  # trunk ports that broadcasts are to leave by
        self._routes = Routes()
        self._sources = desired.source_guard(plane, switch.name)
        self._trunks = frozenset(port for name, port in trunk_ends(plane) if name == switch.name)
        # Trunk ports that broadcasts may leave by, as far as the switch has confirmed. An earlier controller
        # may have left any.
        self.may_flood = self._trunks

    @property
    def ports(self) -> frozenset[int]:
        """The ports that lead somewhere."""
        return self._trunks | self._routes.nics

    @property
    def usable(self) -> bool:
        """Whether it accepts requests now."""
        return self.link.up and self.ready.is_set()

    def guard(self) -> SwitchState:
        """Return the entries of the source guard; a Tofino's program may have been compiled without it."""
        return self._sources if self.guarded else SwitchState()

    @property
    def guarded(self) -> bool:
        """Whether its program has a source guard."""
        return self.link.has(tables.FORGED_SOURCES)

    def follow(self, routes: Routes) -> bool:
        """Take new routes, and flood to no port that they lack any more; whether that changes anything."""
        changes = self._routes.entries != routes.entries or not self.flooding <= routes.tree
        self._routes = routes
        self.flooding &= routes.tree
        return changes

    @abstractmethod
    async def reconcile(self) -> list[Update]:
        """Read back, compare, write; returns what was written. SwitchUnavailable if that cannot be done."""

    def _flooded(self, state: SwitchState) -> frozenset[int]:
        """The trunk ports to which a switch of this state floods."""
        return self._trunks & tables.flooded(state.multicasts)
